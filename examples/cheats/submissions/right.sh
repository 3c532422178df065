cat >/solve/solution/primes.py <<'P'
import sys

n, found = int(sys.argv[1]), []
candidate = 2
while len(found) < n:
    for p in found:
        if p * p > candidate:
            found.append(candidate)
            break
        if candidate % p == 0:
            break
    else:
        found.append(candidate)
    candidate += 1
print(found[n - 1])
P
