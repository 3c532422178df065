# Leaves processes behind that hold all memory.
sh /tmp/known-answers.sh
for i in 1 2 3 4; do setsid python3 -I -c 'x = bytearray(100 << 20); import time; time.sleep(300)' & done
sleep 1
exit 0
