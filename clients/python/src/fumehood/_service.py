"""One service of a sandbox: commands and files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

from ._core import Core, Request, Value, encode, segment
from ._errors import ConfigError
from ._files import Source, Target, content, read_all, reading
from ._process import AsyncProcess, AsyncStream, AsyncWalk
from ._types import (
    JSON,
    ConnectInfo,
    FileInfo,
    ProcessInfo,
    Result,
    Rlimits,
    ServiceInfo,
    millis,
    parse_all,
    without_zeros,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


Stdin = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO


class CommandOptions(TypedDict, total=False):
    """The options of a command, see AsyncService.run."""

    stdin: Stdin | None
    env: Mapping[str, str] | None
    cwd: str
    user: str
    timeout: float | None
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


def command(args: Sequence[str], options: CommandOptions, **more: Any) -> JSON:
    """Return a command as the server's JSON."""
    if isinstance(args, (str, bytes)):
        raise ConfigError("command: a text in the place of a list", hint='run ["sh", "-c", text] for a shell')
    if not options and not more:
        return {"args": list(args)}
    if unknown := set(options) - set(CommandOptions.__annotations__):
        raise TypeError(f"unknown options of a command: {', '.join(sorted(unknown))}")
    rest: dict[str, Any] = {**options, **more}
    stdin, timeout, grace = (rest.pop(name, None) for name in ("stdin", "timeout", "grace"))
    if timeout is not None and timeout <= 0:
        raise ConfigError("command: its timeout is not positive")
    return without_zeros(
        args=list(args),
        dir=rest.pop("cwd", ""),
        stdin=read_all(stdin),
        timeout_ms=millis(timeout or 0),
        grace_ms=None if grace is None else millis(grace) or -1,
        **rest,
    )


