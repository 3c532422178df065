# Exits with the code that timeout(1) uses, to look like a command over its time limit.
echo 'I was told to stop'
exit 124
