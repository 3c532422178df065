/* Divides by zero. */
#include <stdio.h>

int main(void)
{
	volatile int ways = 0;
	printf("%d\n", 100 / ways);
	return 0;
}
