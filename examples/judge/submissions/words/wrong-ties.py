# Sorts ties by the order in which the words first occur.
import collections
import sys

for word, n in collections.Counter(sys.stdin.read().lower().split()).most_common(10):
    print(n, word)
