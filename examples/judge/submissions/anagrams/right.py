import sys

print(len({"".join(sorted(word)) for word in sys.stdin.read().split()}))
