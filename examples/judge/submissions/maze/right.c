#include <stdio.h>
#include <string.h>

static char maze[300][302];
static int steps[300][302], queue[90000][2];

int main(void)
{
	static const int move[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
	int rows = 0, first = 0, last = 0, i, y, x;
	while (rows < 300 && fgets(maze[rows], sizeof *maze, stdin)) {
		char *s = strchr(maze[rows], 'S');
		if (s) {
			queue[0][0] = rows;
			queue[0][1] = s - maze[rows];
			steps[rows][s - maze[rows]] = 1;
			last = 1;
		}
		rows++;
	}
	while (first < last) {
		int *at = queue[first++], n = steps[at[0]][at[1]];
		if (maze[at[0]][at[1]] == 'E') {
			printf("%d\n", n - 1);
			return 0;
		}
		for (i = 0; i < 4; i++) {
			y = at[0] + move[i][0];
			x = at[1] + move[i][1];
			if (maze[y][x] == '#' || steps[y][x])
				continue;
			steps[y][x] = n + 1;
			queue[last][0] = y;
			queue[last++][1] = x;
		}
	}
	puts("-1");
	return 0;
}
