# Minds which letters there are, and not how many of each.
import sys

print(len({frozenset(word) for word in sys.stdin.read().split()}))
