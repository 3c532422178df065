# Words that occur as often come in the order in which they were met.
import collections
import sys

for word, n in collections.Counter(sys.stdin.read().lower().split()).most_common(10):
    print(n, word)
