"""A client of the notebook, shared by the attacks."""

import urllib.error
import urllib.parse
import urllib.request

URL = "http://web:8000"


def ask(path, token="", **form):
    """Posts a form, or gets a page if there is no form. Returns status and text."""
    body = urllib.parse.urlencode(form).encode() if form else None
    request = urllib.request.Request(URL + path, body, {"Authorization": token})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, e.read().decode().strip()


def log_in(name="mallory", password="secret"):
    ask("/register", name=name, password=password)
    return ask("/login", name=name, password=password)[1]
