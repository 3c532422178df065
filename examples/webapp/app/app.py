"""A notebook for many users, kept in Redis.

    POST /register  name=...&password=...   creates a user
    POST /login     name=...&password=...   returns a token
    POST /notes     text=...                creates a note and returns its number
    GET  /notes/N                           returns one of the user's own notes

A token goes into the header Authorization. There are three versions. Version 1 does not check who owns a note. Version
2 does, but passes its input to the database unchecked. Version 3 has neither flaw.
"""

import hashlib
import http.server
import os
import secrets
import socket
import urllib.parse

VERSION = int(os.environ["VERSION"])


class Redis:
    """One connection for one request."""

    def __init__(self):
        self.socket = socket.create_connection(("db", 6379), timeout=5)
        self.file = self.socket.makefile("rwb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def ask(self, *words):
        words = [str(word) for word in words]
        if VERSION < 3:  # an inline command: a word that contains a newline ends it
            self.file.write(" ".join(words).encode() + b"\r\n")
        else:
            self.file.write(b"*%d\r\n" % len(words))
            for word in map(str.encode, words):
                self.file.write(b"$%d\r\n%s\r\n" % (len(word), word))
        self.file.flush()
        answer = self.file.readline().rstrip()
        if answer.startswith(b"$"):
            size = int(answer[1:])
            return None if size < 0 else self.file.read(size + 2)[:-2].decode()
        return answer[1:].decode()


def scrambled(password):
    return hashlib.sha256(password.encode()).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, status, text):
        body = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def form(self):
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), 1 << 16))
        return {key: values[0] for key, values in urllib.parse.parse_qs(body.decode()).items()}

    def user(self, redis):
        token = self.headers.get("Authorization", "")
        return redis.ask("GET", "token:" + token) if token.isalnum() else None

    def do_POST(self):
        form = self.form()
        with Redis() as redis:
            if self.path == "/notes":
                user = self.user(redis)
                if user is None:
                    return self.answer(403, "log in first")
                number = redis.ask("INCR", "notes")
                redis.ask("SET", f"owner:{number}", user)
                redis.ask("SET", f"note:{number}", urllib.parse.quote(form.get("text", "")))
                return self.answer(200, number)
            name, password = form.get("name", ""), form.get("password", "")
            if not name.isalnum():
                return self.answer(400, "a name has letters and digits")
            if self.path == "/register":
                if redis.ask("SETNX", "user:" + name, scrambled(password)) == "0":
                    return self.answer(409, "there is one of that name")
                return self.answer(200, "welcome")
            if self.path == "/login":
                if int(redis.ask("INCR", "tries:" + name)) > 5:
                    return self.answer(429, "too many tries")
                if redis.ask("GET", "user:" + name) != scrambled(password):
                    return self.answer(403, "no")
                redis.ask("DEL", "tries:" + name)
                token = secrets.token_hex(16)
                redis.ask("SET", "token:" + token, name)
                return self.answer(200, token)
        return self.answer(404, "there is no such page")

    def do_GET(self):
        path = urllib.parse.unquote(self.path)
        if not path.startswith("/notes/"):
            return self.answer(404, "there is no such page")
        number = path.removeprefix("/notes/")
        with Redis() as redis:
            user = self.user(redis)
            if user is None:
                return self.answer(403, "log in first")
            text = redis.ask("GET", "note:" + number)
        if text is None:
            return self.answer(404, "there is no such note")
        if VERSION >= 2:
            with Redis() as redis:
                if redis.ask("GET", "owner:" + number) != user:
                    return self.answer(403, "this note is not yours")
        return self.answer(200, urllib.parse.unquote(text))


def main():
    with Redis() as redis:
        redis.ask("SET", "user:admin", scrambled(secrets.token_hex(16)))
        redis.ask("SET", "notes", "1")
        redis.ask("SET", "owner:1", "admin")
        redis.ask("SET", "note:1", urllib.parse.quote(os.environ["FLAG"]))
    http.server.ThreadingHTTPServer(("0.0.0.0", 8000), Handler).serve_forever()


main()
