"""Sandboxes and their services: commands and files."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

from ._calls import Request, decode
from ._core import Place
from ._errors import ConfigError
from ._files import Content, Source, Target, content, read_all, reading
from ._process import AsyncProcess, AsyncStream, AsyncWalk
from ._types import (
    JSON,
    AnyText,
    ConnectInfo,
    FileInfo,
    ProcessInfo,
    Result,
    Rlimits,
    SandboxInfo,
    ServiceInfo,
    Variables,
    millis,
    parse_all,
    to_path,
    to_text,
    to_variables,
    without_zeros,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


Stdin = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO


class CommandOptions(TypedDict, total=False):
    """The options of a command, see AsyncService.run."""

    stdin: Stdin | None
    env: Variables | None
    cwd: AnyText
    user: str
    timeout: float | None
    cpu_time: float | None
    grace: float | None
    stdout_cap: int
    stderr_cap: int
    kill_rest: bool
    rlimits: Rlimits | None
    via_engine: bool
    tty: bool
    rows: int
    cols: int
    term: str


def known(kind: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a TypedDict, of which none may be unknown."""
    if unknown := set(options) - set(kind.__annotations__):
        raise TypeError(f"unknown options: {', '.join(sorted(unknown))}")
    return dict(options)


def time_limit(seconds: float | None, name: str = "timeout") -> float:
    """Return a limit of a command in milliseconds; 0 is none."""
    if seconds is not None and seconds <= 0:
        raise ConfigError(f"command: its {name} is not positive")
    return millis(seconds or 0)


def command(args: Sequence[AnyText], options: CommandOptions, **more: Any) -> JSON:
    """Return a command as the server's JSON."""
    if isinstance(args, (str, bytes)):
        raise ConfigError("command: a text in the place of a list", hint='run ["sh", "-c", text] for a shell')
    words = [to_text(each) for each in args]
    if not options and not more:
        return {"args": words}
    rest = {**known(CommandOptions, options), **more}
    stdin, timeout, cpu_time, grace = (rest.pop(name, None) for name in ("stdin", "timeout", "cpu_time", "grace"))
    return without_zeros(
        args=words,
        dir=to_text(rest.pop("cwd", "")),
        env=to_variables(rest.pop("env", None)),
        stdin=base64.b64encode(read_all(stdin)).decode(),
        timeout_ms=time_limit(timeout),
        cpu_time_ms=time_limit(cpu_time, "cpu_time"),
        grace_ms=None if grace is None else millis(grace) or -1,
        **rest,
    )


