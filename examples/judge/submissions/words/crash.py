# Fails on letters outside ASCII.
import collections
import sys

counts = collections.Counter(sys.stdin.buffer.read().decode("ascii").lower().split())
for word, n in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:10]:
    print(n, word)
