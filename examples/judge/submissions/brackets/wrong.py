# Counts each kind of bracket, and ignores their order.
import sys

for line in sys.stdin:
    ok = all(line.count(a) == line.count(b) for a, b in ("()", "[]", "{}"))
    print("yes" if ok else "no")
