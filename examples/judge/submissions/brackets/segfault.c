/* Reads what no pointer leads to. */
#include <stdio.h>

int main(void)
{
	char *line = 0;
	puts(line[0] == '(' ? "yes" : "no");
	return 0;
}
