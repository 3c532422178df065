n, room = map(int, input().split())
best = [0] * (room + 1)
for _ in range(n):
    weight, value = map(int, input().split())
    for w in range(room, weight - 1, -1):
        if best[w - weight] + value > best[w]:
            best[w] = best[w - weight] + value
print(best[room])
