# Counts 1 as a prime.
exec awk '{
	count = 0
	for (i = 1; i <= $1; i++) {
		if (i in composite) continue
		count++
		for (j = i * i; i > 1 && j <= $1; j += i) composite[j] = 1
	}
	print count
}'
