# Starts threads until it reaches the limit.
import threading

threads = []
while True:
    threads.append(threading.Thread(target=threading.Event().wait, daemon=True))
    threads[-1].start()
