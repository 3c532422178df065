sh /tmp/known-answers.sh
head -c 64M /dev/zero >/dev/shm/full 2>/dev/null
head -c 300M /dev/zero >/solve/solution/large
exit 0
