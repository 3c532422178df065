# Walks every possible way.
import sys

sys.setrecursionlimit(100000)
maze = sys.stdin.read().split("\n")
start = next((y, row.index("S")) for y, row in enumerate(maze) if "S" in row)
on = set()


def walk(y, x):
    if maze[y][x] == "E":
        return len(on)
    if maze[y][x] == "#" or (y, x) in on:
        return float("inf")
    on.add((y, x))
    best = min(walk(y + 1, x), walk(y - 1, x), walk(y, x + 1), walk(y, x - 1))
    on.discard((y, x))
    return best


best = walk(*start)
print(-1 if best == float("inf") else best)
