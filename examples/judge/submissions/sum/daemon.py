# Prints the right answer, and leaves behind a daemon that ignores SIGTERM.
import os
import signal
import sys
import time

print(sum(int(word) for word in sys.stdin.read().split()), flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        time.sleep(600)
    os._exit(0)
