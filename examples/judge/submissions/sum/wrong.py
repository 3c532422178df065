# Forgets the negative numbers.
import sys

print(sum(n for n in map(int, sys.stdin.read().split()) if n > 0))
