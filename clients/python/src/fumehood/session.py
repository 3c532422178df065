"""Code that runs over private copies of workspaces, as benchmarks of coding agents do. Client.open_session opens one.

The names are those of the Go package session.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ._calls import decode
from ._command import time_limit
from ._core import CANCEL, Place
from ._data import Given, GivenLimit, GivenText, Shown
from ._errors import FumehoodError
from ._files import Target, content
from ._process import Lines
from ._service import AsyncService
from ._sync import Blocking, Iteration, Service, blocking, direct, wrapping
from ._types import (
    JSON,
    AnyText,
    Bytes,
    Data,
    Decoders,
    Line,
    Mount,
    Output,
    Port,
    Result,
    ServiceInfo,
    Text,
    Variables,
    Written,
    parse_all,
    parse_bytes,
    to_bytes,
    to_text,
    to_variables,
    without_zeros,
)
from ._values import Check, Duration, Size, checked, flag, instance, integer, items, size, text

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "Asset",
    "AsyncCheckpoint",
    "AsyncRuntime",
    "AsyncSession",
    "AsyncSessionStream",
    "Change",
    "Checkpoint",
    "Entry",
    "ExecuteOptions",
    "Input",
    "Phase",
    "Runtime",
    "RuntimeInfo",
    "Session",
    "SessionChunk",
    "SessionEnd",
    "SessionEvent",
    "SessionResult",
    "SessionStream",
    "SpawnOptions",
    "WorkspaceLimits",
]

Phase = Literal["setup", "command"]  # of a command of a session


@dataclass(frozen=True)
class Asset(Given):
    """A file or folder for the code of a session."""

    path: GivenText  # relative to asset_dir
    save_path: GivenText = ""  # where the code finds it, by default at path


@dataclass(frozen=True)
class Input(Shown):
    """A file to write into a workspace."""

    path: AnyText
    content: bytes | str
    mode: int = 0o644

    def __post_init__(self) -> None:
        to_bytes(self.path, "Input.path")
        instance(self.content, (bytes, str), "Input.content")
        integer(self.mode, "Input.mode")


@dataclass(frozen=True)
class _File(Data):
    """A file of a workspace whose path is not UTF-8."""

    path: Text
    content: Bytes = b""


@dataclass(frozen=True)
class WorkspaceLimits(Given):
    """Limits of a workspace. 0 means the default, -1 no limit. Sizes may be texts, such as "1GiB" or "none"."""

    bytes: GivenLimit = 0  # of all files, by default 10 GiB
    stored: GivenLimit = 0  # bytes of a snapshot before its compression
    entries: int = 0  # by default a million


@dataclass(frozen=True)
class Entry(Data):
    """A file, directory or link of a workspace."""

    path: Text
    type: str = ""
    mode: str = ""  # octal
    size: int = 0
    mtime: datetime | None = None
    sha256: str = ""
    target: Text = ""  # of a link


@dataclass(frozen=True)
class Change(Data):
    """A difference between two checkpoints in one entry."""

    path: Text
    kind: Literal["added", "removed", "changed"]
    before: Entry | None = None
    after: Entry | None = None
    hunks: str = ""  # the difference of two texts
    omitted: str = ""  # why contents that differ have no hunks


@dataclass(frozen=True)
class AsyncCheckpoint(Data):
    """The saved workspace at the end of a piece of an agent's work."""

    number: int  # starts at 1
    snapshot: str = ""  # path on the server's machine, until the session is closed
    archive: str = ""  # path of the copy in the spec's archive_save_dir
    changes: tuple[Change, ...] = ()  # from the checkpoint before, or from the start
    _at: Any = field(default=None, repr=False, compare=False)

    async def save(self, path: Target) -> None:
        """Write the snapshot to a path of this machine or a file object."""
        await self._at.core.save(self._at.request("GET", f"checkpoints/{self.number}/snapshot"), path)


