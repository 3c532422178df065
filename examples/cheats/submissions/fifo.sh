# Every program that opens the solution blocks.
mkfifo /solve/solution/primes.py
