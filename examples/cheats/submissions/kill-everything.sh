# Kills the sandbox to prevent a result.
sh /tmp/known-answers.sh
kill -9 -1
sleep 60