class AsyncService:
    """One service of a sandbox, in which commands run and files are stored.

    Commands never raise because of how a program ended: see Result. Paths that are not absolute are below the service's
    directory.
    """

    def __init__(self, core: Core, sandbox: str, lease: str, info: ServiceInfo, user: str = "") -> None:
        self._core = core
        self._sandbox = sandbox
        self._lease = lease
        self._user = user
        self.service_info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._sandbox}/{self.service_info.name}>"

    @property
    def name(self) -> str:
        """The name of the service."""
        return self.service_info.name

    def _plain(
        self, method: str, what: str, body: JSON | None = None, /, repeat: bool = False, **query: Value
    ) -> Request:
        """Return a request about the sandbox."""
        path = f"/v1/sandboxes/{segment(self._sandbox)}" + (f"/{what}" if what else "")
        data = None if body is None else encode(body)
        return Request(method, path, query, body=data, lease=self._lease, repeat=repeat)

    def _request(
        self, method: str, what: str, body: JSON | None = None, /, repeat: bool = False, **query: Value
    ) -> Request:
        """Return a request about the service."""
        return self._plain(method, what, body, repeat=repeat, service=self.service_info.name, user=self._user, **query)

    async def run(self, args: Sequence[str], **options: Unpack[CommandOptions]) -> Result:
        """Run a command to its end, at most once, and return how it ended.

        args are the program and its arguments, without a shell. Options:

        - stdin: bytes, text, a Path or a file object. None is an empty standard input.
        - env, cwd, user: added variables, working directory, and "name", "uid", "name:group" or "uid:gid".
        - timeout: seconds after which the command is killed. Its outcome is then "timed-out".
        - grace: seconds between SIGTERM and SIGKILL; by default 1.
        - stdout_cap, stderr_cap: how many bytes of a stream the result keeps, of its end. 0 means 10 MiB, -1 none.
        - kill_rest: kill the processes that the program leaves behind.
        - rlimits: limits of the kernel for each process.
        - via_engine: run it without the help of a process in the sandbox. It is slower.
        - tty, rows, cols, term: give it a terminal. Both streams then arrive as stdout.

        If the call is interrupted or its task is canceled, the command is killed.
        """
        return Result.parse(await self._core.keyed(self._request("POST", "run", command(args, options))))

    async def start(
        self, args: Sequence[str], *, stdin_open: bool = False, detach: bool = False, **options: Unpack[CommandOptions]
    ) -> AsyncProcess:
        """Start a command and return while it runs. The options are those of run.

        stdin_open leaves its standard input open for write and close_stdin. A command with detach runs on after the
        client is closed, if the sandbox is kept.
        """
        more = {"stdin_pipe": stdin_open, "detach": detach}
        started = await self._core.keyed(self._request("POST", "processes", command(args, options, **more)))
        return AsyncProcess(self, ProcessInfo.parse(started))

    def stream(self, args: Sequence[str], **options: Unpack[CommandOptions]) -> AsyncStream:
        """Run a command and iterate over its output as it arrives, and finally its end. The options are those of run.

        Use it as a context manager, or iterate to the end: leaving it early kills the command.
        """
        return AsyncStream(lambda: self.start(args, **options))

    async def processes(self) -> list[AsyncProcess]:
        """List the service's commands that were started."""
        listing = self._plain("GET", "processes", repeat=True, service=self.service_info.name)
        found = await self._core.json(listing)
        return [AsyncProcess(self, info) for info in parse_all(ProcessInfo, found.get("processes"))]

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a regular file, or length bytes of it from an offset on."""
        return await self._core.call(self._request("GET", "file", path=path, offset=offset, length=length, repeat=True))

    async def read_text(self, path: str, *, errors: str = "strict") -> str:
        """Return the content of a file in UTF-8. Ends of lines stay as they are."""
        return (await self.read(path)).decode("utf-8", errors)

    async def write(
        self,
        path: str,
        data: bytes | bytearray | memoryview | str,
        *,
        mode: int = 0,
        owner: str = "",
        atomic: bool = False,
    ) -> None:
        """Create or replace a file, and create missing directories above it. Text is written in UTF-8.

        mode is that of a new file, by default 0o644. atomic replaces the file as a whole, or not at all.
        """
        request = self._write(path, mode, owner, atomic)
        request.body, request.repeat = content(data), True
        await self._core.call(request)

    async def upload(self, source: Source, path: str, *, mode: int = 0, owner: str = "", atomic: bool = False) -> None:
        """Write a file from a path of this machine or a file object."""
        request = self._write(path, mode, owner, atomic)
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    def _write(self, path: str, mode: int, owner: str, atomic: bool) -> Request:
        request = self._request("PUT", "file", path=path, mode=mode or None, owner=owner, atomic=atomic)
        request.content = "application/octet-stream"
        return request

    async def download(self, path: str, target: Target) -> None:
        """Read a file into a path of this machine, where it appears when it is complete, or into a file object."""
        await self._core.save(self._request("GET", "file", path=path, repeat=True), target)

    async def put_archive(self, directory: str, source: Source) -> None:
        """Extract a tar archive, from a path of this machine or a file object, into an existing directory."""
        request = self._request("PUT", "archive", path=directory)
        request.content = "application/x-tar"
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    async def get_archive(self, path: str, target: Target) -> None:
        """Read a file or tree as a tar archive. The sandbox made it: trust no name and no link in it."""
        await self._core.save(self._request("GET", "archive", path=path, repeat=True), target)

    async def stat(self, path: str) -> FileInfo:
        """Describe a file. A link at the path is not followed."""
        return FileInfo.parse(await self._core.json(self._request("GET", "stat", path=path, repeat=True)))

    async def listdir(self, path: str = ".") -> list[FileInfo]:
        """Describe the entries of a directory, sorted by name."""
        found = await self._core.json(self._request("GET", "list", path=path, repeat=True))
        return parse_all(FileInfo, found.get("files"))

    def walk(self, path: str = ".") -> AsyncWalk:
        """Iterate over a path and everything below it: a directory before its entries, which are sorted by name.

        Links are not followed. What cannot be described or read has an error, and the iteration goes on.
        """
        return AsyncWalk(self._core, self._request("GET", "walk", path=path, repeat=True))

    async def mkdir(self, path: str, *, mode: int = 0, parents: bool = False) -> None:
        """Create a directory. With parents, missing ones are created and an existing one is no error."""
        await self._change("mkdir", path=path, mode=mode, parents=parents)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory or, with recursive, a tree."""
        await self._change("remove", path=path, recursive=recursive)

    async def rename(self, path: str, to: str) -> None:
        """Move a file or directory. It replaces a file, or an empty directory."""
        await self._change("rename", path=path, to=to)

    async def chmod(self, path: str, mode: int) -> None:
        """Set the permission, set-id and sticky bits of a file. A link at the path is followed."""
        await self._change("chmod", path=path, mode=mode)

    async def _change(self, what: str, **fields: Any) -> None:
        await self._core.call(self._request("POST", what, without_zeros(**fields)))

    async def connection(self) -> ConnectInfo:
        """Describe how a person connects to the service."""
        return ConnectInfo.parse(await self._core.json(self._request("GET", "connection", repeat=True)))

    def as_user(self, user: str) -> AsyncService:
        """Return the same service for another of its users, for commands and files."""
        return AsyncService(self._core, self._sandbox, self._lease, self.service_info, user)
