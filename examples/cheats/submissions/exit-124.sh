# Exits like a command over its time limit.
sh /tmp/known-answers.sh
exit 124
