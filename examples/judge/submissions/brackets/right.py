import sys

pairs = {")": "(", "]": "[", "}": "{"}
for line in sys.stdin:
    stack = []
    balanced = True
    for c in line.strip():
        if c in "([{":
            stack.append(c)
        elif not stack or stack.pop() != pairs[c]:
            balanced = False
            break
    print("yes" if balanced and not stack else "no")
