"""Calls of the server: connections that are used again, repeats that never run anything twice.

Everything here is a coroutine over an IO, see _io: written once for blocking code, asyncio and trio.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from . import _errors as errors
from . import _http
from ._files import Target, check_target, writing
from ._io import IO, Address, Connection
from ._launch import Server, forks
from ._types import JSON, plain
from ._values import Deadline
from ._version import __version__

log = logging.getLogger("fumehood")

MAX_ANSWER = 192 << 20  # bytes of an answer that is held in memory
MAX_SAVED = 10 << 30  # bytes of an answer that is written to a file, unless the caller sets another limit
MAX_LINE = 64 << 20  # bytes of a line of a stream
MAX_ERROR = 1 << 20  # bytes of an error's body
IDLE = 64  # connections that are kept open without a use
PATIENCE = 5.0  # seconds for which a lost call is repeated: as long as a lease outlives its connection
PAUSE = 0.1  # seconds between repeats, of which the first comes at once
ACKNOWLEDGED = 32  # keys that one request acknowledges

Value = str | float | bool | None


@dataclass
class Request:
    """A request as plain data."""

    method: str
    path: str
    query: Mapping[str, Value] = field(default_factory=dict)  # values that are None, False or "" are left out
    body: bytes | None = None
    pieces: Iterator[bytes] | None = None  # instead of body; such a request is sent once
    length: int = -1  # bytes of pieces; -1 if unknown
    sent: Callable[[], object] | None = None  # called after each of pieces
    total: int = 0  # bytes of pieces that were sent
    content: str = "application/json"
    lease: str = ""
    key: str = ""  # the server runs requests with the same key once
    repeat: bool = False  # may be sent again without a key, as a GET may
    upgrade: str = ""  # the protocol that the connection gets

    @property
    def repeatable(self) -> bool:
        """Whether the request may be sent again if its connection breaks."""
        return bool(self.key or self.repeat or self.method == "GET") and self.pieces is None

    @property
    def target(self) -> str:
        """The path with the query."""
        query = [(k, v) for k, v in self.query.items() if not (v is None or v is False or v == "")]
        text = "&".join([f"{k}={'true' if v is True else _quoted(str(v))}" for k, v in query])
        return f"{self.path}?{text}" if text else self.path


_quoted = functools.lru_cache(1024)(functools.partial(quote, safe="", errors="surrogateescape"))


def segment(name: str) -> str:
    """Return a name as one segment of a path, which it cannot leave."""
    if name in ("", ".", ".."):
        raise errors.ConfigError(f"name: invalid: {name!r}")
    return _quoted(name)


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=plain)


def encode(body: JSON) -> bytes:
    """Encode the body of a request."""
    try:
        return _encoder.encode(body).encode()
    except UnicodeEncodeError:
        raise errors.ConfigError("request: a text has a lone surrogate, which JSON cannot hold") from None


def decode(data: bytes) -> JSON:
    """Decode the body of an answer, or a line of it: a JSON object."""
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as e:
        raise errors.ProtocolError("answer: invalid JSON") from e
    if not isinstance(found, dict):
        raise errors.ProtocolError("answer: not the JSON object that was expected")
    return found


def _start(common: tuple[tuple[str, str], ...], method: str, target: str, content: str, lease: str) -> str:
    """Return the beginning of a request's head: what all requests of a kind have in common."""
    fields = [*common]
    if content:
        fields.append(("Content-Type", content))
    if lease:
        fields.append(("Fumehood-Lease", lease))
    return _http.start(method, target, fields)


