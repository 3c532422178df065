# Prints a wrong flag without any attack.
echo 'flag{of-course-i-have-it}'
