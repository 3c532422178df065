"""The client for asyncio and trio, and the one that blocks."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from ._aio import running_io
from ._calls import Request
from ._core import Core, Handle, Place
from ._errors import ClosedError, ConfigError, VersionError
from ._evaluations import DEFAULT_RUNS, AsyncEvaluation, AsyncRun, EvaluateOptions, Evaluation, Run, evaluation_of
from ._flags import FLAGS, Provider, serve_flags
from ._images import SERVICE, Preparation, build_of
from ._io import IO, Address, deadline_of, parse_address, remaining
from ._launch import START, Server
from ._runs import RunInfo
from ._service import AsyncSandbox
from ._specs import Environment, assets_of, compose_of, environment_of, images_of, inputs_of, variables_of
from ._sync import Blocking, Sandbox, blocking, constructor, direct, wrapping
from ._types import (
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
    to_utf8,
    without_zeros,
)
from ._values import (
    Deadline,
    Duration,
    Size,
    StrPath,
    absolute,
    called,
    duration,
    flag,
    instance,
    items,
    mapping,
    paths,
    seconds,
    size,
    text,
    texts,
)
from ._version import API, __version__
from .session import Asset, AsyncSession, Input, Session, WorkspaceLimits

if TYPE_CHECKING:
    from typing_extensions import Unpack

P = ParamSpec("P")
Kind = Literal["agent", "evaluation"]


class AsyncClient:
    """A client of a Fumehood server, with the sandboxes that it starts.

    Without an address it connects to FUMEHOOD_SOCKET or FUMEHOOD_URL (with FUMEHOOD_TOKEN), else it starts a server of
    its own, which ends with the client. Closing the client removes its sandboxes, except kept ones. If this process is
    killed, the server removes them.

    url is unix:PATH, http://HOST:PORT or https://HOST:PORT. timeout limits the connection and the start of a server, in
    seconds. The other arguments are for a server of the client's own, and a url excludes them:

    - provider: "docker", "native", "kubernetes", "workers", "local" (no isolation), or "auto", the default: "workers"
      if there are workers, "docker", or else "native". runtime is the container runtime.
    - workers, workers_token_file, workers_ca: addresses of servers that run the sandboxes, the file with their bearer
      token, by default FUMEHOOD_TOKEN, and that with the certificates that sign theirs. ["kubernetes:SERVICE"] are
      those of a Service in a cluster, which namespace and kube_context find.
    - namespace, kube_context, guest_image, pull_secrets, reserve_memory, reserve_cpus, pending: for "kubernetes", where
      Pods are, the image from which they get the guest, the secrets by which nodes pull images, what a node keeps free
      for each, and how long one may wait for a node or its images.
    - allow_egress: sandboxes may have networks, and be Compose projects. allow_kept: they may outlive the client.
      allow_unsafe: they may break the isolation. allow_unenforced_limits: they run where limits cannot be enforced.
    - allow_host_paths: paths of this machine that sandboxes and sessions may use, with all below them.
      allow_images: patterns of images, such as "python:*"; by default, all are allowed.
    - max_sandboxes, max_commands: how many there are at a time, by default 1000. max_memory: the highest memory limit
      of a sandbox. max_body, max_upload: sizes of a request, by default 64 MiB, and of a file, by default 4 GiB.
    - idle: removes a sandbox that has had no call and no running command for so long; by default never.
    - binary, arguments, env: the program to start, further arguments of `fumehood serve`, and added variables.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        provider: Provider | None = None,
        runtime: str | None = None,
        workers: Sequence[str] = (),
        workers_token_file: StrPath | None = None,
        workers_ca: StrPath | None = None,
        namespace: str | None = None,
        kube_context: str | None = None,
        guest_image: str | None = None,
        pull_secrets: Sequence[str] = (),
        reserve_memory: Size | None = None,
        reserve_cpus: float | None = None,
        pending: Duration | None = None,
        allow_egress: bool = False,
        allow_host_paths: Sequence[StrPath] = (),
        allow_images: Sequence[str] = (),
        allow_kept: bool = False,
        allow_unsafe: bool = False,
        allow_unenforced_limits: bool = False,
        max_sandboxes: int | None = None,
        max_commands: int | None = None,
        max_memory: Size | None = None,
        max_body: Size | None = None,
        max_upload: Size | None = None,
        idle: Duration | None = None,
        binary: StrPath | None = None,
        arguments: Sequence[StrPath] = (),
        env: Mapping[str, str] | None = None,
        timeout: Duration = START,
    ) -> None:
        arguments_given = locals()
        serve = {name: arguments_given[name] for name in FLAGS}
        flags = [*paths(arguments, "arguments"), *serve_flags(serve)]
        program = to_utf8(binary, "binary") if binary is not None else ""
        if env is not None:
            env = mapping(env, "env")
        serve |= {"binary": binary, "arguments": arguments, "env": env}
        given = [name for name, value in serve.items() if value or (name == "env" and value is not None)]
        if url is not None and given:
            raise ConfigError(
                f"{given[0]}: it is for a server of the client's own, and the url is another's",
                hint="leave out the url, or give the flag to that server",
            )
        if url is not None:
            url = text(url, "url")
        elif not given:
            url = os.environ.get("FUMEHOOD_URL")
            if socket := os.environ.get("FUMEHOOD_SOCKET"):
                url = f"unix:{os.path.abspath(socket)}"  # noqa: PTH100
        if tls is not None:
            instance(tls, ssl.SSLContext, "tls")
        self._address: Address | None = parse_address(url, tls) if url else None
        self._token = os.environ.get("FUMEHOOD_TOKEN", "") if token is None else text(token, "token")
        self._launch = (program, tuple(flags), env)
        self._timeout = seconds(timeout, "timeout")
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
        if self._closed:
            raise ClosedError("client: closed")
        core = self._opened
        if core is not None:
            return core
        io = self._io = self._io or running_io()
        async with io.holding(self._opening):
            if self._opened is None:
                self._opened = await self._open(io)
            return self._opened

    async def _place(self, deadline: Deadline | None = None) -> Place:
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
        shm_size: Size = 0,
        tmpfs: Sequence[str] = (),
        mounts: Sequence[Mount] = (),
        labels: Mapping[str, str] | None = None,
        allow_unsafe: bool = False,
        keep: bool = False,
        ttl: Duration = 0,
        idle: Duration = 0,
        journal: bool = False,
        images: Mapping[str, str] | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: Duration | None = None,
    ) -> AsyncSandbox:
        """Start a sandbox from an image or a Compose project, and return when commands can run in it.

        Without both, it has the server's default image, which is python:3.12-slim unless a setting names another.
        compose is a project or the text of a Compose file. network is "none" (the default), "bridge", "host" or the
        name of a network. shm_size is the size of /dev/shm in bytes, or a text such as "1GiB"; 0 means 64 MiB. tmpfs
        are file systems in memory, such as "/scratch:size=64m,mode=0700". seccomp is "browsers" for browsers that
        isolate their own processes. It weakens isolation, so the client has to permit it with allow_unsafe. A sandbox
        with keep stays for ttl, also when the client is closed: the first `fumehood cleanup` after that removes it. One
        with idle is removed when it has had no call and no running command for so long; 0 means the server's own limit,
        by default none. Times are in seconds, or texts such as "1h30m". journal records what is done in it, see
        AsyncSandbox.journal. images are those of prepare. With progress, they are prepared first. timeout limits the
        start.
        """
        deadline = deadline_of(timeout)
        called(progress, "progress")
        spec = without_zeros(
            name=text(name, "name"),
            image=text(image, "image"),
            compose=compose_of(compose),
            images=images_of(images),
            env=variables_of(env),
            user=text(user, "user"),
            dir=to_utf8(cwd, "cwd"),
            network={"mode": network} if text(network, "network") else None,
            runtime=text(runtime, "runtime"),
            ports=[Port(port) if isinstance(port, int) else port for port in items(ports, (Port, int), "ports")],
            limits=instance(limits, (Limits, type(None)), "limits"),
            seccomp=text(seccomp, "seccomp"),
            shm_size=size(shm_size, "shm_size"),
            tmpfs=texts(tmpfs, "tmpfs"),
            mounts=items(mounts, Mount, "mounts"),
            labels=None if labels is None else mapping(labels, "labels"),
            allow_unsafe=flag(allow_unsafe, "allow_unsafe"),
            keep=flag(keep, "keep"),
            ttl_ms=millis(duration(ttl, "ttl")),
        )
        if bool(spec.get("keep")) != bool(spec.get("ttl_ms")):
            raise ConfigError("ttl: a kept sandbox needs one, and others have none")
        idle_ms = millis(duration(idle, "idle")) or None
        place = await self._place(deadline)
        if progress and not images and (image or compose):
            left = remaining(deadline)
            spec["images"] = await self.prepare(image, compose=compose, progress=progress, timeout=left)
        request = place.request("POST", "sandboxes", spec, idle_ms=idle_ms, journal=flag(journal, "journal"))
        found = await place.core.keyed(request, deadline)
        sandbox = AsyncSandbox(place, found, started=True)
        place.core.warn_of_provider(found)
        return sandbox

    async def prepare(
        self,
        image: str = "",
        *,
        compose: Compose | str | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: Duration | None = None,
    ) -> dict[str, str]:
        """Pull or build the images of a sandbox without starting it, and return their ids by service.

        A start with these images pulls and builds nothing. progress is called with each step.
        """
        deadline = deadline_of(timeout)
        called(progress, "progress")
        body = without_zeros(image=text(image, "image"), compose=compose_of(compose))
        place = await self._place(deadline)
        async with Preparation(place.core, place.request("POST", "images", body), deadline) as steps:
            while not isinstance(step := await steps.next(), Prepared):
                if step and progress:
                    progress(step)
        return dict(step.images)

    async def build(
        self,
        dockerfile: StrPath | None = None,
        *,
        context: StrPath | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: Duration | None = None,
    ) -> str:
        """Build an image and return its id, for start(image=...). An image of the same inputs is not built again.

        dockerfile is the text of a Dockerfile, or a Path of one; by default the file Dockerfile of the context. context
        is the folder that COPY reads, without what its .dockerignore lists; by default that of the file, and none for a
        text. Paths are of the server's machine. The client has to permit them with allow_host_paths, and builds with
        allow_egress. A failed step is a ConfigError with the end of its output. progress is called with each step.
        """
        project = build_of(dockerfile, context)
        return (await self.prepare(compose=project, progress=progress, timeout=timeout))[SERVICE]

    async def open_session(
        self,
        environment: Environment,
        *,
        workspace: StrPath | None = None,
        snapshot: StrPath | None = None,
        kind: Kind = "agent",
        asset_dir: StrPath | None = None,
        assets: Mapping[str, Asset | StrPath] | None = None,
        inputs: Sequence[Input] = (),
        limits: WorkspaceLimits | None = None,
        huid: str = "",
        hgid: str = "",
        allow_read: Sequence[StrPath] = (),
        allow_unsafe: bool = False,
        timeout: Duration | None = None,
    ) -> AsyncSession:
        """Open a session over a private copy of a workspace, or of what a snapshot holds. See the module session.

        environment is a spec as a mapping or as text in YAML, or the path of its file: a Path,
        or a text without line breaks that ends in .yaml, .yml or .json. Paths are those of the server's
        machine, which must allow them: see allow_host_paths. assets are Assets or paths, relative to asset_dir, by
        name. inputs are written into the workspace first. huid and hgid are the user and group of evaluations whose
        spec names none. allow_read are paths outside the spec's folder that it may read.
        """
        deadline = deadline_of(timeout)
        body = without_zeros(
            **environment_of(environment),
            workspace=absolute(workspace, "workspace"),
            snapshot=absolute(snapshot, "snapshot"),
            kind=text(kind, "kind"),
            asset_dir=absolute(asset_dir, "asset_dir"),
            assets=assets_of(assets),
            inputs=inputs_of(inputs),
            limits=instance(limits, (WorkspaceLimits, type(None)), "limits"),
            huid=text(huid, "huid"),
            hgid=text(hgid, "hgid"),
            allow_read=[absolute(each, "allow_read") for each in paths(allow_read, "allow_read")],
            allow_unsafe=flag(allow_unsafe, "allow_unsafe"),
        )
        place = await self._place(deadline)
        opened = await place.run("sessions", body, deadline)
        return AsyncSession(place.below("sessions", found := str(opened.get("id")), Handle(f"session {found}")), opened)

    def evaluate(
        self,
        task: StrPath | Mapping[str, Any] | None = None,
        *,
        samples: Iterable[Mapping[str, Any]] | None = None,
        files: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
        runs: StrPath = DEFAULT_RUNS,
        resume: StrPath | AsyncRun | Run | None = None,
        **options: Unpack[EvaluateOptions],
    ) -> AsyncEvaluation:
        """Run the samples of a task, each in its own sandbox, and iterate over their results.

        task is the path of a task file or its folder, or a mapping with the keys of a task file. Paths are those of
        the server's machine, and the client has to permit them with allow_host_paths. runs is the folder in which the
        run's folder is made. resume goes on with a run: its path or a run. It needs no task, unless the run records
        none.

        A task as a mapping needs a server of this machine, on a unix socket, as the client's own. Its files are
        written into the run's folder, and stay there as long as the run:

        - samples are mappings with the keys of a sample, 256 MiB at most. They are read one by one, in another
          thread if the client is asynchronous, and count as data: they cannot raise limits or name files outside.
        - files are texts, bytes, or paths of files and folders to copy, by their names in the task's folder.

        Options:

        - sample_ids, limit: run these samples, or the first ones. epochs: attempts of each sample.
        - shuffle: the seed of a random order.
        - max_sandboxes, max_starting: how many sandboxes exist and start at once. 0 means by cores and memory.
        - retries: of an attempt after an infrastructure error; by default 2.
        - fail_fast: start no more attempts after one that does not pass.
        - retry_errors, retry_failed: see AsyncRun.resume.
        - allow_read: paths outside the task's folder that it may read. allow_unsafe: allow what breaks the isolation.
        - progress: called with an EvaluationProgress when the counts change, and with a BuildStep.
        """
        return evaluation_of(self._place, task, samples, files, runs, resume, options)

    async def runs(self, folder: StrPath = DEFAULT_RUNS) -> list[AsyncRun]:
        """List the runs in a folder of the server's machine, newest first, also those of other programs.

        Those that cannot be read come last: info.state is "unreadable", and info.error says why.
        """
        place = await self._place()
        found = await place.get("runs", folder=absolute(folder, "folder"))
        return [AsyncRun(place, info) for info in parse_all(RunInfo, found.get("runs"))]

    async def get_run(self, folder: StrPath) -> AsyncRun:
        """Return a run by the path of its folder on the server's machine."""
        place = await self._place()
        return AsyncRun(place, RunInfo.parse(await place.get("runs/run", run=absolute(folder, "folder"))))

    async def sandboxes(self) -> list[SandboxInfo]:
        """List the sandboxes of this client and the kept ones."""
        return parse_all(SandboxInfo, (await (await self._place()).get("sandboxes")).get("sandboxes"))

    async def get(self, name: str) -> AsyncSandbox:
        """Return a sandbox by its name: one of this client, or a kept one."""
        text(name, "name")
        place = await self._place()
        return AsyncSandbox(place, await place.below("sandboxes", name).get())


class Client(Blocking[AsyncClient]):
    __doc__ = AsyncClient.__doc__

    @constructor(AsyncClient.__init__)
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
    build = blocking(AsyncClient.build)
    open_session = wrapping(AsyncClient.open_session, Session)
    evaluate = direct(AsyncClient.evaluate, Evaluation)
    runs = wrapping(AsyncClient.runs, lambda found: [Run(each) for each in found])
    get_run = wrapping(AsyncClient.get_run, Run)
    sandboxes = blocking(AsyncClient.sandboxes)
    get = wrapping(AsyncClient.get, Sandbox)
    close = blocking(AsyncClient.close)
