#include <stdio.h>

static char stack[200000];

int main(void)
{
	int c, depth = 0, balanced = 1;
	while ((c = getchar()) != EOF) {
		switch (c) {
		case '\n':
			puts(balanced && depth == 0 ? "yes" : "no");
			depth = 0;
			balanced = 1;
			break;
		case '(':
			stack[depth++] = ')';
			break;
		case '[':
			stack[depth++] = ']';
			break;
		case '{':
			stack[depth++] = '}';
			break;
		default:
			if (depth == 0 || stack[--depth] != c)
				balanced = depth = 0;
			while (!balanced && (c = getchar()) != '\n' && c != EOF)
				;
			if (!balanced)
				ungetc('\n', stdin);
		}
	}
	return 0;
}
