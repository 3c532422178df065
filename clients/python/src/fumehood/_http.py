"""HTTP/1.1 framing without I/O: requests as bytes, and responses from bytes.

It reads an allow-list: responses with a Content-Length or chunked, never both, with bounded heads. Everything else is
a ProtocolError. The end of the connection before the end of a response is a ConnectionLostError.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ._errors import ConnectionLostError, ProtocolError

MAX_HEAD = 64 << 10  # bytes of a status line with all headers, and of all trailers
MAX_FIELDS = 100  # headers of a response
MAX_INFORMATIONAL = 8  # responses of class 1xx before the final one
LAST_CHUNK = b"0\r\n\r\n"

_REQUEST = re.compile(r"[A-Z]+ /[\x21-\x7e]* HTTP/1\.1\r\n(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\x20-\x7e]*\r\n)*")
_STATUS = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([\t\x20-\x7e\x80-\xff]*)(?:\r\n|\Z)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
_MAX_CHUNK_LINE = 1024


def head(method: str, target: str, fields: Sequence[tuple[str, str]], length: int | None = None) -> bytes:
    """Return the head of a request. A length of None means no body, and -1 a chunked one."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in fields])
    text = f"{method} {target} HTTP/1.1\r\n{lines}"
    # Whatever has an end of a line is one line more.
    if not _REQUEST.fullmatch(text) or text.count("\r\n") != len(fields) + 1:
        raise ValueError("invalid method, target or header")  # without it: it may be a secret
    if length is not None:
        text += "Transfer-Encoding: chunked\r\n" if length < 0 else f"Content-Length: {length}\r\n"
    return (text + "\r\n").encode("ascii")


def chunk(data: bytes) -> bytes:
    """Return data as one chunk of a chunked body; no data is no chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


@dataclass
class Head:
    """The head of a response. Names of fields are in lower case."""

    status: int
    fields: dict[str, str] = field(default_factory=dict)


class Reader:
    """Reads responses from the bytes of one connection, one after the other.

    For each response: begin, then head until it is not None, then data until it is empty. A None means that feed must
    be called first, with b"" at the end of the connection.
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0  # position in the buffer
        self._ended = False  # the connection has no more bytes
        self._left = 0  # bytes left of the body or chunk
        self._chunked = False
        self._between = False  # a chunk's own end comes next
        self._finished = True
        self._keep = True
        self._trailing = False  # the trailers come next
        self._bodiless = False
        self._informational = 0
        self.trailers: dict[str, str] = {}

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self._finished and self._keep and not self._ended and self._at == len(self._buffer)

    @property
    def left(self) -> int:
        """How many bytes are left of the body, or of its current chunk."""
        return self._left

    def begin(self, method: str) -> None:
        """Begin to read the response to a request."""
        if not self._finished:
            raise ProtocolError("response: the one before has not been read to its end")
        self._finished = False
        self._bodiless = method == "HEAD"
        self._informational = 0
        self.trailers = {}

    def feed(self, data: bytes) -> None:
        """Add bytes of the connection; none mean its end."""
        if not data:
            self._ended = True
        elif self._at == len(self._buffer):
            self._buffer, self._at = data, 0
        else:
            self._buffer, self._at = self._buffer[self._at :] + data, 0

    def head(self) -> Head | None:
        """Return the head of the response, or None if more bytes are needed."""
        while True:
            block = self._block()
            if block is None:
                return None
            line, _, rest = block.partition(b"\r\n")
            match = _STATUS.fullmatch(line)
            if not match:
                raise ProtocolError(f"response: invalid status line {line[:80]!r}")
            answer = Head(int(match[1]), _fields(rest))
            if answer.status >= 200:
                self._frame(answer)
                return answer
            self._informational += 1
            if answer.status == 101 or self._informational > MAX_INFORMATIONAL:
                raise ProtocolError(f"response: unexpected status {answer.status}")

    def data(self) -> bytes | None:
        """Return the next bytes of the body, b"" at its end, or None if more bytes are needed."""
        while self._left == 0:
            if self._finished:
                return b""
            if not self._chunked:
                self._finished = True
            elif not self._next_chunk():
                return None
        available = len(self._buffer) - self._at
        if available == 0:
            self._need()
            return None
        if self._at == 0 and available <= self._left:
            piece, self._buffer = self._buffer, b""
        else:
            end = self._at + min(available, self._left)
            piece, self._at = self._buffer[self._at : end], end
        self._left -= len(piece)
        self._between = self._chunked and self._left == 0
        return piece

    def _need(self) -> None:
        """Fail if no more bytes will come."""
        if self._ended:
            raise ConnectionLostError("connection: closed before the end of the response")

    def _block(self) -> bytes | None:
        """Return the bytes up to an empty line."""
        if self._buffer.startswith(b"\r\n", self._at):  # a block of no lines: trailers
            self._at += 2
            return b""
        end = self._buffer.find(b"\r\n\r\n", self._at)
        if (len(self._buffer) if end < 0 else end) - self._at > MAX_HEAD:
            raise ProtocolError(f"response: its head has more than {MAX_HEAD} bytes")
        if end < 0:
            self._need()
            return None
        block, self._at = self._buffer[self._at : end], end + 4
        return block

    def _next_chunk(self) -> bool:
        """Read up to the data of the next chunk, or to the end of the body. Report whether there were enough bytes."""
        if self._between:
            if len(self._buffer) - self._at < 2:
                self._need()
                return False
            if not self._buffer.startswith(b"\r\n", self._at):
                raise ProtocolError("response: a chunk is longer than its size")
            self._at += 2
            self._between = False
        if not self._trailing:
            end = self._buffer.find(b"\r\n", self._at, self._at + _MAX_CHUNK_LINE)
            if end < 0:
                if len(self._buffer) - self._at >= _MAX_CHUNK_LINE:
                    raise ProtocolError("response: the line of a chunk's size is too long")
                self._need()
                return False
            match = _CHUNK.fullmatch(self._buffer, self._at, end)
            if not match:
                raise ProtocolError(
                    f"response: invalid chunk size {self._buffer[self._at : min(end, self._at + 40)]!r}"
                )
            self._at, self._left = end + 2, int(match[1], 16)
            self._trailing = self._left == 0
        if self._trailing:
            block = self._block()
            if block is None:
                return False
            self.trailers = _fields(block)
            self._trailing, self._finished = False, True
        return True

    def _frame(self, answer: Head) -> None:
        """Decide how long the body is."""
        coding, length = answer.fields.get("transfer-encoding"), answer.fields.get("content-length")
        options = answer.fields.get("connection", "")
        self._keep = not options or "close" not in {t.strip().lower() for t in options.split(",")}
        self._chunked, self._left, self._between, self._trailing = False, 0, False, False
        if coding is not None and length is not None:
            raise ProtocolError("response: it has both a length and a transfer coding")
        if length is not None and not _LENGTH.fullmatch(length):
            raise ProtocolError(f"response: invalid length {length[:40]!r}")
        if coding is not None and coding.lower() != "chunked":
            raise ProtocolError(f"response: unknown transfer coding {coding[:40]!r}")
        if self._bodiless or answer.status in (204, 304):
            return
        if coding is not None:
            self._chunked = True
        elif length is not None:
            self._left = int(length)
        else:
            raise ProtocolError("response: it has neither a length nor a transfer coding")


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
