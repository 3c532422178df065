# Ignores every signal that can be ignored, and waits.
trap '' HUP INT QUIT TERM USR1 USR2
echo 'you cannot stop me' >&2
while :; do
	sleep 1
done
