import collections
import sys

maze = sys.stdin.read().split("\n")
start = next((y, row.index("S")) for y, row in enumerate(maze) if "S" in row)
steps = {start: 0}
queue = collections.deque([start])
answer = -1
while queue:
    y, x = queue.popleft()
    if maze[y][x] == "E":
        answer = steps[y, x]
        break
    for to in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
        if maze[to[0]][to[1]] != "#" and to not in steps:
            steps[to] = steps[y, x] + 1
            queue.append(to)
print(answer)
