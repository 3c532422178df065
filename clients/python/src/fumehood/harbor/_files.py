"""Copies of files and directories, as `docker cp` makes them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import tarfile
import tempfile
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from .. import AsyncService, FileInfo, NotDirectoryError, NotFoundError, NotRegularError, PermissionDeniedError

PARALLEL = 8  # files that are downloaded at a time


async def upload_file(to: AsyncService, source: Path, target: str) -> None:
    """Copy a file with its mode, into the target if that is a directory. Missing parents are made."""
    into = target.endswith("/")
    with contextlib.suppress(NotFoundError, NotDirectoryError):
        into = into or (await to.stat(f"{target}/.")).is_dir
    if into:
        target = f"{target.rstrip('/')}/{source.name}"
    mode = source.stat().st_mode & 0o7777  # noqa: ASYNC240
    await to.upload(source, target, mode=mode)
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


async def download_file(of: AsyncService, source: str, target: Path) -> None:
    """Copy a file, into the target if that is a directory. Missing parents are made."""
    if target.is_dir():  # noqa: ASYNC240
        target /= PurePosixPath(source).name
    target.parent.mkdir(parents=True, exist_ok=True)
    await of.download(source, target)
    if (info := await of.stat(source)).is_file:
        _set_mode(target, info)


async def download_dir(of: AsyncService, source: str, target: Path, log: logging.Logger) -> None:
    """Copy what a directory holds, over what the target holds.

    Left out, with a warning, are sockets, pipes and devices, what cannot be read, and links that are absolute or have
    `..`: so no link that code in the sandbox has made leads out of the target.
    """
    source = source.rstrip("/")
    target.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    files: list[FileInfo] = []
    async for info in of.walk(f"{source}/."):
        if not _stays(info.path):
            raise ValueError(f"download {source}: invalid path {info.path!r}")
        path = target / info.path
        if info.path == "." and not info.is_dir:
            raise info.error or NotDirectoryError(f"download {source}: not a directory")
        if info.is_dir:
            path.mkdir(exist_ok=True)
        elif info.is_file:
            files.append(info)
        elif info.type == "symlink" and _stays(info.target):
            path.unlink(missing_ok=True)
            path.symlink_to(info.target)
        else:
            log.warning("not downloaded: %s/%s: a %s: %s", source, info.path, info.type, info.error or info.target)
    slots = asyncio.Semaphore(PARALLEL)

    async def fetch(info: FileInfo) -> None:
        async with slots:
            try:
                await of.download(f"{source}/{info.path}", target / info.path)
                _set_mode(target / info.path, info)
            except (NotFoundError, NotRegularError, PermissionDeniedError) as e:
                log.warning("not downloaded: %s/%s: %s", source, info.path, e)

    for failure in await asyncio.gather(*map(fetch, files), return_exceptions=True):
        if failure:
            raise failure


def _stays(path: str) -> bool:
    """Report whether a relative path leads to something below its start."""
    return not path.startswith("/") and ".." not in path.split("/")


def _set_mode(path: Path, info: FileInfo) -> None:
    """Set the mode of a file that was copied. Its owner here may read and write it, others at most read it."""
    path.chmod(info.mode & 0o755 | 0o600)
