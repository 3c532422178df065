n = int(input())
sieve = bytearray([1]) * (n + 1)
sieve[:2] = b"\0\0"[: n + 1]
i = 2
while i * i <= n:
    if sieve[i]:
        sieve[i * i :: i] = bytes(len(range(i * i, n + 1, i)))
    i += 1
print(sum(sieve))
