exec awk '{
	lo = 1; hi = len + 1
	while (lo < hi) {
		mid = int((lo + hi) / 2)
		if (ends[mid] < $1 + 0) lo = mid + 1; else hi = mid
	}
	ends[lo] = $1 + 0
	if (lo > len) len = lo
} END { print len + 0 }'
