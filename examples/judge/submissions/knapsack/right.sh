exec awk 'NR == 1 { room = $2; next } {
	for (w = room; w >= $1; w--)
		if (best[w - $1] + $2 > best[w]) best[w] = best[w - $1] + $2
} END { print best[room] + 0 }'
