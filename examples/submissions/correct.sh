#!/bin/sh
# An honest solution in shell.
sum=0
while read -r number; do
	sum=$((sum + number))
done
echo "$sum"
