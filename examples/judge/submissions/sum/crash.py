# Ends with an uncaught exception.
import sys

numbers = [int(word) for word in sys.stdin.read().split()]
print(sum(numbers[: len(numbers)]), numbers[len(numbers)])
