# Reads the notes of others by their numbers.
from client import ask, log_in

token = log_in()
for number in range(1, 6):
    print(*ask(f"/notes/{number}", token))