@dataclass(frozen=True)
class SessionResult(Result):
    """How a command of a session ended, with the output of its setup. usage and duration are of command and setup."""

    setup_ended: bool = False  # the script ended in its setup, before the command began: all output is the setup's
    setup_stdout: Output = field(default_factory=Output)
    setup_stderr: Output = field(default_factory=Output)

    @property
    def success(self) -> bool:
        """Whether the command began, and exited by itself with code 0."""
        return super().success and not self.setup_ended


@dataclass(frozen=True)
class SessionChunk(Written):
    """Output of a running command or its setup."""

    phase: Phase


@dataclass(frozen=True)
class SessionEnd(Shown):
    """The end of a command, the last of its events."""

    result: SessionResult


SessionEvent = SessionChunk | SessionEnd


@dataclass(frozen=True)
class RuntimeInfo(Data):
    """A runtime as the server describes it."""

    id: str
    service: ServiceInfo
    exit_code: int | None = None


class SpawnOptions(TypedDict, total=False):
    """What a runtime has in place of the spec or in addition to it, see AsyncSession.spawn."""

    ports: Sequence[Port | int]
    mounts: Sequence[Mount]
    env: Variables | None
    image: str
    user: str
    setup: str
    disable_setup: bool


class ExecuteOptions(TypedDict, total=False):
    """The options of a command, see AsyncRuntime.execute."""

    entry: AnyText
    stdin: bytes | str | Sequence[bytes | str] | None
    timeout: Duration | None
    cpu_time: Duration | None
    env: Variables | None
    stdout_cap: Size
    stderr_cap: Size


def _pieces(given: bytes | str | Sequence[bytes | str] | None, name: str) -> list[str]:
    """Return what a command reads, piece by piece, as the server's JSON."""
    pieces = [given] if isinstance(given, (bytes, str)) else items(given or (), (bytes, str), name)
    return [base64.b64encode(content(each, name)).decode() for each in pieces]


def _ports(given: Sequence[Port | int], name: str) -> list[Port]:
    return [Port(port) if isinstance(port, int) else port for port in items(given, (Port, int), name)]


def _mounts(given: Sequence[Mount], name: str) -> list[Mount]:
    return items(given, Mount, name)


_SPAWN: Mapping[str, Check] = {
    "ports": _ports,
    "mounts": _mounts,
    "env": to_variables,
    "image": text,
    "user": text,
    "setup": text,
    "disable_setup": flag,
}
_EXECUTE: Mapping[str, Check] = {
    "entry": to_text,
    "stdin": _pieces,
    "timeout": time_limit,
    "cpu_time": time_limit,
    "env": to_variables,
    "stdout_cap": size,
    "stderr_cap": size,
}
_NAMES = {"timeout": "timeout_ms", "cpu_time": "cpu_time_ms"}  # in JSON


def _execution(command: AnyText, options: ExecuteOptions) -> JSON:
    """Return a command as the server's JSON."""
    found = {_NAMES.get(name, name): value for name, value in checked(_EXECUTE, options).items()}
    return without_zeros(command=to_text(command, "command"), **found)


