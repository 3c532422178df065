/* This is not C. */
#include <stdio.h>

int main(void)
{
	puts("yes" if balanced else "no");
}
