#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
	char text[64];
	int n;
};

static struct word words[20000];
static int all;

static int by_text(const void *a, const void *b)
{
	return strcmp(((struct word *)a)->text, ((struct word *)b)->text);
}

static int by_count(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	return x->n != y->n ? y->n - x->n : strcmp(x->text, y->text);
}

int main(void)
{
	int i, distinct = 0;
	while (all < 20000 && scanf("%63s", words[all].text) == 1) {
		for (i = 0; words[all].text[i]; i++)
			if (words[all].text[i] >= 'A' && words[all].text[i] <= 'Z')
				words[all].text[i] += 'a' - 'A';
		words[all++].n = 1;
	}
	qsort(words, all, sizeof *words, by_text);
	for (i = 0; i < all; i++) {
		if (distinct && !strcmp(words[distinct - 1].text, words[i].text))
			words[distinct - 1].n++;
		else
			words[distinct++] = words[i];
	}
	qsort(words, distinct, sizeof *words, by_count);
	for (i = 0; i < distinct && i < 10; i++)
		printf("%d %s\n", words[i].n, words[i].text);
	return 0;
}
