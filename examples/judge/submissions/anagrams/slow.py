# Generates every permutation of a word's letters.
import itertools
import sys

words = sys.stdin.read().split()
groups = set()
for word in words:
    groups.add(min("".join(p) for p in itertools.permutations(word)))
print(len(groups))
