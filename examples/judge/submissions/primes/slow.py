# Divides each number by every smaller number.
n = int(input())
print(sum(1 for i in range(2, n + 1) if sum(i % j == 0 for j in range(1, i + 1)) == 2))
