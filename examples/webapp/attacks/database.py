# Connects to the database directly, without the application.
import socket

for host in ("db", "web"):
    try:
        with socket.create_connection((host, 6379), timeout=3) as s:
            s.sendall(b"GET note:1\r\n")
            print(s.recv(1000).decode())
    except OSError as e:
        print(f"{host}: {e}")
