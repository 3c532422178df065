/* Takes the same item any number of times. */
#include <stdio.h>

static long best[100001];

int main(void)
{
	int n, room, weight, value, w;
	if (scanf("%d %d", &n, &room) != 2)
		return 1;
	while (n-- && scanf("%d %d", &weight, &value) == 2)
		for (w = weight; w <= room; w++)
			if (best[w - weight] + value > best[w])
				best[w] = best[w - weight] + value;
	printf("%ld\n", best[room]);
	return 0;
}
