# Stops the processes that run it, so that it never ends.
sh /tmp/known-answers.sh
kill -STOP -1
sleep 60
