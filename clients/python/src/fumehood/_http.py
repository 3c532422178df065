"""HTTP/1.1 framing: requests as bytes, and responses from the bytes of a connection.

It reads an allow-list: responses with a Content-Length or chunked, never both, with bounded heads. Everything else is
a ProtocolError. The end of the connection before the end of a response is a ConnectionLostError.
"""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Sequence

from ._errors import ConnectionLostError, ProtocolError
from ._values import Deadline

MAX_HEAD = 64 << 10  # bytes of a status line with all headers, and of all trailers
MAX_FIELDS = 100  # headers of a response
READ = 64 << 10  # bytes of an ordinary read
BULK = 1 << 20  # bytes of a read where a large body is on its way
MAX_INFORMATIONAL = 8  # responses of class 1xx before the final one
LAST_CHUNK = b"0\r\n\r\n"

MAX_KNOWN = 1 << 10  # bytes of a response's head that is not parsed again when it is repeated

_REQUEST = re.compile(r"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1\r\n")
_LINES = re.compile(r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x20-\x7e]*\r\n)*")
_STATUS = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)(?:\r\n|\Z)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_CHUNK_LINE = 1024


def start(method: str, target: str, fields: Sequence[tuple[str, str]]) -> str:
    """Return the beginning of a request's head, which many requests can have in common."""
    line = f"{method} {target} HTTP/1.1\r\n"
    if not _REQUEST.fullmatch(line):
        raise ValueError("invalid method or target")
    return line + _lines(fields)


def head(begun: str, fields: Sequence[tuple[str, str]], length: int | None = None) -> bytes:
    """Return the head of a request that start has begun. A length of None means no body, and -1 a chunked one."""
    text = begun + _lines(fields)
    if length is not None:
        text += "Transfer-Encoding: chunked\r\n" if length < 0 else f"Content-Length: {length}\r\n"
    return (text + "\r\n").encode("ascii")


def _lines(fields: Sequence[tuple[str, str]]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields])
    # Whatever has an end of a line is one line more.
    if not _LINES.fullmatch(lines) or lines.count("\r\n") != len(fields):
        raise ValueError("invalid header")  # without it: it may be a secret
    return lines


