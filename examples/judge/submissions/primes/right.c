#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	long n, i, j, count = 0;
	char *composite;
	if (scanf("%ld", &n) != 1 || !(composite = calloc(n + 1, 1)))
		return 1;
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
