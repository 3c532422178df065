"""Reads tar archives that code in a sandbox made, while they arrive.

It reads an allow-list: ustar headers and PAX records of bounded size, as the guest writes them. Everything else is a
ProtocolError. Names are bytes, and nothing about them is checked.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeVar

from ._errors import LimitError, ProtocolError

BLOCK = 512
MAX_RECORDS = 128 << 10  # bytes of PAX records of an entry: two paths, or the list of what was skipped
MAX_NAMES = 256 << 20  # bytes of PAX records of an archive
FILE, FOLDER, LINK = b"0", b"5", b"2"

T = TypeVar("T")
Reading = Generator[None, bytes, T]  # reads what is sent to it, and yields when it needs more

_OCTAL = re.compile(rb" *([0-7]*)[ \0]*")
_NUMBER = re.compile(rb"([0-9]{1,18})(?:\.[0-9]*)?")
_LENGTH = re.compile(rb"([1-9][0-9]{0,5}) ")


@dataclass
class Entry:
    """A header. size is that of the content, which follows."""

    type: bytes
    name: bytes
    link: bytes = b""
    mode: int = 0
    size: int = 0
    modified: int = 0  # seconds since 1970
    records: dict[bytes, bytes] = field(default_factory=dict)


class Archive:
    """An archive whose bytes arrive in pieces. All of a header must be read before its content."""

    def __init__(self) -> None:
        self._buffer = b""
        self._at = 0
        self._left = 0  # bytes of content that have not been read
        self._padding = 0  # bytes after them
        self._names = 0  # bytes of records so far

    def _more(self) -> Reading[None]:
        piece = yield
        if not piece:
            raise ProtocolError("archive: it ends early")
        self._buffer, self._at = self._buffer[self._at :] + piece, 0

    def _exactly(self, size: int) -> Reading[bytes]:
        while len(self._buffer) - self._at < size:
            yield from self._more()
        found = self._buffer[self._at : self._at + size]
        self._at += size
        return found

    def content(self) -> Reading[bytes]:
        """Return the next part of an entry's content, or none at its end."""
        if not self._left:
            return b""
        if self._at == len(self._buffer):
            yield from self._more()
        found = self._buffer[self._at : self._at + self._left]
        self._at += len(found)
        self._left -= len(found)
        return found

    def next(self) -> Reading[Entry | None]:
        """Return the next entry, or None at the end. The rest of the content before it is skipped."""
        while (yield from self.content()):
            pass
        yield from self._exactly(self._padding)
        self._padding = 0
        block = yield from self._exactly(BLOCK)
        if not block.strip(b"\0"):
            return None
        records: dict[bytes, bytes] = {}
        entry = _header(block)
        if entry.type == b"x":
            self._names += entry.size
            if entry.size > MAX_RECORDS or self._names > MAX_NAMES:
                raise LimitError(f"archive: more than {MAX_RECORDS} bytes of a name, or {MAX_NAMES} of all names")
            records = _records((yield from self._exactly(entry.size)))
            yield from self._exactly(-entry.size % BLOCK)
            entry = _header((yield from self._exactly(BLOCK)))
        if entry.type in (b"x", b"g", b"L", b"K", b"S") or any(key.startswith(b"GNU.sparse.") for key in records):
            raise ProtocolError("archive: it has headers that are not expected")
        _apply(entry, records)
        if entry.type not in (FILE, FOLDER, LINK):
            entry.size = 0  # what has no content may have a size
        self._left, self._padding = entry.size, -entry.size % BLOCK
        return entry


def _header(block: bytes) -> Entry:
    checksum = _octal(block[148:156])
    if checksum != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise ProtocolError("archive: a header has another checksum")
    name, prefix = _text(block[:100]), _text(block[345:500])
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return Entry(
        FILE if block[156:157] == b"\0" else block[156:157],
        name,
        _text(block[157:257]),
        _octal(block[100:108]),
        _octal(block[124:136]),
        _octal(block[136:148]),
    )


def _apply(entry: Entry, records: dict[bytes, bytes]) -> None:
    entry.records = records
    entry.name = records.get(b"path", entry.name)
    entry.link = records.get(b"linkpath", entry.link)
    if b"size" in records:
        entry.size = _decimal(records[b"size"])
    if b"mtime" in records:
        before = records[b"mtime"].startswith(b"-")
        entry.modified = 0 if before else _decimal(records[b"mtime"])
    if entry.type in (FOLDER, LINK) and entry.size:
        raise ProtocolError("archive: a folder or a link has content")


def _text(data: bytes) -> bytes:
    return data.partition(b"\0")[0]


def _decimal(data: bytes) -> int:
    match = _NUMBER.fullmatch(data)
    if not match:
        raise ProtocolError(f"archive: invalid number {data[:40]!r}")
    return int(match[1])


def _octal(data: bytes) -> int:
    match = _OCTAL.fullmatch(data)
    if not match:
        raise ProtocolError(f"archive: invalid number {data!r}")
    return int(match[1] or b"0", 8)


def _records(data: bytes) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        match = _LENGTH.match(data, at)
        end = at + int(match[1]) if match else 0
        key, equals, value = data[match.end() : end - 1].partition(b"=") if match else (b"", b"", b"")
        if not equals or data[end - 1 : end] != b"\n":
            raise ProtocolError("archive: invalid PAX records")
        found[key], at = value, end
    return found
