# Says nothing, and that it went well.
exit 0
