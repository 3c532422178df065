exec awk '{
	count = 0
	for (i = 2; i <= $1; i++) {
		if (i in composite) continue
		count++
		for (j = i * i; j <= $1; j += i) composite[j] = 1
	}
	print count
}'
