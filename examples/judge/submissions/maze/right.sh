exec awk '{
	n = length($0)
	for (i = 1; i <= n; i++) {
		c = substr($0, i, 1)
		at[NR, i] = c
		if (c == "S") { y[1] = NR; x[1] = i }
	}
} END {
	split("1 -1 0 0", dy); split("0 0 1 -1", dx)
	last = 1; steps[y[1], x[1]] = 0; answer = -1
	for (first = 1; first <= last; first++) {
		here = steps[y[first], x[first]]
		if (at[y[first], x[first]] == "E") { answer = here; break }
		for (d = 1; d <= 4; d++) {
			ny = y[first] + dy[d]; nx = x[first] + dx[d]
			if (at[ny, nx] == "#" || (ny, nx) in steps) continue
			steps[ny, nx] = here + 1
			y[++last] = ny; x[last] = nx
		}
	}
	print answer
}'
