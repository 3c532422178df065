"""Copies of files and directories, as `docker cp` makes them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from .. import (
    AsyncService,
    FileInfo,
    FumehoodError,
    InfrastructureError,
    LimitError,
    NotDirectoryError,
    NotFoundError,
    _adapter,
)

PARALLEL = 8  # files that are downloaded at a time
MAX_BYTES, MAX_ENTRIES = 10 << 30, 1_000_000  # of a download, unless the options set others
PROBE = 64 << 10  # bytes that a disk has left if it is not full
MAX_WARNINGS = 100  # of one download
MAX_DEPTH = 100  # directories below each other: programs that read the copy may recurse

# What a file of a sandbox does not cause: this machine's disk is full or fails, or there are too many open files.
_OURS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE}


async def upload_file(to: AsyncService, source: Path, target: str) -> None:
    """Copy a file with its mode, into the target if that is a directory. Missing parents are made."""
    into = target.endswith("/")
    with contextlib.suppress(NotFoundError, NotDirectoryError):
        into = into or (await to.stat(f"{target}/.")).is_dir
    if into:
        target = f"{target.rstrip('/')}/{source.name}"
    mode = source.stat().st_mode & 0o7777  # noqa: ASYNC240
    await _adapter.upload_file(to, source, target, mode=mode)
    await to.chmod(target, mode)  # of a file that was there


async def upload_dir(to: AsyncService, source: Path, target: str) -> None:
    """Copy what a directory holds, links as links. Everything belongs to root."""
    await to.mkdir(target, parents=True)
    with tempfile.TemporaryFile() as archive:
        await asyncio.to_thread(_pack, source, archive)
        archive.seek(0)
        await to.put_archive(target, archive)


def _pack(source: Path, archive: BinaryIO) -> None:
    def of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(fileobj=archive, mode="w") as tar:
        for each in sorted(source.iterdir()):
            tar.add(each, arcname=each.name, filter=of_root)


async def is_full(of: AsyncService, directory: str) -> bool:
    """Report whether a small file does not fit into a directory, because the service's own disk is full."""
    if not of.service_info.disk:  # the daemon's disk, which others fill too
        return False
    probe = f"{directory.rstrip('/')}/.fumehood-{secrets.token_hex(8)}"
    try:
        await of.write(probe, bytes(PROBE))
    except LimitError:
        return True
    except FumehoodError:
        return False
    finally:
        with contextlib.suppress(FumehoodError):
            await of.remove(probe)
    return False


async def download_file(of: AsyncService, source: str, target: Path, max_bytes: int = 0) -> None:
    """Copy a file, into the target if that is a directory. Missing parents are made."""
    if target.is_dir():  # noqa: ASYNC240
        target /= PurePosixPath(source).name
    target.parent.mkdir(parents=True, exist_ok=True)
    await _adapter.download_file(of, source, target, max_bytes=max_bytes)
    if (info := await of.stat(source)).is_file:
        _set_mode(target, info)


class Room:
    """What is left of the limits of a download. -1 means no limit."""

    def __init__(self, max_bytes: int, max_entries: int) -> None:
        self._bytes = max_bytes or MAX_BYTES
        self._entries = max_entries or MAX_ENTRIES

    def enter(self, info: FileInfo) -> str:
        """Count an entry. Return why it does not fit, or an empty text."""
        if self._entries >= 0:
            if self._entries == 0:
                return "more entries than max_download_entries"
            self._entries -= 1
        if info.path.count("/") >= MAX_DEPTH:
            return f"more than {MAX_DEPTH} directories below each other"
        if info.is_file and self._bytes >= 0:
            if info.size > self._bytes:
                return "more bytes than max_download_bytes, holes included"
            self._bytes -= info.size
        return ""

    def most(self, info: FileInfo) -> int:
        """Return the most bytes that a file which was counted may have by now: others grow at the same time."""
        return info.size + self._bytes // PARALLEL or 1 if self._bytes >= 0 else -1

    def grown(self, info: FileInfo, size: int) -> None:
        """Count what a file has grown by since it was counted."""
        if self._bytes >= 0:
            self._bytes = max(0, self._bytes - max(0, size - info.size))


async def download_dir(
    of: AsyncService, source: str, target: Path, log: logging.Logger, max_bytes: int = 0, max_entries: int = 0
) -> None:
    """Copy what a directory holds, over what the target holds.

    Left out, with a warning, are sockets, pipes and devices, what cannot be read, links that are absolute or have `..`,
    what this machine cannot hold, such as too long a path, and what exceeds a limit. So no link that code in the
    sandbox has made leads out of the target, and none of its files ends a trial.
    """
    source = source.rstrip("/")
    target.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    room, files, left_out = Room(max_bytes, max_entries), list[FileInfo](), 0

    def leave_out(info: FileInfo, why: object) -> None:
        nonlocal left_out
        left_out += 1
        if left_out <= MAX_WARNINGS:
            log.warning("not downloaded: %s/%s: %s", source, info.path, why)

    async for info in of.walk(f"{source}/."):
        if not _stays(info.path):
            raise ValueError(f"download {source}: invalid path {info.path!r}")
        path = target / info.path
        if info.path == "." and not info.is_dir:
            raise info.error or NotDirectoryError(f"download {source}: not a directory")
        try:
            if why := room.enter(info):
                leave_out(info, why)
                if "max_download_entries" in why:
                    break
            elif info.is_dir:
                path.mkdir(exist_ok=True)
            elif info.is_file:
                files.append(info)
            elif info.type == "symlink" and _stays(info.target):
                path.unlink(missing_ok=True)
                path.symlink_to(info.target)
            else:
                leave_out(info, f"a {info.type}: {info.error or info.target}")
        except OSError as e:
            leave_out(info, _of_file(e))
    slots = asyncio.Semaphore(PARALLEL)

    async def fetch(info: FileInfo) -> None:
        async with slots:
            try:
                path = target / info.path
                await _adapter.download_file(of, f"{source}/{info.path}", path, max_bytes=room.most(info))
                _set_mode(path, info)
                room.grown(info, path.stat().st_size)
            except (LimitError, OSError) as e:
                leave_out(info, _of_file(e))

    for failure in await asyncio.gather(*map(fetch, files), return_exceptions=True):
        if failure:
            raise failure
    if left_out > MAX_WARNINGS:
        log.warning("not downloaded from %s: %d more", source, left_out - MAX_WARNINGS)


def _of_file(error: LimitError | OSError) -> LimitError | OSError:
    """Return an error that is about a file, and raise one that is about this machine or the sandbox."""
    if isinstance(error, InfrastructureError) or (isinstance(error, OSError) and error.errno in _OURS):
        raise error
    return error


def _stays(path: str) -> bool:
    """Report whether a relative path leads to something below its start."""
    return not path.startswith("/") and ".." not in path.split("/")


def _set_mode(path: Path, info: FileInfo) -> None:
    """Set the mode of a file that was copied. Its owner here may read and write it, others at most read it."""
    path.chmod(info.mode & 0o755 | 0o600)
