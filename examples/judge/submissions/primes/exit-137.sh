# Exits with the code of a killed program, to look like a memory limit.
echo 'Killed'
exit 137
