# Never ends.
while :; do
	:
done
