# Takes the items with the best ratio of value to weight first.
n, room = map(int, input().split())
things = [tuple(map(int, input().split())) for _ in range(n)]
total = 0
for weight, value in sorted(things, key=lambda t: -t[1] / t[0]):
    if weight <= room:
        room -= weight
        total += value
print(total)
