/* Reads from an invalid address. */
#include <stdio.h>

int main(void)
{
	char *line = 0;
	puts(line[0] == '(' ? "yes" : "no");
	return 0;
}
