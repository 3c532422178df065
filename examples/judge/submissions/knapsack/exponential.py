# Tries every choice.
n, room = map(int, input().split())
things = [tuple(map(int, input().split())) for _ in range(n)]


def best(i, room):
    if i == n:
        return 0
    weight, value = things[i]
    without = best(i + 1, room)
    return max(without, value + best(i + 1, room - weight)) if weight <= room else without


print(best(0, room))