class AsyncSession:
    """A private copy of a workspace, and the runtimes over it. As a context manager it is closed at the end."""

    def __init__(self, at: Place, opened: JSON) -> None:
        self._at = at
        self.id = str(opened.get("id"))
        self.workspace = str(opened.get("workspace"))  # path of the copy on the server's machine
        at.core.unclosed.add(at.path)

    def __del__(self) -> None:
        self._at.warn(f"session {self.id}")

    def __repr__(self) -> str:
        return f"<AsyncSession {self.id}>"

    async def __aenter__(self) -> AsyncSession:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._at.core.io.shielded(self.close)

    async def spawn(self, **options: Unpack[SpawnOptions]) -> AsyncRuntime:
        """Start a runtime: a container over the workspace that runs one command at a time. Options:

        - ports, mounts: added to the spec's. A relative host path of a mount is below the workspace.
        - env: variables, which take precedence over the spec's.
        - image, user: in place of the spec's.
        - setup: shell text that runs after the spec's setup. disable_setup runs none.
        """
        body = without_zeros(**checked(_SPAWN, options))
        found = await self._at.run("runtimes", body)
        self._at.core.warn_of_provider(found)
        return AsyncRuntime(self._at, RuntimeInfo.parse(found))

    async def exec(
        self, command: AnyText = "", *, spawn: SpawnOptions | None = None, **options: Unpack[ExecuteOptions]
    ) -> SessionResult:
        """Run one command in a new runtime, and remove the runtime. The options are those of execute."""
        _execution(command, options)  # a wrong one starts nothing
        instance(spawn, (Mapping, type(None)), "spawn")
        runtime = await self.spawn(**(spawn or {}))
        try:
            return await runtime.execute(command, **options)
        finally:
            await self._at.core.io.shielded(runtime.cleanup)

    async def checkpoint(self) -> AsyncCheckpoint:
        """Save an agent's workspace, and return what has changed since the checkpoint before. Reset returns to it."""
        return replace(AsyncCheckpoint.parse(await self._at.run("checkpoints", {})), _at=self._at)

    async def reset(self) -> None:
        """Restore the workspace from the last checkpoint, or from the start. Running containers see it."""
        await self._at.post("reset", {}, repeat=True)

    async def read_files(self, *globs: AnyText) -> dict[str, bytes]:
        """Return the regular files of the workspace that match any of the globs, by their paths in it."""
        found = decode(await self._at.post("files", {"globs": [to_text(each, "globs") for each in globs]}, repeat=True))
        files = {path: parse_bytes(data) for path, data in (found.get("files") or {}).items()}
        return files | {each.path: each.content for each in parse_all(_File, found.get("others"))}

    async def resolve(self, value: Any) -> Any:
        """Return a value of JSON in which each {{static:NAME}} is replaced by the path of that asset."""
        return decode(await self._at.post("resolve", {"value": value}, repeat=True)).get("value")

    async def close(self) -> None:
        """Remove the runtimes and the private workspace. It may be called again."""
        await self._at.end()


class AsyncRuntime:
    """A container over a session's workspace. As a context manager it is cleaned up at the end.

    It runs one command at a time: another one is a LimitError. When its container has ended, each call is an
    UnavailableError, and when it was removed, a SandboxNotFoundError. service has its files, and runs further commands.
    """

    def __init__(self, session: Place, info: RuntimeInfo) -> None:
        self._at = session.below("runtimes", info.id)
        self.id = info.id
        sandbox = Place(session.core, session.lease, "/v1").below("sandboxes", info.id, session.handle)
        self.service = AsyncService(sandbox, info.service)

    def __repr__(self) -> str:
        return f"<AsyncRuntime {self.id}>"

    async def __aenter__(self) -> AsyncRuntime:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._at.core.io.shielded(self.cleanup)

    async def execute(self, command: AnyText = "", **options: Unpack[ExecuteOptions]) -> SessionResult:
        """Run a command in the shell of the setup, after the setup, at most once, and return how it ended.

        command is shell text; without it the spec's command line runs, for the file entry. Options:

        - stdin: bytes or text, or a list of them that are sent one by one.
        - timeout: seconds from the end of the setup after which the command is killed.
        - cpu_time: seconds of processor time, of setup and command with all their descendants together.
        - env: variables, which take precedence over all others.
        - stdout_cap, stderr_cap: as of AsyncService.run.

        If the call is interrupted or canceled, the command is killed.
        """
        return SessionResult.parse(await self._at.run("execute", _execution(command, options)))

    def stream(self, command: AnyText = "", **options: Unpack[ExecuteOptions]) -> AsyncSessionStream:
        """Run a command, and iterate over its output and its setup's as it arrives, and finally its end.

        The options are those of execute, without stdin. Leaving the iteration early kills the command.
        """
        return AsyncSessionStream(self._at, _execution(command, options))

    async def poll(self) -> int | None:
        """Return the exit code of the last command that ended: None while one runs, and before the first."""
        return RuntimeInfo.parse(await self._at.get()).exit_code

    async def kill(self) -> None:
        """Kill the command and remove the container at once, without what an uploaded workspace has changed."""
        await self._at.remove(kill=True)

    async def cleanup(self) -> None:
        """Kill the command, fetch an uploaded workspace, and remove the container. It may be called again."""
        await self._at.remove()


