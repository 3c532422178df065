/* Has an array that is large enough only for the first test. */
#include <stdio.h>
#include <string.h>

static char composite[100];

int main(void)
{
	long n, i, j, count = 0;
	if (scanf("%ld", &n) != 1)
		return 1;
	memset(composite, 0, n * 1000);
	for (i = 2; i <= n; i++) {
		if (composite[i])
			continue;
		count++;
		for (j = i * i; j <= n; j += i)
			composite[j] = 1;
	}
	printf("%ld\n", count);
	return 0;
}
