"""The client for asyncio and trio, and the one that blocks."""

from __future__ import annotations

import base64
import functools
import json
import os
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec

from ._aio import running_io
from ._calls import Request
from ._core import Core, Place
from ._errors import ConfigError, UnavailableError, VersionError
from ._files import content
from ._io import IO, Address, deadline_of, parse_address, remaining
from ._launch import START, Server
from ._process import Lines
from ._service import AsyncSandbox
from ._sync import Blocking, Sandbox, blocking, wrapping
from ._types import (
    JSON,
    AnyText,
    Compose,
    Hello,
    Limits,
    Mount,
    Port,
    Prepared,
    Progress,
    SandboxInfo,
    Variables,
    millis,
    parse_all,
    to_text,
    to_utf8,
    without_zeros,
)
from ._version import API, __version__
from .session import Asset, AsyncSession, Input, Session, WorkspaceLimits

P = ParamSpec("P")
Kind = Literal["agent", "evaluation"]
StrPath = str | os.PathLike[str]
Environment = Mapping[str, Any] | str | os.PathLike[str]  # a spec, its text in YAML or JSON, or the path of its file


def absolute(path: StrPath | None) -> str:
    """Return an absolute path of the server's machine."""
    return str(Path(path).absolute()) if path else ""


def environment_of(given: Environment) -> JSON:
    """Return where an environment spec is, or its text."""
    if isinstance(given, os.PathLike):
        return {"file": absolute(given)}
    if not isinstance(given, str):
        return {"environment": json.dumps(given)}
    if "\n" not in given and given.endswith((".yaml", ".yml", ".json")):  # no spec ends like this in its only line
        return {"file": absolute(given)}
    return {"environment": given}


