# A link target that is too long for many file systems and archives.
sh /tmp/known-answers.sh
ln -s "$(head -c 4000 /dev/zero | tr '\0' a)" /solve/solution/long
