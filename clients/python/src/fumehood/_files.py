"""Files of this machine, as paths or file objects, that are sent or written."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ._errors import ConfigError

PIECE = 1 << 20  # bytes read from a file at a time


Source = str | os.PathLike[str] | BinaryIO  # a path or a file object
Target = Source


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


def read_all(source: bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO | None) -> bytes:
    """Return what a command reads: bytes, text, the file of a Path, or the rest of a file object."""
    if source is None:
        return b""
    if isinstance(source, (bytes, bytearray, memoryview, str)):
        return content(source)
    with reading(source) as (pieces, _):
        return b"".join(pieces)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, bytes):
            raise ConfigError("file: opened in text mode", hint="open it in binary mode")
        yield piece


def _rest(file: BinaryIO) -> int:
    """Return how many bytes are left in a file object, or -1."""
    if hasattr(file, "seek") and hasattr(file, "tell"):
        with contextlib.suppress(OSError, ValueError):
            at = file.tell()
            end = file.seek(0, os.SEEK_END)
            file.seek(at)
            return max(int(end) - int(at), 0)
    return -1


@contextlib.contextmanager
def writing(target: Target) -> Iterator[BinaryIO]:
    """Open a target. A path gets the content when it is complete, never a part of it."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    path = Path(target)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with part.open("xb") as file:
            yield file
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
