/* Adds with 32 bits. */
#include <stdio.h>

int main(void)
{
	int n;
	unsigned sum = 0;
	while (scanf("%d", &n) == 1)
		sum += n;
	printf("%d\n", (int)sum);
	return 0;
}
