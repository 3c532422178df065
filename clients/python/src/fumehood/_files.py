"""Files of this machine, as paths or file objects, that are sent or written."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from ._errors import ConfigError

PIECE = 1 << 20  # bytes read from a file at a time


class Readable(Protocol):
    """A file object to read from, in binary mode."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to size bytes, none at the end."""


class Writable(Protocol):
    """A file object to write to, in binary mode."""

    def write(self, data: bytes, /) -> Any:
        """Write all of data."""


Source = str | os.PathLike[str] | Readable  # a path or a file object
Target = str | os.PathLike[str] | Writable


def content(data: bytes | bytearray | memoryview | str) -> bytes:
    """Return bytes, or text in UTF-8."""
    return data.encode() if isinstance(data, str) else bytes(data)


@contextlib.contextmanager
def reading(source: Source) -> Iterator[tuple[Iterator[bytes], int]]:
    """Open a source. The value is its pieces and its length, -1 if that is unknown."""
    if not isinstance(source, (str, os.PathLike)):
        yield _pieces(source), _rest(source)
        return
    with Path(source).open("rb") as file:
        status = os.fstat(file.fileno())
        yield _pieces(file), status.st_size if stat.S_ISREG(status.st_mode) else -1


def read_all(source: bytes | bytearray | memoryview | str | os.PathLike[str] | Readable | None) -> bytes:
    """Return what a command reads: bytes, text, the file of a Path, or the rest of a file object."""
    if source is None:
        return b""
    if isinstance(source, (bytes, bytearray, memoryview, str)):
        return content(source)
    with reading(source) as (pieces, _):
        return b"".join(pieces)


def _pieces(file: Readable) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise ConfigError("file: opened in text mode", hint="open it in binary mode")
        yield piece


def _rest(file: Readable) -> int:
    """Return how many bytes are left in a file object, or -1."""
    if hasattr(file, "seek") and hasattr(file, "tell"):
        with contextlib.suppress(OSError, ValueError):
            at = file.tell()
            end = file.seek(0, os.SEEK_END)
            file.seek(at)
            return max(int(end) - int(at), 0)
    return -1


class Sink:
    """Where a download goes. A path gets the content when it is complete, never a part of it."""

    def __init__(self, target: Target) -> None:
        self._path: Path | None = None
        self._part: Path | None = None
        self._file: Writable
        self._own: IO[bytes] | None = None
        if isinstance(target, (str, os.PathLike)):
            self._path = Path(target)
            self._part = self._path.with_name(f".{self._path.name}.{secrets.token_hex(6)}")
            self._own = self._file = self._part.open("xb")
        else:
            self._file = target

    def write(self, data: bytes) -> None:
        """Write all of data."""
        self._file.write(data)

    def finish(self) -> None:
        """Make the content visible."""
        if self._own and self._part and self._path:
            self._own.close()
            self._part.replace(self._path)
            self._part = None

    def close(self) -> None:
        """Remove what is incomplete."""
        if self._own:
            self._own.close()
        if self._part:
            self._part.unlink(missing_ok=True)
