"""The client for asyncio and trio. The blocking client, in _sync, wraps it over blocking I/O."""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from ._aio import running_io
from ._core import Core, Request, encode, segment
from ._errors import ConfigError, StaleError, UnavailableError, VersionError
from ._io import IO, Address, deadline_of, parse_address
from ._launch import START, Server
from ._service import AsyncService
from ._types import Compose, Hello, Limits, Mount, Port, SandboxInfo, ServiceInfo, millis, parse_all, without_zeros
from ._version import API, __version__


def _project(compose: Compose | str | None) -> Compose | None:
    """Return a Compose project, which may be given as the text of a file."""
    return Compose(content=compose) if isinstance(compose, str) else compose


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
        if self._io is None or self._opening is None:
            self._use(running_io())
        assert self._io and self._opening
        async with self._opening:
            if self._opened is None:
                self._opened = await self._open(self._io)
            return self._opened

    def _use(self, io: IO) -> None:
        """Set the I/O of the client."""
        self._io, self._opening = io, io.lock()

    async def _open(self, io: IO) -> Core:
        hello = None
        if self._address is not None:
            core = Core(io, self._address, self._token)
        else:
            binary, arguments, env = self._launch
            server = await io.thread(lambda: Server(binary, arguments, env, self._timeout))
            hello = Hello.parse(server.hello)
            core = Core(io, parse_address(hello.address), "", server)
        try:
            if hello is None:
                version = Request("GET", "/v1/version", repeat=True)
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
        images: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> AsyncSandbox:
        """Start a sandbox from an image or a Compose project, and return when commands can run in it.

        compose is a project or the text of a Compose file. network is "none" (the default), "bridge", "host" or the
        name of a network. A sandbox with keep stays for ttl seconds, also when the client is closed.
        images are those of prepare. timeout limits the start.
        """
        core = await self._core()
        deadline = deadline_of(timeout)
        spec = without_zeros(
            name=name,
            image=image,
            compose=_project(compose),
            images=images,
            env=env,
            user=user,
            dir=cwd,
            network={"mode": network} if network else None,
            runtime=runtime,
            ports=[Port(p) if isinstance(p, int) else p for p in ports],
            limits=limits,
            mounts=mounts,
            labels=labels,
            allow_unsafe=allow_unsafe,
            keep=keep,
            ttl_ms=millis(ttl),
        )
        request = Request("POST", "/v1/sandboxes", body=encode(spec))
        return AsyncSandbox(core, SandboxInfo.parse(await core.keyed(request, deadline)), request.lease)

    async def prepare(
        self, image: str = "", *, compose: Compose | str | None = None, timeout: float | None = None
    ) -> dict[str, str]:
        """Pull or build the images of a sandbox without starting it, and return their ids by service.

        A start with these images pulls and builds nothing.
        """
        core = await self._core()
        request = Request("POST", "/v1/images", body=encode(without_zeros(image=image, compose=_project(compose))))
        prepared = await core.keyed(request, deadline_of(timeout))
        return {service: str(found) for service, found in prepared["images"].items()}

    async def sandboxes(self) -> list[SandboxInfo]:
        """List the sandboxes of this client and the kept ones."""
        core = await self._core()
        found = await core.json(Request("GET", "/v1/sandboxes", lease=await core.lease(), repeat=True))
        return parse_all(SandboxInfo, found.get("sandboxes"))

    async def get(self, name: str) -> AsyncSandbox:
        """Return a sandbox by its name: one of this client, or a kept one."""
        core = await self._core()
        lease = await core.lease()
        found = await core.json(Request("GET", f"/v1/sandboxes/{segment(name)}", lease=lease, repeat=True))
        return AsyncSandbox(core, SandboxInfo.parse(found), lease)


class AsyncSandbox(AsyncService):
    """A sandbox, and its default service. As a context manager it is removed at the end, unless it is kept."""

    def __init__(self, core: Core, info: SandboxInfo, lease: str) -> None:
        service = info.services[0] if info.services else ServiceInfo("default")
        super().__init__(core, info.id, lease, service)
        self.info = info

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(self, *_: object) -> None:
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
        with contextlib.suppress(UnavailableError, StaleError):
            await self._core.call(self._plain("DELETE", "", repeat=True))

    async def logs(self) -> bytes:
        """Return what the main program of a kept sandbox has written."""
        return await self._core.call(self._request("GET", "logs", repeat=True))
