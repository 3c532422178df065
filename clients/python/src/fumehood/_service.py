"""Sandboxes and their services: commands and files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import _folders
from ._calls import Request, decode
from ._command import CommandOptions, command_of, time_limit
from ._copies import DownloadResult, FolderProgress, Rules, UploadResult
from ._core import Handle, Place
from ._errors import ConfigError, IsDirectoryError
from ._files import Content, Source, Target, content, reading
from ._forward import AsyncForward, AsyncPortStream, open_stream, request_of
from ._io import deadline_of
from ._journal import AsyncJournal
from ._process import AsyncProcess, AsyncStream, AsyncWalk
from ._types import (
    JSON,
    AnyText,
    ConnectInfo,
    FileInfo,
    ProcessInfo,
    Result,
    SandboxInfo,
    ServiceInfo,
    parse_all,
    to_path,
    to_text,
    without_zeros,
)
from ._values import Duration, Size, file_mode, flag, integer, limit, size, text, whole

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncService:
    """One service of a sandbox, in which commands run and files are stored.

    Commands never raise because of how a program ended: see Result. Paths that are not absolute are below the service's
    directory.
    """

    def __init__(self, sandbox: Place, info: ServiceInfo, user: str = "") -> None:
        self._core = sandbox.core
        self._sandbox = sandbox
        self._at = Place(
            sandbox.core, sandbox.lease, sandbox.path, {"service": info.name, "user": user}, sandbox.handle
        )
        self.service_info = info
        self.name = info.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sandbox.path.rpartition('/')[2]}/{self.service_info.name}>"

    async def run(self, args: Sequence[AnyText], **options: Unpack[CommandOptions]) -> Result:
        """Run a command to its end, at most once, and return how it ended.

        args are the program and its arguments, without a shell: text, bytes or paths. In text, lone surrogates stand
        for bytes that are not UTF-8, as of os.fsdecode. Options:

        - stdin: bytes, text, a Path or a file object. None is an empty standard input.
        - env, cwd, user: added variables, working directory, and "name", "uid", "name:group" or "uid:gid".
        - timeout: seconds after which the command is killed. Its outcome is then "timed-out". Times may be texts, such
          as "1m30s", and sizes too, such as "64MiB".
        - cpu_time: seconds of processor time, of the command and all its descendants together, after which the
          command is killed. Its outcome is then "cpu-time-exceeded".
        - grace: seconds between SIGTERM and SIGKILL; by default 1.
        - stdout_cap, stderr_cap: how many bytes of a stream the result keeps, of its end. 0 means 10 MiB, -1 none.
        - kill_rest: kill the processes that the program leaves behind.
        - rlimits: limits of the kernel for each process.
        - via_engine: run it without the help of a process in the sandbox. It is slower.
        - tty, rows, cols, term: give it a terminal. Both streams then arrive as stdout.

        If the call is interrupted or canceled, the command is killed.
        """
        return Result.parse(await self._at.run("run", command_of(args, options)))

    async def start(
        self,
        args: Sequence[AnyText],
        *,
        stdin_open: bool = False,
        events: bool = False,
        detach: bool = False,
        **options: Unpack[CommandOptions],
    ) -> AsyncProcess:
        """Start a command and return while it runs. The options are those of run.

        stdin_open leaves its standard input open for write and close_stdin. events announces a call of the process's
        events: until then, for 5 seconds at most, the command waits rather than lose output. Without it and without
        a reader, output never stops a command. A command with detach runs on after the client is closed, if the
        sandbox is kept.
        """
        return await self._start(command_of(args, options, stdin_open=stdin_open, events=events, detach=detach))

    async def _start(self, started: JSON) -> AsyncProcess:
        return AsyncProcess(self._sandbox, ProcessInfo.parse(await self._at.run("processes", started)))

    def stream(self, args: Sequence[AnyText], **options: Unpack[CommandOptions]) -> AsyncStream:
        """Run a command and iterate over its output as it arrives, and finally its end. The options are those of run.

        Use it as a context manager, or iterate to the end: leaving it early kills the command.
        """
        started = command_of(args, options, events=True)
        return AsyncStream(lambda: self._start(started))

    async def processes(self) -> list[AsyncProcess]:
        """List the service's commands that were started."""
        found = await self._sandbox.get("processes", service=self.service_info.name)
        return [AsyncProcess(self._sandbox, info) for info in parse_all(ProcessInfo, found.get("processes"))]

    async def kill_all(self) -> None:
        """Kill everything that the service's commands run, of every user, and what ended commands left behind.

        It spares the service's own program, and other services. It returns when the processes are gone. The commands
        then end as "signaled", with the reason "killed by the caller". A PermissionDeniedError states how many
        processes could not be killed.
        """
        await self._at.post("kill-all", {})

    async def read(self, path: AnyText, *, offset: int = 0, length: Size | None = None) -> bytes:
        """Return the content of a regular file, or length bytes of it from an offset on."""
        part = {"offset": integer(offset, "offset"), "length": None if length is None else size(length, "length")}
        return await self._core.call(self._at.request("GET", "file", path=to_path(path), **part))

    async def read_text(self, path: AnyText, *, errors: str = "strict") -> str:
        """Return the content of a file in UTF-8. Ends of lines stay as they are."""
        text(errors, "errors")
        return (await self.read(path)).decode("utf-8", errors)

    async def write(
        self, path: AnyText, data: Content, *, mode: int = 0, owner: str = "", atomic: bool = False
    ) -> None:
        """Create or replace a file, and create missing directories above it. Text is written in UTF-8.

        data is bytes, text or a file object, which is read into memory: upload does not do that.

        mode is that of a new file, by default 0o644. atomic replaces the file as a whole, or not at all.
        """
        request = self._write(path, mode, owner, atomic)
        request.body, request.repeat = await self._core.io.thread(lambda: content(data)), True
        await self._core.call(request)

    async def upload(
        self, source: Source, path: AnyText, *, mode: int = 0, owner: str = "", atomic: bool = False
    ) -> UploadResult:
        """Write a file from a path of this machine or a file object. A folder is copied as by upload_dir."""
        if isinstance(source, (str, os.PathLike)) and await self._core.io.thread(Path(source).is_dir):
            if mode or owner or atomic:
                raise ConfigError("upload: mode, owner and atomic are for files, and the source is a folder")
            return await self.upload_dir(source, path)
        request = self._write(path, mode, owner, atomic)
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)
        return UploadResult(1, request.total)

    async def upload_dir(
        self,
        source: str | os.PathLike[str],
        path: AnyText,
        *,
        exclude: Sequence[str] = (),
        progress: Callable[[FolderProgress], object] | None = None,
        max_entries: int = 0,
        max_bytes: Size = 0,
    ) -> UploadResult:
        """Copy what is in a folder of this machine into a folder of the sandbox, which is made if it is missing.

        Files there are replaced, others stay. What is copied belongs to the service's user. Permissions are kept,
        set-id and sticky bits are not. Links are kept if they cannot lead out of the folder. Other links, pipes,
        sockets and devices are skipped: the result lists them. A file that cannot be read is an error. After an error,
        what was copied so far stays.

        - exclude: globs as of environment specs, relative to the folder: "build", "**/*.pyc", "{a,b}/[!x]?". A folder
          that matches is left out with everything in it.
        - progress: called with a FolderProgress while the folder is sent.
        - max_entries: more files, folders and links are a LimitError. 0 means a million, -1 no limit.
        - max_bytes: more bytes in files, holes included, are a TooLargeError. 0 means 10 GiB, -1 no limit. The server
          has a limit of its own, by default 4 GiB.
        """
        return await _folders.upload_dir(self._at, source, path, Rules(exclude, max_entries, max_bytes), progress)

    def _write(self, path: AnyText, mode: int, owner: str, atomic: bool) -> Request:
        options = {
            "mode": file_mode(mode, "mode") or None,
            "owner": text(owner, "owner"),
            "atomic": flag(atomic, "atomic"),
        }
        request = self._at.request("PUT", "file", path=to_path(path), **options)
        request.content = "application/octet-stream"
        return request

    async def download(self, path: AnyText, target: Target, *, max_bytes: Size = 0) -> DownloadResult:
        """Read a file into a path of this machine, where it appears when it is complete, or into a file object.

        If there is a folder in the sandbox, it is copied to the path as by download_dir.

        A file of more than max_bytes, holes included, is a TooLargeError. 0 means 10 GiB, -1 no limit. Large holes of
        the file are holes in the copy at a path.
        """
        most = limit(max_bytes, "max_bytes")
        request = self._at.request("GET", "file", path=to_path(path), max_bytes=most or None)
        try:
            return DownloadResult(1, await self._core.save(request, target, most))
        except IsDirectoryError:
            if not isinstance(target, (str, os.PathLike)):
                raise
        return await self.download_dir(path, target, max_bytes=most)

    async def download_dir(
        self,
        path: AnyText,
        target: str | os.PathLike[str],
        *,
        exclude: Sequence[str] = (),
        progress: Callable[[FolderProgress], object] | None = None,
        max_entries: int = 0,
        max_bytes: Size = 0,
    ) -> DownloadResult:
        """Copy a folder of the sandbox to a path of this machine, where it appears when it is complete.

        The target must not exist, or be an empty folder, which is replaced. The sandbox decides what is in the folder,
        so nothing is written outside the target or through a link, and nothing replaces something else. Links that may
        lead out, pipes, sockets, devices, names that this machine does not have or takes for another one's, and what is
        more than 100 folders deep are skipped: the result lists them, and files that became shorter meanwhile. A file
        that the service's user cannot read is an error, after which nothing is left.

        Permissions are kept, set-id and sticky bits are not, and the owner may always read and remove what is copied.
        Large holes stay holes. The options are those of upload_dir. What is excluded crosses the connection, and
        counts for the limits. It is not among what is skipped.
        """
        return await _folders.download_dir(self._at, path, target, Rules(exclude, max_entries, max_bytes), progress)

    async def put_archive(self, directory: AnyText, source: Source) -> None:
        """Extract a tar archive, from a path of this machine or a file object, into an existing directory."""
        request = self._at.request("PUT", "archive", path=to_path(directory, "directory"))
        request.content = "application/x-tar"
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    async def get_archive(self, path: AnyText, target: Target, *, max_bytes: Size = 0) -> None:
        """Read a file or tree as a tar archive. The sandbox made it: trust no name and no link in it.

        Pipes, sockets and devices are left out. download_dir extracts such an archive safely.

        An archive of more than max_bytes is a TooLargeError. 0 means 10 GiB, -1 no limit.
        """
        most = limit(max_bytes, "max_bytes")  # counted here, for a clear error
        request = self._at.request("GET", "archive", path=to_path(path), max_bytes=-1)
        await self._core.save(request, target, most)

    async def stat(self, path: AnyText) -> FileInfo:
        """Describe a file. A link at the path is not followed."""
        return FileInfo.parse(await self._at.get("stat", path=to_path(path)))

    async def listdir(self, path: AnyText = ".") -> list[FileInfo]:
        """Describe the entries of a directory, sorted by name."""
        found = await self._at.get("list", path=to_path(path))
        return parse_all(FileInfo, found.get("files"))

    def walk(self, path: AnyText = ".") -> AsyncWalk:
        """Iterate over a path and everything below it: a directory before its entries, which are sorted by name.

        Links are not followed. What cannot be described or read has an error, and the iteration goes on.
        """
        return AsyncWalk(self._core, self._at.request("GET", "walk", path=to_path(path)))

    async def mkdir(self, path: AnyText, *, mode: int = 0, parents: bool = False, owner: str = "") -> None:
        """Create a directory. With parents, missing ones are created and an existing one is no error.

        What is created belongs to the owner, which only root can set.
        """
        options = {
            "mode": file_mode(mode, "mode", 0o7777),
            "parents": flag(parents, "parents"),
            "owner": text(owner, "owner"),
        }
        await self._at.post("mkdir", without_zeros(path=to_text(path, "path"), **options))

    async def remove(self, path: AnyText, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory or, with recursive, a tree."""
        await self._at.post("remove", without_zeros(path=to_text(path, "path"), recursive=flag(recursive, "recursive")))

    async def rename(self, path: AnyText, to: AnyText) -> None:
        """Move a file or directory. It replaces a file, or an empty directory."""
        await self._at.post("rename", without_zeros(path=to_text(path, "path"), to=to_text(to, "to")))

    async def chmod(self, path: AnyText, mode: int) -> None:
        """Set the permission, set-id and sticky bits of a file. A link at the path is followed."""
        await self._at.post("chmod", {"path": to_text(path, "path"), "mode": file_mode(mode, "mode", 0o7777)})

    async def connection(self) -> ConnectInfo:
        """Describe how a person connects to the service."""
        return ConnectInfo.parse(await self._at.get("connection"))

    async def open_port(self, sandbox_port: int, *, timeout: Duration | None = None) -> AsyncPortStream:
        """Open a stream to a TCP port of the service, from the inside: the sandbox needs no network.

        A port at which no program listens is an UnavailableError. timeout limits the opening.
        """
        request = request_of(self._sandbox, self.service_info.name, sandbox_port)
        return await open_stream(self._core, request, sandbox_port, deadline_of(timeout))

    def forward(self, sandbox_port: int, *, host: str = "127.0.0.1", port: int = 0) -> AsyncForward:
        """Return a context manager that listens on this machine and leads to a port of the service, from the inside.

        The sandbox needs no network. It listens at host, on port or, if that is 0, on a free port. It ends with the
        sandbox and with the client, too. Only programs of this machine reach 127.0.0.1.
        """
        return AsyncForward(self._sandbox, self.service_info.name, sandbox_port, host, port)

    def as_user(self, user: str) -> AsyncService:
        """Return the same service for another of its users, for commands and files."""
        return AsyncService(self._sandbox, self.service_info, text(user, "user"))


class AsyncSandbox(AsyncService):
    """A sandbox, and its default service. As a context manager it is removed at the end, unless it is kept."""

    _started = False  # by this client, with this object as its first handle

    def __init__(self, place: Place, found: JSON, started: bool = False) -> None:
        info = SandboxInfo.parse(found)
        super().__init__(
            place.below("sandboxes", info.id, Handle(f"sandbox {info.name}")),
            info.services[0] if info.services else ServiceInfo("default"),
        )
        self.info = info
        self.name = info.name
        if started and not info.kept:
            self._started = True
            self._core.unclosed.add(self._sandbox.path)

    def __del__(self) -> None:
        if self._started:
            self._sandbox.warn(f"sandbox {self.name}")

    def disown(self) -> None:
        """Leave the sandbox to its client, so that no warning comes when nobody refers to this object any longer."""
        self._started = False

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.info.kept:
            await self._core.io.shielded(self.close)

    def service(self, name: str) -> AsyncService:
        """Return a service of the sandbox."""
        text(name, "name")
        for info in self.info.services:
            if info.name == name:
                return AsyncService(self._sandbox, info)
        names = ", ".join(info.name for info in self.info.services)
        raise ConfigError(f"service: none is named {name!r}", hint=f"there are {names}")

    async def close(self) -> None:
        """Kill everything that runs in the sandbox and remove it, also a kept one. It may be called again."""
        await self._sandbox.end()

    def journal(self, *, after: int = 0, limit: int = 0) -> AsyncJournal:
        """Iterate over the entries of the sandbox's journal, if it was started with journal=True.

        after is the number of the last entry that is already known, and limit the largest number of entries; 0 means
        all. The newest 8 MiB are held. The journal can be read also when the sandbox is closed, until its client is.
        """
        part = {"after": whole(after, "after") or None, "limit": whole(limit, "limit") or None}
        return AsyncJournal(self._core, replace(self._sandbox, handle=None).request("GET", "journal", **part))

    async def renew(self, ttl: Duration) -> None:
        """Let a kept sandbox stay for ttl, in seconds, from now on, if that is longer than before."""
        renewed = await self._sandbox.post("renew", {"ttl_ms": time_limit(ttl, "ttl")}, repeat=True)
        self.info = SandboxInfo.parse(decode(renewed))

    async def logs(self) -> bytes:
        """Return what the main program of a kept sandbox has written."""
        return await self._core.call(self._at.request("GET", "logs"))
