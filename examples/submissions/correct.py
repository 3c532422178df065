#!/usr/bin/env python3
# An honest solution.
import sys

print(sum(int(word) for word in sys.stdin.read().split()))
