"""The client for asyncio and trio. The blocking client, in _sync, wraps it over blocking I/O."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from ._core import PATIENCE, Answer, Core, Request, decode, encode, segment
from ._errors import ConfigError, ConnectionLostError, ProtocolError, UnavailableError, VersionError, from_json
from ._files import Readable, Sink, Source, Target, content, read_all, reading
from ._io import IO, Address, parse_address, running_io
from ._launch import START, Server
from ._types import (
    JSON,
    Chunk,
    Compose,
    ConnectInfo,
    End,
    Event,
    Fields,
    FileInfo,
    Limits,
    Mount,
    Port,
    ProcessInfo,
    Result,
    Rlimits,
    SandboxInfo,
    ServiceInfo,
    millis,
    without_zeros,
)
from ._version import API, __version__

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("fumehood")

Stdin = bytes | bytearray | memoryview | str | os.PathLike[str] | Readable
Progress = Callable[[str], object]


def _check_version(server: Fields) -> None:
    """Fail if the server speaks another version of the API."""
    if (api := server.integer("api")) != API:
        raise VersionError(
            f"server: version {server.text('version')} has API {api}, and this client, {__version__}, has API {API}",
            hint="install the client and the server of the same release",
        )


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


class AsyncClient:
    """A client of a Fumehood server, with the sandboxes that it starts.

    Without an address it connects to FUMEHOOD_SOCKET or FUMEHOOD_URL (with FUMEHOOD_TOKEN), else it starts a server of
    its own, which ends with the client. Closing the client removes its sandboxes, except kept ones. If this process is
    killed, the server removes them.

    url is unix:PATH, http://HOST:PORT or https://HOST:PORT. binary and arguments are the program to start and further
    arguments of `fumehood serve`. timeout limits the connection and the start of a server, in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        binary: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = START,
    ) -> None:
        own = binary is not None or bool(arguments) or env is not None
        if url is not None and own:
            raise ConfigError("client: a url and the program of a server exclude each other")
        if url is None and not own:
            url = os.environ.get("FUMEHOOD_URL")
            if socket := os.environ.get("FUMEHOOD_SOCKET"):
                url = f"unix:{os.path.abspath(socket)}"  # noqa: PTH100
        self._address: Address | None = parse_address(url, tls) if url else None
        self._token = os.environ.get("FUMEHOOD_TOKEN", "") if token is None else token
        self._launch = (str(binary or ""), tuple(arguments), env)
        self._timeout = timeout
        self._opened: Core | None = None
        self._io: IO | None = None
        self._opening: contextlib.AbstractAsyncContextManager[Any] | None = None
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Connect to the server, or start one. Other calls do this when it is needed."""
        await self._core()

    async def _core(self) -> Core:
        core = self._opened
        if core is not None:
            return core
        if self._closed:
            raise UnavailableError("client: closed")
        if self._io is None:
            self._io = self._new_io()
        if self._opening is None:
            self._opening = self._io.lock()
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open(self._io)
            return self._opened

    def _new_io(self) -> IO:
        return running_io()

    async def _open(self, io: IO) -> Core:
        if self._address is not None:
            core = Core(io, self._address, self._token)
        else:
            binary, arguments, env = self._launch
            server = await io.thread(lambda: Server(binary, arguments, env, self._timeout))
            hello = Fields(server.hello)
            core = Core(io, parse_address(hello.text("address")), hello.text("token"), server)
        try:
            version = await core.json(Request("GET", "/v1/version", repeat=True), _deadline(self._timeout))
            _check_version(version)
        except BaseException:
            await core.close()
            raise
        return core

    async def close(self) -> None:
        """Remove the client's sandboxes, close its connections, and end the server that it has started."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    async def start(
        self,
        image: str = "",
        *,
        compose: Compose | str | None = None,
        name: str = "",
        env: Mapping[str, str] | None = None,
        user: str = "",
        cwd: str = "",
        network: str = "",
        runtime: str = "",
        ports: Sequence[Port | int] = (),
        limits: Limits | None = None,
        mounts: Sequence[Mount] = (),
        labels: Mapping[str, str] | None = None,
        allow_unsafe: bool = False,
        keep: bool = False,
        ttl: float = 0,
        provider: str = "",
        timeout: float | None = None,
        progress: Progress | None = None,
    ) -> AsyncSandbox:
        """Start a sandbox from an image or a Compose project, and return when commands can run in it.

        compose is a project or the text of a Compose file. network is "none" (the default), "bridge", "host" or the
        name of a network. A sandbox with keep stays when the client is closed, for ttl seconds if that is given.
        timeout limits the start. progress is called with a line of text for each step of pulls and builds.
        """
        core = await self._core()
        deadline = _deadline(timeout)
        project = Compose(content=compose) if isinstance(compose, str) else compose
        spec = without_zeros(
            name=name,
            image=image,
            compose=project.encode() if project else None,
            env=dict(env or {}),
            user=user,
            dir=cwd,
            network={"mode": network} if network else None,
            runtime=runtime,
            ports=[(Port(p) if isinstance(p, int) else p).encode() for p in ports],
            limits=limits.encode() if limits else None,
            mounts=[m.encode() for m in mounts],
            labels=dict(labels or {}),
            allow_unsafe=allow_unsafe,
            keep=keep,
            ttl_ms=millis(ttl),
        )
        request = Request("POST", "/v1/sandboxes", {"provider": provider}, body=encode(spec))
        return AsyncSandbox(core, SandboxInfo.parse(await core.keyed(request, deadline)), request.lease)

    async def sandboxes(self) -> list[SandboxInfo]:
        """List the sandboxes of this client and the kept ones."""
        core = await self._core()
        found = await core.json(Request("GET", "/v1/sandboxes", lease=await core.lease(), repeat=True))
        return [SandboxInfo.parse(Fields(each)) for each in found.items("sandboxes")]

    async def get(self, name: str) -> AsyncSandbox:
        """Return a sandbox by its name: one of this client, or a kept one."""
        core = await self._core()
        lease = await core.lease()
        found = await core.json(Request("GET", f"/v1/sandboxes/{segment(name)}", lease=lease, repeat=True))
        return AsyncSandbox(core, SandboxInfo.parse(found), lease)


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
    if unknown := set(options) - set(CommandOptions.__annotations__):
        raise TypeError(f"unknown options of a command: {', '.join(sorted(unknown))}")
    rest: dict[str, Any] = dict(options)
    stdin, rlimits = rest.pop("stdin", None), rest.pop("rlimits", None)
    timeout, grace = rest.pop("timeout", None), rest.pop("grace", None)
    return without_zeros(
        args=list(args),
        dir=rest.pop("cwd", ""),
        stdin=base64.b64encode(read_all(stdin)).decode(),
        timeout_ms=millis(timeout or 0),
        grace_ms=None if grace is None else millis(grace) or -1,
        rlimits=rlimits.encode() if rlimits else None,
        **rest,
        **more,
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

    def _request(
        self,
        method: str,
        what: str,
        body: JSON | None = None,
        /,
        repeat: bool = False,
        **query: str | int | bool | None,
    ) -> Request:
        return Request(
            method,
            f"/v1/sandboxes/{segment(self._sandbox)}/{what}".rstrip("/"),
            {"service": self.service_info.name, "user": self._user, **query},
            body=None if body is None else encode(body),
            lease=self._lease,
            repeat=repeat,
        )

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
        """List the service's commands that were started with detach."""
        found = await self._core.json(self._request("GET", "processes", repeat=True))
        return [AsyncProcess(self, ProcessInfo.parse(Fields(each))) for each in found.items("processes")]

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
        await self._save(self._request("GET", "file", path=path, repeat=True), target)

    async def put_archive(self, directory: str, source: Source) -> None:
        """Extract a tar archive, from a path of this machine or a file object, into an existing directory."""
        request = self._request("PUT", "archive", path=directory)
        request.content = "application/x-tar"
        with reading(source) as (request.pieces, request.length):
            await self._core.call(request)

    async def get_archive(self, path: str, target: Target) -> None:
        """Read a file or tree as a tar archive. The sandbox made it: trust no name and no link in it."""
        await self._save(self._request("GET", "archive", path=path, repeat=True), target)

    async def _save(self, request: Request, target: Target) -> None:
        answer = await self._core.open(request)
        sink: Sink | None = None
        try:
            sink = await self._core.io.thread(lambda: Sink(target))
            while piece := await answer.read():
                await self._core.io.thread(partial(sink.write, piece))
            await self._core.io.thread(sink.finish)
        finally:
            answer.close()
            if sink is not None:
                sink.close()

    async def stat(self, path: str) -> FileInfo:
        """Describe a file. A link at the path is not followed."""
        return FileInfo.parse(await self._core.json(self._request("GET", "stat", path=path, repeat=True)))

    async def listdir(self, path: str = ".") -> list[FileInfo]:
        """Describe the entries of a directory, sorted by name."""
        found = await self._core.json(self._request("GET", "list", path=path, repeat=True))
        return [FileInfo.parse(Fields(each)) for each in found.items("files")]

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


class AsyncSandbox(AsyncService):
    """A sandbox, and its default service. As a context manager it is removed at the end, unless it is kept."""

    def __init__(self, core: Core, info: SandboxInfo, lease: str) -> None:
        service = info.services[0] if info.services else ServiceInfo("default")
        super().__init__(core, info.id, lease, service)
        self.info = info

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.info.kept:
            await self._core.io.shielded(self.close)

    @property
    def name(self) -> str:
        """The name of the sandbox."""
        return self.info.name

    def service(self, name: str) -> AsyncService:
        """Return a service of the sandbox."""
        for info in self.info.services:
            if info.name == name:
                return AsyncService(self._core, self._sandbox, self._lease, info)
        names = ", ".join(info.name for info in self.info.services)
        raise ConfigError(f"service: none is named {name!r}", hint=f"there are {names}")

    async def close(self) -> None:
        """Kill everything that runs in the sandbox and remove it, also a kept one. It may be called again."""
        with contextlib.suppress(UnavailableError):
            await self._core.call(self._request("DELETE", "", repeat=True))

    async def renew(self, ttl: float) -> None:
        """Let a kept sandbox stay for ttl seconds from now on."""
        await self._core.call(self._request("POST", "renew", {"ttl_ms": millis(ttl)}))

    async def logs(self) -> bytes:
        """Return what the main program of the service has written."""
        return await self._core.call(self._request("GET", "logs", repeat=True))


class AsyncProcess:
    """A command that was started."""

    def __init__(self, service: AsyncService, info: ProcessInfo) -> None:
        self._service = service
        self._core = service._core
        self.info = info

    @property
    def id(self) -> str:
        """The command's name in the server."""
        return self.info.id

    def _request(
        self, method: str, what: str, body: JSON | None = None, /, repeat: bool = False, **query: Any
    ) -> Request:
        path = f"processes/{segment(self.id)}"
        return self._service._request(method, f"{path}/{what}" if what else path, body, repeat=repeat, **query)

    async def wait(self, timeout: float | None = None) -> Result:
        """Wait for the command's end and return how it ended. After timeout seconds the command runs on."""
        return Result.parse(await self._core.json(self._request("GET", "result", repeat=True), _deadline(timeout)))

    def events(self, *, stdout: int = 0, stderr: int = 0) -> AsyncEvents:
        """Iterate over the command's output, from offsets in its streams on, and finally its end.

        A connection that breaks is opened again where the iteration was. Leaving the iteration leaves the command.
        """
        return AsyncEvents(self, stdout, stderr)

    async def write(self, data: bytes | bytearray | memoryview | str) -> None:
        """Write to the command's standard input, which start has left open."""
        request = self._request("POST", "stdin")
        request.body, request.content = content(data), "application/octet-stream"
        await self._core.call(request)

    async def close_stdin(self) -> None:
        """Close the command's standard input."""
        await self._core.call(self._request("DELETE", "stdin", repeat=True))

    async def signal(self, signal: int) -> None:
        """Send a signal by its Linux number. It does nothing if the command has ended."""
        await self._core.call(self._request("POST", "signal", {"signal": int(signal)}))

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the command's terminal in characters."""
        await self._core.call(self._request("POST", "resize", {"rows": rows, "cols": cols}))

    async def kill(self) -> None:
        """Kill the command with all its descendants, and wait until they have ended."""
        await self._core.call(self._request("POST", "kill", {}, repeat=True))


class AsyncEvents:
    """Iterates over the events of a command."""

    def __init__(self, process: AsyncProcess, stdout: int, stderr: int) -> None:
        self._process = process
        self._at: dict[str, int] = {"stdout": stdout, "stderr": stderr}
        self._answer: Answer | None = None
        self._ended = False

    def __aiter__(self) -> AsyncEvents:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self) -> Event | None:
        """Return the next event, or None after the last one."""
        core, failing = self._process._core, 0.0
        while not self._ended:
            try:
                if self._answer is None:
                    self._answer = await core.open(self._process._request("GET", "events", repeat=True, **self._at))
                line = await self._answer.line()
                if not line:
                    raise ConnectionLostError("events: they ended before the command did")
            except ConnectionLostError:
                await self.close()
                now = time.monotonic()
                failing = failing or now
                if now - failing > PATIENCE:
                    raise
                await core.io.sleep(0.05)
                continue
            event = self._parse(Fields(decode(line)))
            if event is not None:
                return event
        return None

    def _parse(self, f: Fields) -> Event | None:
        kind = f.text("type")
        if kind == "end":
            self._ended = True
            return End(Result.parse(f.object("result")))
        if kind == "output":
            stream = f.text("stream")
            if stream not in self._at:
                raise ProtocolError("event: an unknown stream")
            data, offset = f.data("data"), f.integer("offset")
            skipped = offset - self._at[stream]
            self._at[stream] = offset + len(data)
            return Chunk("stdout" if stream == "stdout" else "stderr", data, offset, max(skipped, 0))
        if kind == "error":
            self._ended = True
            raise from_json(f.object("error").raw)
        return None  # a heartbeat, or an event of a later server

    async def close(self) -> None:
        """Stop the iteration."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class AsyncStream:
    """Runs a command and iterates over its events. Leaving it early kills the command."""

    def __init__(self, starting: Callable[[], Coroutine[Any, Any, AsyncProcess]]) -> None:
        self._starting = starting
        self._process: AsyncProcess | None = None
        self._events: AsyncEvents | None = None
        self._ended = False

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Event:
        event = await self.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def next(self) -> Event | None:
        """Return the next event, or None after the last one."""
        if self._events is None:
            self._process = await self._starting()
            self._events = self._process.events()
        try:
            event = await self._events.next()
        except BaseException:
            await self.close()
            raise
        self._ended = self._ended or event is None or isinstance(event, End)
        return event

    async def close(self) -> None:
        """Kill the command if it has not ended."""
        process, self._process = self._process, None
        if self._events is not None:
            await self._events.close()
        if process is not None and not self._ended:
            with contextlib.suppress(UnavailableError):
                await process._core.io.shielded(process.kill)
