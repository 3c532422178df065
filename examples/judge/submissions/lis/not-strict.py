# Allows equal numbers to follow each other.
import bisect
import sys

ends = []
for n in map(int, sys.stdin.read().split()):
    i = bisect.bisect_right(ends, n)
    ends[i : i + 1] = [n]
print(len(ends))
