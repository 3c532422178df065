exec awk '{
	depth = 0; answer = "yes"
	n = length($0)
	for (i = 1; i <= n; i++) {
		c = substr($0, i, 1)
		if (c == "(") stack[++depth] = ")"
		else if (c == "[") stack[++depth] = "]"
		else if (c == "{") stack[++depth] = "}"
		else if (depth == 0 || stack[depth--] != c) { answer = "no"; break }
	}
	if (depth > 0) answer = "no"
	print answer
}'