class AsyncClient:
    """A client of a Fumehood server, with the sandboxes that it starts.

    Without an address it connects to FUMEHOOD_SOCKET or FUMEHOOD_URL (with FUMEHOOD_TOKEN), else it starts a server of
    its own, which ends with the client. Closing the client removes its sandboxes, except kept ones. If this process is
    killed, the server removes them.

    url is unix:PATH, http://HOST:PORT or https://HOST:PORT. binary and arguments are the program to start and further
    arguments of `fumehood serve`. host_paths are paths of this machine that such a server may use for sessions and
    mounts. timeout limits the connection and the start of a server, in seconds.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        binary: str | os.PathLike[str] | None = None,
        arguments: Sequence[str] = (),
        host_paths: Sequence[StrPath] = (),
        env: Mapping[str, str] | None = None,
        timeout: float = START,
    ) -> None:
        arguments = [*arguments, *(f"--allow-host-path={absolute(path)}" for path in host_paths)]
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
        self._opening = threading.Lock()
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        await self.connect()
        return self

    async def __aexit__(self, *_: object) -> None:
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
        io = self._io = self._io or running_io()
        async with io.holding(self._opening):
            if self._opened is None:
                self._opened = await self._open(io)
            return self._opened

    async def _place(self, deadline: float | None = None) -> Place:
        """Return where all requests with the client's lease are."""
        core = await self._core()
        return Place(core, await core.lease(deadline), "/v1")

    async def _open(self, io: IO) -> Core:
        hello = None
        if self._address is not None:
            core = Core(io, self._address, self._token)
        else:
            binary, arguments, env = self._launch
            server = await io.made(lambda: Server(binary, arguments, env, self._timeout), lambda made: made.abandon())
            hello = Hello.parse(server.hello)
            core = Core(io, parse_address(hello.address), "", server)
        try:
            if hello is None:
                version = Request("GET", "/v1/version")
                hello = Hello.parse(await core.json(version, deadline_of(self._timeout)))
            if hello.api != API:
                theirs, ours = f"version {hello.version} has API {hello.api}", f"version {__version__} has API {API}"
                hint = "install the client and the server of the same release"
                raise VersionError(f"client: {ours}, but the server's {theirs}", hint=hint)
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
        env: Variables | None = None,
        user: str = "",
        cwd: AnyText = "",
        network: str = "",
        runtime: str = "",
        ports: Sequence[Port | int] = (),
        limits: Limits | None = None,
        seccomp: str = "",
        shm_size: int = 0,
        tmpfs: Sequence[str] = (),
        mounts: Sequence[Mount] = (),
        labels: Mapping[str, str] | None = None,
        allow_unsafe: bool = False,
        keep: bool = False,
        ttl: float = 0,
        idle: float = 0,
        images: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: float | None = None,
    ) -> AsyncSandbox:
        """Start a sandbox from an image or a Compose project, and return when commands can run in it.

        compose is a project or the text of a Compose file. network is "none" (the default), "bridge", "host" or the
        name of a network. shm_size is the size of /dev/shm in bytes; 0 means 64 MiB. tmpfs are file systems in memory,
        such as "/scratch:size=64m,mode=0700". seccomp is "browsers" for browsers that isolate their own processes. It
        weakens isolation, so the server has to permit it (--allow-unsafe). A sandbox with keep stays for ttl seconds,
        also when the client is closed. One with idle is removed when it has had no call and no running command for that
        many seconds, so that none is forgotten; 0 means the server's own limit, by default none.
        images are those of prepare. With progress, they are prepared first. timeout limits the start.
        """
        deadline = deadline_of(timeout)
        place = await self._place(deadline)
        if progress and not images and (image or compose):
            images = await self.prepare(image, compose=compose, progress=progress, timeout=remaining(deadline))
        spec = without_zeros(
            name=name,
            image=image,
            compose=Compose(compose) if isinstance(compose, str) else compose,
            images=images,
            env={
                to_utf8(name, "env: a name"): to_utf8(value, "env: a sandbox's variables, other than a command's")
                for name, value in (env or {}).items()
            },
            user=user,
            dir=to_utf8(cwd, "cwd"),
            network={"mode": network} if network else None,
            runtime=runtime,
            ports=[Port(port) if isinstance(port, int) else port for port in ports],
            limits=limits,
            seccomp=seccomp,
            shm_size=shm_size,
            tmpfs=list(tmpfs),
            mounts=mounts,
            labels=labels,
            allow_unsafe=allow_unsafe,
            keep=keep,
            ttl_ms=millis(ttl),
        )
        request = place.request("POST", "sandboxes", spec, idle_ms=millis(idle) or None)
        return AsyncSandbox(place, await place.core.keyed(request, deadline), started=True)

    async def prepare(
        self,
        image: str = "",
        *,
        compose: Compose | str | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: float | None = None,
    ) -> dict[str, str]:
        """Pull or build the images of a sandbox without starting it, and return their ids by service.

        A start with these images pulls and builds nothing. progress is called with each step.
        """
        deadline = deadline_of(timeout)
        place = await self._place(deadline)
        body = without_zeros(image=image, compose=Compose(compose) if isinstance(compose, str) else compose)
        async with Preparation(place.core, place.request("POST", "images", body), deadline) as steps:
            while not isinstance(step := await steps.next(), Prepared):
                if step and progress:
                    progress(step)
        return dict(step.images)

    async def open_session(
        self,
        environment: Environment,
        *,
        workspace: StrPath | None = None,
        snapshot: StrPath | None = None,
        kind: Kind = "agent",
        asset_dir: StrPath | None = None,
        assets: Mapping[str, Asset | str] | None = None,
        inputs: Sequence[Input] = (),
        limits: WorkspaceLimits | None = None,
        huid: str = "",
        hgid: str = "",
        allow_read: Sequence[StrPath] = (),
        allow_unsafe: bool = False,
        timeout: float | None = None,
    ) -> AsyncSession:
        """Open a session over a private copy of a workspace, or of what a snapshot holds. See the module session.

        environment is a spec as a mapping or as text in YAML, or the path of its file: a Path,
        or a text without line breaks that ends in .yaml, .yml or .json. Paths are those of the server's
        machine, which must allow them: see host_paths. assets are Assets or paths, relative to asset_dir, by name.
        inputs are written into the workspace first. huid and hgid are the user and group of evaluations whose spec
        names none. allow_read are paths outside the spec's folder that it may read.
        """
        deadline = deadline_of(timeout)
        place = await self._place(deadline)
        body = without_zeros(
            **environment_of(environment),
            workspace=absolute(workspace),
            snapshot=absolute(snapshot),
            kind=kind,
            asset_dir=absolute(asset_dir),
            assets={name: Asset(each) if isinstance(each, str) else each for name, each in (assets or {}).items()},
            inputs=[
                {
                    "path": to_text(each.path),
                    "content": base64.b64encode(content(each.content)).decode(),
                    "mode": each.mode,
                }
                for each in inputs
            ],
            limits=limits,
            huid=huid,
            hgid=hgid,
            allow_read=[absolute(each) for each in allow_read],
            allow_unsafe=allow_unsafe,
        )
        opened = await place.run("sessions", body, deadline)
        return AsyncSession(place.below("sessions", str(opened.get("id"))), opened)

    async def sandboxes(self) -> list[SandboxInfo]:
        """List the sandboxes of this client and the kept ones."""
        return parse_all(SandboxInfo, (await (await self._place()).get("sandboxes")).get("sandboxes"))

    async def get(self, name: str) -> AsyncSandbox:
        """Return a sandbox by its name: one of this client, or a kept one."""
        place = await self._place()
        return AsyncSandbox(place, await place.below("sandboxes", name).get())


class Preparation(Lines[Progress | Prepared]):
    """Iterates over the steps of a preparation of images."""

    last = Prepared
    resumes = True

    def parse(self, line: JSON) -> Progress | Prepared | None:
        """Return the step of a line. A heartbeat is none."""
        if line.get("type") == "end":
            return Prepared.parse(line)
        return Progress.parse(line) if line.get("type") == "progress" else None


def _constructor(
    method: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the parameters of another."""
    return functools.wraps(method)


class Client(Blocking[AsyncClient]):
    __doc__ = AsyncClient.__doc__

    @_constructor(AsyncClient.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncClient(*args, **kwargs))
        self._async._io = IO()

    def __enter__(self) -> Client:
        self.connect()
        return self

    __exit__ = blocking(AsyncClient.__aexit__)
    connect = blocking(AsyncClient.connect)
    start = wrapping(AsyncClient.start, Sandbox)
    prepare = blocking(AsyncClient.prepare)
    open_session = wrapping(AsyncClient.open_session, Session)
    sandboxes = blocking(AsyncClient.sandboxes)
    get = wrapping(AsyncClient.get, Sandbox)
    close = blocking(AsyncClient.close)
