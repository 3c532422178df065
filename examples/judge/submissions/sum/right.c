#include <stdio.h>

int main(void)
{
	long long sum = 0, n;
	while (scanf("%lld", &n) == 1)
		sum += n;
	printf("%lld\n", sum);
	return 0;
}