class AsyncService:
    """One service of a sandbox, in which commands run and files are stored.

    Commands never raise because of how a program ended: see Result. Paths that are not absolute are below the service's
    directory.
    """

    def __init__(self, sandbox: Place, info: ServiceInfo, user: str = "") -> None:
        self._core = sandbox.core
        self._sandbox = sandbox
        self._at = Place(sandbox.core, sandbox.lease, sandbox.path, {"service": info.name, "user": user})
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
        - timeout: seconds after which the command is killed. Its outcome is then "timed-out".
        - cpu_time: seconds of processor time, of the command and all its descendants together, after which the
          command is killed. Its outcome is then "cpu-time-exceeded".
        - grace: seconds between SIGTERM and SIGKILL; by default 1.
        - stdout_cap, stderr_cap: how many bytes of a stream the result keeps, of its end. 0 means 10 MiB, -1 none.
        - kill_rest: kill the processes that the program leaves behind.
        - rlimits: limits of the kernel for each process.
        - via_engine: run it without the help of a process in the sandbox. It is slower.
        - tty, rows, cols, term: give it a terminal. Both streams then arrive as stdout.

        If the call is interrupted or its task is canceled, the command is killed.
        """
        return Result.parse(await self._at.run("run", command(args, options)))

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
        started = command(args, options, stdin_pipe=stdin_open, events=events, detach=detach)
        return AsyncProcess(self._sandbox, ProcessInfo.parse(await self._at.run("processes", started)))

    def stream(self, args: Sequence[AnyText], **options: Unpack[CommandOptions]) -> AsyncStream:
        """Run a command and iterate over its output as it arrives, and finally its end. The options are those of run.

        Use it as a context manager, or iterate to the end: leaving it early kills the command.
        """
        return AsyncStream(lambda: self.start(args, events=True, **options))

    async def processes(self) -> list[AsyncProcess]:
        """List the service's commands that were started."""
        found = await self._sandbox.get("processes", service=self.service_info.name)
        return [AsyncProcess(self._sandbox, info) for info in parse_all(ProcessInfo, found.get("processes"))]

    async def read(self, path: AnyText, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a regular file, or length bytes of it from an offset on."""
        return await self._core.call(self._at.request("GET", "file", path=to_path(path), offset=offset, length=length))

    async def read_text(self, path: AnyText, *, errors: str = "strict") -> str:
        """Return the content of a file in UTF-8. Ends of lines stay as they are."""
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
    ) -> None:
        """Write a file from a path of this machine or a file object."""
        request = self._write(path, mode, owner, atomic)
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    def _write(self, path: AnyText, mode: int, owner: str, atomic: bool) -> Request:
        request = self._at.request("PUT", "file", path=to_path(path), mode=mode or None, owner=owner, atomic=atomic)
        request.content = "application/octet-stream"
        return request

    async def download(self, path: AnyText, target: Target, *, max_bytes: int = 0) -> None:
        """Read a file into a path of this machine, where it appears when it is complete, or into a file object.

        A file of more than max_bytes, holes included, is a TooLargeError. 0 means 10 GiB, -1 no limit. Large holes of
        the file are holes in the copy at a path.
        """
        request = self._at.request("GET", "file", path=to_path(path), max_bytes=max_bytes or None)
        await self._core.save(request, target, max_bytes)

    async def put_archive(self, directory: AnyText, source: Source) -> None:
        """Extract a tar archive, from a path of this machine or a file object, into an existing directory."""
        request = self._at.request("PUT", "archive", path=to_path(directory))
        request.content = "application/x-tar"
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    async def get_archive(self, path: AnyText, target: Target, *, max_bytes: int = 0) -> None:
        """Read a file or tree as a tar archive. The sandbox made it: trust no name and no link in it.

        An archive of more than max_bytes is a TooLargeError. 0 means 10 GiB, -1 no limit.
        """
        request = self._at.request(
            "GET", "archive", path=to_path(path), max_bytes=-1
        )  # counted here, for a clear error
        await self._core.save(request, target, max_bytes)

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
        await self._at.post("mkdir", without_zeros(path=to_text(path), mode=mode, parents=parents, owner=owner))

    async def remove(self, path: AnyText, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory or, with recursive, a tree."""
        await self._at.post("remove", without_zeros(path=to_text(path), recursive=recursive))

    async def rename(self, path: AnyText, to: AnyText) -> None:
        """Move a file or directory. It replaces a file, or an empty directory."""
        await self._at.post("rename", without_zeros(path=to_text(path), to=to_text(to)))

    async def chmod(self, path: AnyText, mode: int) -> None:
        """Set the permission, set-id and sticky bits of a file. A link at the path is followed."""
        await self._at.post("chmod", without_zeros(path=to_text(path), mode=mode))

    async def connection(self) -> ConnectInfo:
        """Describe how a person connects to the service."""
        return ConnectInfo.parse(await self._at.get("connection"))

    def as_user(self, user: str) -> AsyncService:
        """Return the same service for another of its users, for commands and files."""
        return AsyncService(self._sandbox, self.service_info, user)


class AsyncSandbox(AsyncService):
    """A sandbox, and its default service. As a context manager it is removed at the end, unless it is kept."""

    _started = False  # by this client, with this object as its first handle

    def __init__(self, place: Place, found: JSON, started: bool = False) -> None:
        info = SandboxInfo.parse(found)
        super().__init__(
            place.below("sandboxes", info.id), info.services[0] if info.services else ServiceInfo("default")
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
        for info in self.info.services:
            if info.name == name:
                return AsyncService(self._sandbox, info)
        names = ", ".join(info.name for info in self.info.services)
        raise ConfigError(f"service: none is named {name!r}", hint=f"there are {names}")

    async def close(self) -> None:
        """Kill everything that runs in the sandbox and remove it, also a kept one. It may be called again."""
        await self._sandbox.remove()

    async def renew(self, ttl: float) -> None:
        """Let a kept sandbox stay for ttl seconds from now, if that is longer than before."""
        renewed = await self._sandbox.post("renew", {"ttl_ms": millis(ttl)}, repeat=True)
        self.info = SandboxInfo.parse(decode(renewed))

    async def logs(self) -> bytes:
        """Return what the main program of a kept sandbox has written."""
        return await self._core.call(self._at.request("GET", "logs"))
