sh /tmp/known-answers.sh
truncate -s 1T /work/solution/hole
