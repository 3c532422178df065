# Has not even tried.
echo 'flag{of-course-i-have-it}'
