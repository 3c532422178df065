"""Folders that are copied into sandboxes and out of them, as archives that are never held as a whole."""

from __future__ import annotations

import contextlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from . import _tar
from ._copies import Copy, DownloadResult, OnProgress, Rules, SkipReason, UploadResult, leads_out
from ._core import Place
from ._errors import ConfigError, ConnectionLostError
from ._extraction import Extraction, LinkError
from ._files import PIECE
from ._values import AnyText, called, instance, to_path, to_text


class _Upload(Copy):
    """A folder of this machine as the pieces of an archive."""

    def __init__(self, source: Path, rules: Rules) -> None:
        super().__init__(f"upload {source}", rules)
        self._source = source
        os.scandir(source).close()  # fails if it is no folder

    def pieces(self) -> Iterator[bytes]:
        """Return the archive."""
        ready = bytearray()
        for part in self._parts():
            ready += part
            if len(ready) >= PIECE:
                yield bytes(ready)
                ready.clear()
        yield bytes(ready) + bytes(2 * _tar.BLOCK)

    def _parts(self) -> Iterator[bytes]:
        todo: list[tuple[str, ...]] = [()]
        while todo:
            names = todo.pop()
            folder = self._source.joinpath(*names)
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            for entry in entries:
                below = (*names, entry.name)
                if self._globs.match(below):
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    todo.append(below)
                yield from self._entry(Path(entry.path), below, status)

    def _entry(self, path: Path, names: tuple[str, ...], status: os.stat_result) -> Iterator[bytes]:
        shown = "/".join(names)
        head = tarfile.TarInfo(os.fsencode(shown).decode("utf-8", "surrogateescape"))
        head.mode, head.mtime = stat.S_IMODE(status.st_mode) & 0o777, max(int(status.st_mtime), 0)
        kind = _kind(status.st_mode)
        if kind:
            self._skip(shown, kind)
        elif stat.S_ISLNK(status.st_mode):
            target = os.fsencode(path.readlink())
            if leads_out(len(names) - 1, target):
                self._skip(shown, "link-leads-out")
                return
            head.type, head.linkname = tarfile.SYMTYPE, target.decode("utf-8", "surrogateescape")
            yield self._head(head, shown)
        elif stat.S_ISDIR(status.st_mode):
            head.type = tarfile.DIRTYPE
            yield self._head(head, shown)
        else:
            yield from self._file(path, head, shown)

    def _head(self, head: tarfile.TarInfo, shown: str) -> bytes:
        self._count(head.size)
        self._done(shown)
        return head.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")

    def _file(self, path: Path, head: tarfile.TarInfo, shown: str) -> Iterator[bytes]:
        # What has replaced the file meanwhile is not followed, and does not block.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, flags)) as file:
            status = os.fstat(file.fileno())
            if kind := _kind(status.st_mode):
                self._skip(shown, kind)
                return
            head.size = left = status.st_size
            yield self._head(head, shown)
            while left:
                piece = file.read(min(left, PIECE))
                if not piece:
                    raise ConfigError(f"upload {path}: it became shorter than {head.size} bytes while it was read")
                left -= len(piece)
                self._done_bytes += len(piece)
                yield piece
        yield bytes(-head.size % _tar.BLOCK)


def _kind(mode: int) -> SkipReason | None:
    """Return what a file is, unless it can be copied."""
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode):
        return None
    return "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"


async def upload_dir(
    at: Place, source: str | os.PathLike[str], path: AnyText, rules: Rules, progress: OnProgress | None
) -> UploadResult:
    """Copy a folder into a sandbox, see AsyncService.upload_dir."""
    called(progress, "progress")
    folder, make = to_text(path, "path"), partial(_Upload, Path(instance(source, (str, os.PathLike), "source")), rules)
    upload = await at.core.io.thread(make)
    await at.post("mkdir", {"path": folder, "parents": True}, repeat=True)
    request = at.request("PUT", "archive", path=to_path(path))
    request.content, request.pieces = "application/x-tar", upload.pieces()
    if progress:
        request.sent = lambda: progress(upload.progress)
    await at.core.call(request)
    return UploadResult(*upload.counts)


async def download_dir(
    at: Place, path: AnyText, target: str | os.PathLike[str], rules: Rules, progress: OnProgress | None
) -> DownloadResult:
    """Copy a folder out of a sandbox, see AsyncService.download_dir."""
    called(progress, "progress")
    source, folder = to_path(path), Path(instance(target, (str, os.PathLike), "target"))
    make = partial(Extraction, f"download {source}", folder, rules)
    try:
        return await _download(at, source, make, progress)
    except LinkError:
        return await _download(at, f"{source}/.", make, progress)


async def _download(
    at: Place, source: str, make: Callable[[], Extraction], progress: OnProgress | None
) -> DownloadResult:
    io = at.core.io
    request = at.request("GET", "archive", path=source, max_bytes=-1)  # bounded by the limits of the extraction
    with contextlib.closing(await at.core.open(request)) as answer:
        extraction = await io.made(make, Extraction.close)

        async def close() -> None:
            await io.thread(extraction.close)

        try:
            while piece := await answer.read():
                await io.thread(partial(extraction.feed, piece))
                if progress:
                    progress(extraction.progress)
            await io.thread(extraction.place)
        except ConnectionLostError as e:
            hint = "the service's user may lack the permission to read a file: as_user('root') may have it"
            raise type(e)(f"download {source}: {e.message}", hint=hint) from e
        finally:
            await io.shielded(close)
    return DownloadResult(*extraction.counts)
