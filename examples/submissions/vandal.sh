#!/bin/sh
# Breaks what it can, as root: kills the first process, removes Lazaret's own files, writes to the root
# folder, and kills every other process, the one that supervises it too. Then it answers, if it still can.
kill -9 1 2>/dev/null
rm -rf /.lazaret 2>/dev/null
echo vandal 2>/dev/null >/.lazaret/guest
echo vandal >/vandal
kill -9 -1 2>/dev/null
sum=0
while read -r number; do
	sum=$((sum + number))
done
echo "$sum"
