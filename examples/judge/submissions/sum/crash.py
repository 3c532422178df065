# Ends with an exception that nobody catches.
import sys

numbers = [int(word) for word in sys.stdin.read().split()]
print(sum(numbers[: len(numbers)]), numbers[len(numbers)])
