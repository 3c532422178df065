#!/usr/bin/env python3
# Ends with an exception that nobody catches.
import sys

numbers = [int(word) for word in sys.stdin.read().split()]
print(numbers[len(numbers)])
