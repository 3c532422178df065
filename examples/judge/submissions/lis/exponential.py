# Tries every choice.
import sys

sys.setrecursionlimit(100000)
numbers = list(map(int, sys.stdin.read().split()))


def longest(i, last):
    if i == len(numbers):
        return 0
    without = longest(i + 1, last)
    return max(without, 1 + longest(i + 1, numbers[i])) if numbers[i] > last else without


print(longest(0, -(10**9)))