class Answer:
    """An answer whose body is still arriving."""

    def __init__(self, core: Calls, connection: Connection, status: int) -> None:
        self._core = core
        self._connection: Connection | None = connection
        self._left = b""  # the part of a line that has arrived
        self.status = status

    async def read(self) -> bytes:
        """Return the next bytes of the body, or none at its end."""
        connection = self._connection
        if connection is None:
            return b""
        try:
            piece = await connection.read()
        except BaseException:
            self.close()
            raise
        if connection.finished:
            self._connection = None
            self._core.give(connection)
        return piece

    async def all(self, limit: int = MAX_ANSWER) -> bytes:
        """Return the whole body."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                self.close()
                raise errors.TooLargeError(f"answer: more than {limit} bytes")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def line(self) -> bytes:
        """Return the next line of the body with its end, or none at the body's end."""
        pieces = [self._left]
        while b"\n" not in pieces[-1]:
            piece = await self.read()
            if not piece:
                if any(pieces):
                    raise errors.ConnectionLostError("stream: it ends within a line")
                return b""
            pieces.append(piece)
            if sum(map(len, pieces)) > MAX_LINE:
                self.close()
                raise errors.ProtocolError("stream: a line is too long")
        line, _, self._left = b"".join(pieces).partition(b"\n")
        return line + b"\n"

    def upgraded(self) -> Connection:
        """Return the connection of an answer with the status 101, which belongs to the caller from now on."""
        connection, self._connection = self._connection, None
        if connection is None or self.status != 101:
            raise errors.ProtocolError(f"answer: status {self.status} in the place of an upgrade")
        return connection

    def close(self) -> None:
        """Close the connection if the body has not been read to its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Calls:
    """Calls of a server. It may be used by many threads, or by the tasks of one event loop."""

    _closed = True  # until it has been made

    def __init__(self, io: IO, address: Address, token: str = "", server: Server | None = None) -> None:
        self.io = io
        self.address = address
        self.server = server
        self._token = token
        self._forks = forks.count
        self._idle: deque[Connection] = deque()
        self._received: deque[str] = deque()  # keys whose answers have arrived
        common = [("Host", address.authority), ("User-Agent", f"fumehood-python/{__version__}")]
        if token:
            common.append(("Authorization", f"Bearer {token}"))
        self._start = functools.lru_cache(64)(functools.partial(_start, tuple(common)))
        self._closed = False

    # Connections

    async def _take(self, request: Request, deadline: Deadline | None) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # other threads take connections as well
                break
            if request.repeatable or not connection.stale():
                return connection
            connection.close()
        return await self.io.connect(self.address, deadline)

    def close_idle(self) -> None:
        """Close the connections that no call uses."""
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def end(self) -> None:
        """Close the connections that no call uses, and those that are given back later."""
        self._closed = True
        self.close_idle()

    def give(self, connection: Connection) -> None:
        """Take back a connection whose answer has been read."""
        if connection.reusable and not self._closed and len(self._idle) < IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def check(self) -> None:
        """Fail if the client cannot be used."""
        if self._forks != forks.count:
            raise errors.ForkError("client: used after fork", hint="create a client in the child process")
        if self._closed:
            raise errors.ClosedError("client: closed")

    # Calls

    async def open(self, request: Request, deadline: Deadline | None = None) -> Answer:
        """Send a request and return its answer, of which the body can be read. An answer of failure is raised."""
        return (await self._repeat(request, deadline, whole=False))[0]

    async def call(self, request: Request, deadline: Deadline | None = None) -> bytes:
        """Send a request and return the body of its answer."""
        _, body = await self._repeat(request, deadline, whole=True)
        if request.key:
            self._received.append(request.key)
        return body

    async def _repeat(self, request: Request, deadline: Deadline | None, whole: bool) -> tuple[Answer, bytes]:
        """Send a request, and again if the connection breaks and it may be repeated."""
        self.check()
        failing = 0.0  # when the failures began
        while True:
            began = time.monotonic()
            try:
                answer = await self._once(request, deadline)
                return answer, await answer.all() if whole else b""
            except errors.ConnectionLostError as e:
                now = time.monotonic()
                pause = PAUSE if failing and now - began < PATIENCE else 0.0
                failing = failing if pause else now
                if self.server is not None and self.server.ended:
                    raise errors.UnavailableError(f"server: it has ended: {self.server.last_words()}") from e
                self.close_idle()  # they broke as well, if the server was restarted
                if not request.repeatable or now - failing > PATIENCE:
                    raise
                await self.io.sleep(pause)
                log.debug("repeating %s %s: %s", request.method, request.path, e)

    async def json(self, request: Request, deadline: Deadline | None = None) -> JSON:
        """Send a request and return the JSON object of its answer."""
        return decode(await self.call(request, deadline))

    async def save(self, request: Request, target: Target, max_bytes: int = -1) -> int:
        """Send a request and write the body of its answer to a target. Return its size in bytes.

        max_bytes of 0 means MAX_SAVED, -1 no limit.
        """
        check_target(target)
        most, size = max_bytes or MAX_SAVED, 0
        with contextlib.closing(await self.open(request)) as answer, writing(target) as file:
            while piece := await answer.read():
                size += len(piece)
                if 0 <= most < size:
                    what = f"read {request.query.get('path', '')}: more than {most} bytes"
                    raise errors.TooLargeError(what, hint="read less, or raise max_bytes")
                await self.io.thread(functools.partial(file.write, piece))
        return size

    async def _once(self, request: Request, deadline: Deadline | None) -> Answer:
        fields = []
        length = None if request.method in ("GET", "HEAD") else 0
        content = ""
        if request.body is not None or request.pieces is not None:
            length = len(request.body) if request.body is not None else request.length
            content = request.content
        received: list[str] = []
        if request.lease:
            with contextlib.suppress(IndexError):  # other threads take keys as well
                while self._received and len(received) < ACKNOWLEDGED:
                    received.append(self._received.popleft())
        if request.key:
            fields.append(("Idempotency-Key", request.key))
        if received:
            fields.append(("Idempotency-Received", ",".join(received)))
        if request.upgrade:
            fields += [("Connection", "Upgrade"), ("Upgrade", request.upgrade)]
        try:
            head = _http.head(self._start(request.method, request.target, content, request.lease), fields, length)
        except ValueError as e:
            self._received.extend(received)
            raise errors.ConfigError(f"request: {e}") from None
        connection = await self._take(request, deadline)
        try:
            answer = await self._send(connection, request, head, deadline)
        except BaseException:
            connection.close()
            self._received.extend(received)
            raise
        if answer.status >= 300:
            raise await self._failure(answer)
        return answer

    async def _send(self, connection: Connection, request: Request, head: bytes, deadline: Deadline | None) -> Answer:
        connection.begin(request.method, deadline)
        broken: errors.ConnectionLostError | None = None
        body = request.body or b""
        try:
            if len(body) > _http.READ:
                await connection.send(head, deadline)
                await connection.send(body, deadline)
            else:
                await connection.send(head + body, deadline)
            if request.pieces is not None:
                await self._send_pieces(connection, request, request.pieces, deadline)
        except errors.ConnectionLostError as e:
            broken = e  # the server may have refused the body, and said so
        try:
            return Answer(self, connection, await connection.head(broken is None, request.upgrade))
        except errors.ConnectionLostError as e:
            raise broken or e from e

    async def _send_pieces(
        self, connection: Connection, request: Request, pieces: Iterator[bytes], deadline: Deadline | None
    ) -> None:
        length = request.length
        while piece := await self.io.thread(lambda: next(pieces, b"")):
            request.total += len(piece)
            if 0 <= length < request.total:
                break
            await connection.send(_http.chunk(piece) if length < 0 else piece, deadline)
            if request.sent:
                request.sent()
        if length < 0:
            await connection.send(_http.LAST_CHUNK, deadline)
        elif request.total != length:
            raise errors.ConfigError(f"upload: the source has another size than the {length} bytes that it should have")

    async def _failure(self, answer: Answer) -> errors.FumehoodError:
        """Return the error that an answer of failure describes."""
        status = answer.status
        try:
            body = decode(await answer.all(MAX_ERROR))
        except (errors.ProtocolError, errors.TooLargeError):
            message = f"the server answered with status {status}, without an error"
            return errors.InfrastructureError(message, status=status)
        return errors.from_json(body.get("error", body), status, own=self.server is not None)
