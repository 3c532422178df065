"""A server for tests: it answers each request as the test says, and can break connections at any point."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Got:
    """A request that has arrived."""

    method: str
    target: str
    fields: dict[str, str]
    body: bytes
    connection: int


def answer(body: object = None, status: int = 200, extra: str = "") -> bytes:
    """Return an answer with a JSON body."""
    data = json.dumps({} if body is None else body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n{extra}\r\n".encode() + data


def failure(code: str, status: int = 400, **fields: str) -> bytes:
    """Return an answer that is an error."""
    return answer({"error": {"class": code, "message": f"it is {code}", **fields}}, status)


@dataclass
class Cut:
    """What is sent before the connection is closed."""

    data: bytes = b""
    unread: bool = False  # the request's body is not read


Handler = Callable[[Got], "bytes | Cut"]


@dataclass
class Fake:
    """A server on a unix socket."""

    handler: Handler
    early: Callable[[str, str], Cut | None] = lambda method, target: None
    got: list[Got] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="fumehood-test-")
        self.path = os.path.join(self.folder, "socket")  # noqa: PTH118
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(128)
        self._connections: list[socket.socket] = []
        self.opened = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Fake:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        shutil.rmtree(self.folder)

    def drop(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._connections = []

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.opened += 1
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection, self.opened), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            stream = connection.makefile("rb")
            while True:
                method, target, fields = _head(stream)
                if cut := self.early(method, target):
                    connection.sendall(cut.data)
                    return
                body = _body(stream, fields)
                got = Got(method, target, fields, body, number)
                self.got.append(got)
                reply = self.handler(got)
                if isinstance(reply, Cut):
                    connection.sendall(reply.data)
                    return
                connection.sendall(reply)


def _head(stream: Any) -> tuple[str, str, dict[str, str]]:
    line = stream.readline()
    if not line:
        raise EOFError
    method, target, _ = line.decode().split(" ")
    fields: dict[str, str] = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        fields[name.lower()] = value.strip()
    return method, target, fields


def _body(stream: Any, fields: dict[str, str]) -> bytes:
    if fields.get("transfer-encoding") != "chunked":
        data: bytes = stream.read(int(fields.get("content-length", "0")))
        return data
    body = b""
    while size := int(stream.readline(), 16):
        body += stream.read(size)
        stream.readline()
    stream.readline()
    return body
