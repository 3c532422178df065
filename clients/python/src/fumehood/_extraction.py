"""Writes a folder that came out of a sandbox, and is not trusted.

It goes into a new folder that nobody else can enter, below descriptors of folders, and never over something or through
a link.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from . import _tar
from ._copies import Copy, Rules, SkipReason, leads_out
from ._errors import ConfigError, ExistsError, NotDirectoryError, ProtocolError, UnsupportedError

MAX_DEPTH = 100  # folders below each other; so many are open at once
MAX_NAME = 255  # bytes of a name
_MAX_AFTER = 64 << 10  # bytes of padding after an archive
_HOLE = 64 << 10
_ZEROS = bytes(_HOLE)
_RECORD = b"FUMEHOOD.skipped"


class LinkError(NotDirectoryError):
    """What is to be copied is a link."""


@dataclass
class _Folder:
    """A folder that is open, and what it gets when it is complete; None for one that has it."""

    name: bytes
    fd: int
    entry: _tar.Entry | None

    def close(self) -> None:
        try:
            if self.entry:
                _finish(self.fd, self.entry, 0o700)
        finally:
            os.close(self.fd)


def _finish(fd: int, entry: _tar.Entry, least: int) -> None:
    """Set the mode and time of a file or folder that has been written."""
    os.fchmod(fd, entry.mode & 0o777 | least)
    if 0 < entry.modified < 1 << 33:  # others are no time, or one that file systems do not have
        os.utime(fd, (entry.modified, entry.modified))


def _write(fd: int, piece: bytes) -> None:
    """Write content. Blocks of zeros become holes, of which the last needs a truncate."""
    for at in range(0, len(piece), _HOLE):
        block = piece[at : at + _HOLE]
        if _ZEROS.startswith(block):
            os.lseek(fd, len(block), os.SEEK_CUR)
            continue
        while block:
            block = block[os.write(fd, block) :]


# Errors of a name: the file system does not have such names, or has one that it takes for the same.
_REASONS: dict[int, SkipReason] = {
    errno.EEXIST: "exists",
    errno.ENOENT: "no-folder",
    errno.ENOTDIR: "no-folder",
    errno.ELOOP: "no-folder",
    errno.ENAMETOOLONG: "invalid-name",
    errno.EILSEQ: "invalid-name",
    errno.EINVAL: "invalid-name",
}


_SPECIAL: dict[bytes, SkipReason] = {b"1": "hard-link", b"6": "pipe"}


class Extraction(Copy):
    """Writes an archive, which is fed to it, into a folder, which appears when it is complete.

    It has one owner, but a task that is canceled may close it while a thread feeds it.
    """

    def __init__(self, what: str, target: Path, rules: Rules) -> None:
        super().__init__(what, rules)
        if not {os.open, os.mkdir, os.symlink} <= os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise UnsupportedError(f"{what}: this operating system has no way to write untrusted names safely")
        self._target = Path(os.path.realpath(target))
        _check_target(self._target)
        self._part = Path(tempfile.mkdtemp(prefix=".fumehood-", dir=self._target.parent))  # only this user can enter it
        self._lock = threading.Lock()
        try:
            self._root = os.open(self._part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            self._part.rmdir()
            raise
        self._top: _tar.Entry | None = None
        self._prefix = b""
        self._open: list[_Folder] = []  # each in the one before
        self._archive = _tar.Archive()
        self._extraction = self._extract()
        self._closed = self._ended = False
        self._after = 0  # bytes after the end
        next(self._extraction)

    def feed(self, piece: bytes) -> None:
        """Write the next bytes of the archive; none stand for its end."""
        with self._lock:
            if self._closed:
                return
            if self._ended:
                self._after += len(piece)
                if self._after > _MAX_AFTER:
                    raise ProtocolError("archive: more follows its end")
                return
            try:
                self._extraction.send(piece)
            except StopIteration:
                self._ended = True

    def place(self) -> None:
        """Move the complete folder to its place."""
        self.feed(b"")
        with self._lock:
            if self._closed or not self._top:
                return
            try:
                self._part.rename(self._target)
            except OSError as e:
                if e.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    _check_target(self._target)
                raise
            self._part = self._target
            _finish(self._root, self._top, 0o700)

    def close(self) -> None:
        """Remove what is not in its place."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._extraction.close()
            try:
                while self._open:
                    self._open.pop().close()
            finally:
                os.close(self._root)
                if self._part != self._target:
                    shutil.rmtree(self._part)

    def _extract(self) -> _tar.Reading[None]:
        listed = False  # the folder has come again, with what the guest has left out
        while entry := (yield from self._archive.next()):
            if self._top is None:
                self._begin(entry)
                continue
            if _RECORD in entry.records:
                self._left_out(entry.records[_RECORD])
                if not listed and not entry.size and entry.name.rstrip(b"/") == self._top.name.rstrip(b"/"):
                    listed = True
                    continue
            self._count(entry.size)
            shown = entry.name.removeprefix(self._prefix).rstrip(b"/").decode("utf-8", "surrogateescape")
            names = entry.name.removeprefix(self._prefix).rstrip(b"/").split(b"/")
            if reason := self._unusable(entry, names):
                self._skip(shown, reason)
            elif not self._globs.match(shown.split("/")):
                yield from self._write_entry(entry, names, shown)
        while self._open:
            self._open.pop().close()
        if self._top is None:
            raise ProtocolError("archive: it is empty")

    def _begin(self, entry: _tar.Entry) -> None:
        """Read the entry of the folder that is copied."""
        if entry.type != _tar.FOLDER:
            kind = LinkError if entry.type == _tar.LINK else NotDirectoryError
            raise kind(f"{self._what}: not a directory", hint="download copies files")
        self._top = entry
        top = entry.name.rstrip(b"/")
        self._prefix = b"" if top in (b"", b".") else top + b"/"

    def _left_out(self, record: bytes) -> None:
        """Add what the guest says it has left out."""
        count, *files = record.split(b"\0")
        for kind, _, path in (each.partition(b" ") for each in files):
            if path and kind in (b"pipe", b"socket", b"device", b"too-deep", b"changed"):
                reason = cast(SkipReason, kind.decode())
                shown = path.decode("utf-8", "surrogateescape")
                if not self._globs.match(shown.split("/")):
                    self._skip(shown, reason)
        if count.isdigit() and len(count) < 10:
            self._skipped_count += max(0, int(count) - len(files))

    def _unusable(self, entry: _tar.Entry, names: list[bytes]) -> SkipReason | None:
        if not entry.name.startswith(self._prefix) or any(
            name in (b"", b".", b"..") or b"\0" in name or len(name) > MAX_NAME for name in names
        ):
            return "invalid-name"
        if len(names) > MAX_DEPTH:
            return "too-deep"
        if entry.type == _tar.LINK and leads_out(len(names) - 1, entry.link):
            return "link-leads-out"
        if entry.type in (_tar.FILE, _tar.FOLDER, _tar.LINK):
            return None
        return _SPECIAL.get(entry.type, "device")

    def _write_entry(self, entry: _tar.Entry, names: list[bytes], shown: str) -> _tar.Reading[None]:
        try:
            folder, name = self._enter(names[:-1]), names[-1]
            if entry.type == _tar.FOLDER:
                os.mkdir(name, 0o700, dir_fd=folder)
                self._open.append(self._opened(name, entry))
            elif entry.type == _tar.LINK:
                os.symlink(entry.link, name, dir_fd=folder)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                fd = os.open(name, flags, 0o600, dir_fd=folder)
        except OSError as e:
            if reason := _REASONS.get(e.errno or 0):
                self._skip(shown, reason)
                return
            raise
        self._done(shown)
        if entry.type != _tar.FILE:
            return
        try:
            while piece := (yield from self._archive.content()):
                _write(fd, piece)
                self._done_bytes += len(piece)
            os.ftruncate(fd, entry.size)  # a hole at the end
            _finish(fd, entry, 0o400)
        finally:
            os.close(fd)

    def _enter(self, names: list[bytes]) -> int:
        """Return the descriptor of a folder that has been made. None above it may be a link."""
        same = 0
        while same < min(len(names), len(self._open)) and names[same] == self._open[same].name:
            same += 1
        while len(self._open) > same:
            self._open.pop().close()
        for name in names[same:]:
            self._open.append(self._opened(name, None))
        return self._here

    def _opened(self, name: bytes, entry: _tar.Entry | None) -> _Folder:
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self._here)
        return _Folder(name, fd, entry)

    @property
    def _here(self) -> int:
        return self._open[-1].fd if self._open else self._root


def _check_target(target: Path) -> None:
    if not os.path.lexists(target):
        return
    if not target.is_dir() or any(target.iterdir()):
        raise ExistsError(
            f"download to {target}: it exists", path=str(target), hint="name a new folder, or an empty one"
        )
    if target.samefile(os.curdir):
        raise ConfigError(f"download to {target}: it is the working directory, and would be replaced")