def chunk(data: bytes) -> bytes:
    """Return data as one chunk of a chunked body; no data is no chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Reader(abc.ABC):
    """Reads responses from one connection, one after the other: for each begin, head, then read until it is empty.

    An error leaves the connection useless.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0  # position in the buffer
        self._left = 0  # bytes left of the body or chunk
        self._chunked = False
        self._between = False  # a chunk's own end comes next
        self._finished = True
        self._keep = True
        self._bodiless = False
        self._deadline: Deadline | None = None

    @abc.abstractmethod
    async def receive(self, size: int, deadline: Deadline | None) -> bytes:
        """Return the next bytes of the connection, or none at its end."""

    @property
    def finished(self) -> bool:
        """Whether the response is known to have been read to its end."""
        return self._finished

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._finished and self._keep and self._at == len(self._buffer)

    def begin(self, method: str, deadline: Deadline | None = None) -> None:
        """Begin to read the response to a request."""
        if not self._finished:
            raise ProtocolError("response: the one before has not been read to its end")
        self._finished, self._bodiless, self._deadline = False, method == "HEAD", deadline

    async def head(self, keep: bool = True, upgrade: str = "") -> int:
        """Return the status of the response. keep is whether the connection can carry another one.

        It is 101 if the connection now has the protocol upgrade, of which rest reads the bytes.
        """
        for _ in range(MAX_INFORMATIONAL + 1):
            block = await self._until(b"\r\n\r\n", MAX_HEAD)
            status, fields = _known_head(block) if len(block) <= MAX_KNOWN else _head(block)
            if status >= 200:
                self._frame(status, fields, keep)
                return status
            if status == 101:
                if upgrade and fields.get("upgrade", "").lower() == upgrade:
                    self._keep = False
                    return status
                break
        raise ProtocolError(f"response: unexpected status {status}")

    async def read(self) -> bytes:
        """Return the next bytes of the body, none at its end."""
        if self._left == 0:
            if self._chunked and not self._finished:
                await self._next_chunk()
            if self._left == 0:
                self._finished = True
                return b""
        if self._at == len(self._buffer):
            await self._more(BULK if self._left > READ else READ)
        end = min(len(self._buffer), self._at + self._left)
        piece, self._at = self._buffer[self._at : end], end
        self._left -= len(piece)
        self._between = self._left == 0
        self._finished = self._between and not self._chunked
        return piece

    async def rest(self, size: int, deadline: Deadline | None) -> bytes:
        """Return the next bytes of an upgraded connection, or none at its end."""
        if self._at == len(self._buffer):
            return await self.receive(size, deadline)
        piece, self._buffer, self._at = self._buffer[self._at :], b"", 0
        return piece

    async def _more(self, size: int = READ) -> None:
        """Add bytes of the connection to the buffer."""
        data = await self.receive(size, self._deadline)
        if not data:
            raise ConnectionLostError("connection: closed before the end of the response")
        self._buffer, self._at = self._buffer[self._at :] + data, 0

    async def _until(self, end: bytes, limit: int) -> bytes:
        """Return up to limit bytes before the next end, and skip both."""
        while (found := self._buffer.find(end, self._at, self._at + limit + len(end))) < 0:
            if len(self._buffer) - self._at >= limit + len(end):
                raise ProtocolError(f"response: no end of a line or head within {limit} bytes")
            await self._more()
        block, self._at = self._buffer[self._at : found], found + len(end)
        return block

    async def _next_chunk(self) -> None:
        """Read up to the data of the next chunk, or to the end of the body."""
        if self._between:
            await self._until(b"\r\n", 0)  # a chunk that is longer than its size fails here
        line = await self._until(b"\r\n", _MAX_CHUNK_LINE)
        match = _CHUNK.fullmatch(line)
        if not match:
            raise ProtocolError(f"response: invalid chunk size {line[:40]!r}")
        self._left = int(match[1], 16)
        if self._left:
            return
        for _ in range(MAX_FIELDS):
            trailer = await self._until(b"\r\n", MAX_HEAD)
            if not trailer:
                return
            _fields(trailer)
        raise ProtocolError(f"response: it has more than {MAX_FIELDS} trailers")

    def _frame(self, status: int, fields: dict[str, str], keep: bool) -> None:
        """Decide how long the body is."""
        coding, length = fields.get("transfer-encoding"), fields.get("content-length")
        options = fields.get("connection", "")
        self._keep = keep and (not options or "close" not in {t.strip().lower() for t in options.split(",")})
        self._chunked, self._left, self._between = False, 0, False
        if coding is not None and length is not None:
            raise ProtocolError("response: it has both a length and a transfer coding")
        if length is not None and not _LENGTH.fullmatch(length):
            raise ProtocolError(f"response: invalid length {length[:40]!r}")
        if coding is not None and coding.lower() != "chunked":
            raise ProtocolError(f"response: unknown transfer coding {coding[:40]!r}")
        if self._bodiless or status in (204, 304):
            return
        if coding is None and length is None:
            raise ProtocolError("response: it has neither a length nor a transfer coding")
        self._chunked, self._left = coding is not None, int(length or 0)


def _head(block: bytes) -> tuple[int, dict[str, str]]:
    """Parse a status line with headers."""
    line, _, rest = block.partition(b"\r\n")
    match = _STATUS.fullmatch(line)
    if not match:
        raise ProtocolError(f"response: invalid status line {line[:80]!r}")
    return int(match[1]), _fields(rest)


# In the same second, most answers to short commands have the same head. The headers must not be changed.
_known_head = functools.lru_cache(64)(_head)


def _fields(block: bytes) -> dict[str, str]:
    """Parse header lines. A repeated field is joined by commas, which makes a repeated length invalid."""
    fields: dict[str, str] = {}
    at = 0
    for _ in range(MAX_FIELDS):
        if at == len(block):
            return fields
        match = _FIELD.match(block, at)
        if not match:
            raise ProtocolError(f"response: invalid header {block[at : at + 40]!r}")
        at = match.end()
        name, value = match[1].decode("ascii").lower(), match[2].strip(b" \t").decode("latin-1")
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    if at != len(block):
        raise ProtocolError(f"response: it has more than {MAX_FIELDS} headers")
    return fields
