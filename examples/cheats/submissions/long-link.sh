# No file system and no archive likes this.
sh /tmp/known-answers.sh
ln -s "$(head -c 4000 /dev/zero | tr '\0' a)" /solve/solution/long
