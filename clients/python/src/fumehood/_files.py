"""Files of this machine, as paths or file objects, that are sent or written."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ._errors import ConfigError
from ._values import wrong

PIECE = 1 << 20  # bytes read from a file at a time


Source = str | os.PathLike[str] | BinaryIO  # a path or a file object
Target = Source


Content = bytes | bytearray | memoryview | str | BinaryIO


def content(data: Content, name: str = "data") -> bytes:
    """Return bytes, text in UTF-8, or the rest of a file object."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name}: a text has a lone surrogate, which UTF-8 cannot hold") from None
    if not hasattr(data, "read"):
        raise wrong(name, data, "bytes, a str or a file object in binary mode")
    return b"".join(_pieces(data))


@contextlib.contextmanager
def reading(source: Source, name: str = "source") -> Iterator[tuple[Iterator[bytes], int]]:
    """Open a source. The value is its pieces and its length, -1 if that is unknown."""
    if not isinstance(source, (str, os.PathLike)):
        if not hasattr(source, "read"):
            raise wrong(name, source, "a path or a file object in binary mode")
        yield _pieces(source), _rest(source)
        return
    with Path(source).open("rb") as file:
        status = os.fstat(file.fileno())
        yield _pieces(file), status.st_size if stat.S_ISREG(status.st_mode) else -1


def read_all(
    source: bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO | None, name: str = "stdin"
) -> bytes:
    """Return what a command reads: bytes, text, the file of a Path, or the rest of a file object."""
    if source is None:
        return b""
    if isinstance(source, (bytes, bytearray, memoryview, str)):
        return content(source, name)
    with reading(source, name) as (pieces, _):
        return b"".join(pieces)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise ConfigError("file: opened in text mode", hint="open it in binary mode")
        yield bytes(piece)


def _rest(file: BinaryIO) -> int:
    """Return how many bytes are left in a file object, or -1."""
    try:
        at = int(file.tell())
        file.seek(0, os.SEEK_END)
        end = int(file.tell())
    except Exception:  # noqa: BLE001  # it has no size: whatever can be read is a source
        return -1
    file.seek(at)
    return max(end - at, 0)


class _Sparse(io.BufferedWriter):
    """A new file that gets holes for pieces that are all zero."""

    def write(self, piece: bytes) -> int:  # type: ignore[override]
        if piece.strip(b"\0"):
            return super().write(piece)
        self.seek(len(piece), os.SEEK_CUR)
        return len(piece)


def check_target(target: Target, name: str = "target") -> None:
    """Raise a TypeError for a target that cannot be written."""
    if isinstance(target, io.TextIOBase):
        raise ConfigError(f"{name}: opened in text mode", hint="open it in binary mode")
    if not isinstance(target, (str, os.PathLike)) and not hasattr(target, "write"):
        raise wrong(name, target, "a path or a file object in binary mode")


@contextlib.contextmanager
def writing(target: Target) -> Iterator[BinaryIO]:
    """Open a target. A path gets the content when it is complete, never a part of it. Pieces of zeros become holes."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    path = Path(target)
    for wrong_path, number in ((path.is_dir(), errno.EISDIR), (not path.parent.is_dir(), errno.ENOENT)):
        if wrong_path:
            raise OSError(number, os.strerror(number), str(path))
    part = path.with_name(f".fumehood-{secrets.token_hex(8)}")  # not longer for a long name
    try:
        with _Sparse(io.FileIO(part, "x")) as file:
            yield file
            file.truncate()  # a hole at the end
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
