# Runs a solution as nobody, who may not read this file. Exits with 0 if all its answers are right.
import os
import stat
import subprocess
import sys

ANSWERS = {1: 2, 25: 97, 1000: 7919, 2500: 22307, 4321: 41263}
MOST = 1 << 20  # maximum size of a solution in bytes

fd = os.open(sys.argv[1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
if not stat.S_ISREG(os.fstat(fd).st_mode):
    sys.exit("the solution is not a regular file")
with os.fdopen(fd, "rb") as file:
    source = file.read(MOST)

for n, answer in ANSWERS.items():
    try:
        ran = subprocess.run(
            ["/usr/bin/python3", "-I", "-", str(n)], input=source, capture_output=True, timeout=5, cwd="/", env={},
            user="nobody", group="nogroup", extra_groups=[],
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"prime {n}: no answer in time")
    if ran.returncode != 0 or ran.stdout.strip() != str(answer).encode():
        sys.exit(f"prime {n} is not {ran.stdout[:100]!r}")
