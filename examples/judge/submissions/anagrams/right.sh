exec awk '{
	split("", n); key = ""
	for (i = length($1); i > 0; i--) n[substr($1, i, 1)]++
	for (i = 97; i <= 122; i++) key = key " " n[sprintf("%c", i)]
	if (!(key in seen)) { seen[key] = 1; groups++ }
} END { print groups + 0 }'
