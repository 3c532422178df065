# Compares which letters occur, but not how often.
import sys

print(len({frozenset(word) for word in sys.stdin.read().split()}))