class AsyncSessionStream(Lines[SessionEvent]):
    """Runs a command of a session and iterates over its events. Leaving it early kills the command."""

    last = SessionEnd

    def __init__(self, runtime: Place, command: JSON) -> None:
        super().__init__(runtime.core, runtime.request("POST", "stream", command))
        self._runtime = runtime
        self._decoders = Decoders()

    async def close(self) -> None:
        """End the iteration. A command that still runs is killed; then the runtime can run the next one."""
        running = self._answer is not None and not self._ended
        await super().close()
        if running:
            await self._core.io.shielded(self._wait)

    async def _wait(self) -> None:
        deadline = time.monotonic() + CANCEL
        with contextlib.suppress(FumehoodError):
            while time.monotonic() < deadline and (await self._runtime.get()).get("exit_code") is None:
                await self._core.io.sleep(0.02)

    def parse(self, line: JSON) -> SessionEvent | None:
        """Return the event of a line. A heartbeat is none."""
        found = Line.parse(line)
        if found.type == "end":
            rest = [SessionChunk(of, b"", phase, _text=text) for (of, phase), text in self._decoders.rest()]
            first, *self._later = [*rest, SessionEnd(SessionResult.parse(found.result))]
            return first
        if found.type != "output":
            return None
        text = self._decoders.decode((found.stream, found.phase), found.data)
        return SessionChunk(found.stream, found.data, found.phase, _text=text)


class Checkpoint(Blocking[AsyncCheckpoint]):
    __doc__ = AsyncCheckpoint.__doc__
    number: int  # starts at 1
    snapshot: str  # path on the server's machine, until the session is closed
    archive: str  # path of the copy in the spec's archive_save_dir
    changes: tuple[Change, ...]  # from the checkpoint before, or from the start

    save = blocking(AsyncCheckpoint.save)


class SessionStream(Iteration[SessionEvent]):
    """Runs a command of a session and iterates over its events. Leaving it early kills the command."""

    close = blocking(AsyncSessionStream.close)


class Runtime(Blocking[AsyncRuntime]):
    __doc__ = AsyncRuntime.__doc__

    id: str  # its name in the server, also as a sandbox

    @property
    def service(self) -> Service:
        """The container, for files and further commands."""
        return Service(self._async.service)

    __exit__ = blocking(AsyncRuntime.__aexit__)
    execute = blocking(AsyncRuntime.execute)
    stream = direct(AsyncRuntime.stream, SessionStream)
    poll = blocking(AsyncRuntime.poll)
    kill = blocking(AsyncRuntime.kill)
    cleanup = blocking(AsyncRuntime.cleanup)


class Session(Blocking[AsyncSession]):
    __doc__ = AsyncSession.__doc__

    id: str  # its name in the server
    workspace: str  # the path of the private copy on the server's machine

    __exit__ = blocking(AsyncSession.__aexit__)
    spawn = wrapping(AsyncSession.spawn, Runtime)
    exec = blocking(AsyncSession.exec)
    checkpoint = wrapping(AsyncSession.checkpoint, Checkpoint)
    reset = blocking(AsyncSession.reset)
    read_files = blocking(AsyncSession.read_files)
    resolve = blocking(AsyncSession.resolve)
    close = blocking(AsyncSession.close)
