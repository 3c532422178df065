# Goes down and right as long as it can, and assumes that the first way that it finds is the shortest.
import sys

maze = sys.stdin.read().split("\n")
start = next((y, row.index("S")) for y, row in enumerate(maze) if "S" in row)
stack, seen = [(start, 0)], set()
answer = -1
while stack:
    (y, x), n = stack.pop()
    if maze[y][x] == "E":
        answer = n
        break
    if (y, x) in seen:
        continue
    seen.add((y, x))
    for to in ((y - 1, x), (y, x - 1), (y, x + 1), (y + 1, x)):
        if maze[to[0]][to[1]] != "#":
            stack.append((to, n + 1))
print(answer)
