#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char words[20000][32];

static int by_letter(const void *a, const void *b) { return *(char *)a - *(char *)b; }
static int by_word(const void *a, const void *b) { return strcmp(a, b); }

int main(void)
{
	int n = 0, groups = 0, i;
	while (n < 20000 && scanf("%31s", words[n]) == 1) {
		qsort(words[n], strlen(words[n]), 1, by_letter);
		n++;
	}
	qsort(words, n, sizeof *words, by_word);
	for (i = 0; i < n; i++)
		groups += i == 0 || strcmp(words[i], words[i - 1]) != 0;
	printf("%d\n", groups);
	return 0;
}
