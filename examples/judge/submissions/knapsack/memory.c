/* Allocates memory without end, and writes to all of it. */
#include <stdlib.h>
#include <string.h>

int main(void)
{
	for (;;) {
		char *row = malloc(1 << 20);
		if (!row)
			return 1;
		memset(row, 1, 1 << 20);
	}
}
