# Tries to send the problem to a host outside.
import socket
import sys

problem = sys.stdin.buffer.read()
try:
    with socket.create_connection(("1.1.1.1", 80), timeout=2) as s:
        s.sendall(problem)
    print("sent to the outside")
except OSError as e:
    print("not sent:", e.strerror or e)
