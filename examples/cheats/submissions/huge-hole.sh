sh /tmp/known-answers.sh
truncate -s 1T /solve/solution/hole
