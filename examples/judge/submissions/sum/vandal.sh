# Breaks as much as it can as root: kills the first process, removes Fumehood's own files, and writes to the root
# folder. It prints the right answer, so that another test follows. It removes all programs that could run that test, its
# own first.
kill -9 1 2>/dev/null
rm -rf /.fumehood 2>/dev/null
echo vandal 2>/dev/null >/.fumehood/guest
echo vandal >/vandal
sum=0
while read -r number; do
	sum=$((sum + number))
done
echo "$sum"
rm -rf /judge/* /usr/local /usr/sbin /usr/bin
