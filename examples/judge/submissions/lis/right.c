#include <stdio.h>

static long ends[100000];

int main(void)
{
	long n;
	int len = 0;
	while (scanf("%ld", &n) == 1) {
		int lo = 0, hi = len;
		while (lo < hi) {
			int mid = (lo + hi) / 2;
			if (ends[mid] < n)
				lo = mid + 1;
			else
				hi = mid;
		}
		ends[lo] = n;
		if (lo == len)
			len++;
	}
	printf("%d\n", len);
	return 0;
}
