# Prints forever.
sh /tmp/known-answers.sh
exec yes PASSED
