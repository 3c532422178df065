"""The session: a sandbox with its commands, files and snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import tarfile
import tempfile
import uuid
from collections import deque
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeAlias

from agents.sandbox import errors
from agents.sandbox.entries import Mount as MountEntry
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxSession, SandboxSessionState, pty_types
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import PtyExecUpdate
from agents.sandbox.session.sandbox_client import BaseSandboxClientOptions
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, strip_tar_member_prefix, validate_tarfile
from agents.sandbox.workspace_paths import sandbox_path_grant_host_path, sandbox_path_str
from pydantic import ConfigDict, Field

import fumehood
from fumehood import AsyncClient, AsyncSandbox
from fumehood._adapter import GONE, ended, mark_missing, missing

Who: TypeAlias = User | str | None  # the user of a command or file; None is the image's own
_MOUNTS = "openai_agents.mounts"  # a label
_OUTPUT = 10 << 20  # bytes that wait for the agent; a line says how many after them were dropped
_FILE, _ARCHIVE = 1 << 30, 4 << 30  # the most bytes of a file in memory, and of an archive that a server accepts

# Copies a workspace without some of its paths, and without what an archive cannot hold: sockets, pipes and devices.
_COPY = """mkdir -p "$2" && cp -a -- "$1/." "$2" && cd "$2" && shift 2 && rm -rf -- "$@" &&
find . ! -type f ! -type d ! -type l -exec rm -f {} +"""


class FumehoodSandboxClientOptions(BaseSandboxClientOptions):
    """What a sandbox consists of, and what it is allowed."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["fumehood"] = "fumehood"
    image: str
    exposed_ports: tuple[int, ...] = ()  # published on the loopback address; they need a network
    network: Literal["none", "bridge"] = "none"  # "bridge" reaches the internet and this machine
    labels: dict[str, str] = Field(default_factory=dict)
    memory: int = 0  # bytes; 0 means 2 GiB
    cpus: float = 0  # 0 means no limit
    pids: int = 0  # 0 means 1024
    keep: float = Field(default=0, ge=0)  # seconds that the sandbox outlives its session and this process


class FumehoodSandboxSessionState(SandboxSessionState):
    """What a session is resumed from."""

    type: Literal["fumehood"] = "fumehood"
    options: FumehoodSandboxClientOptions
    sandbox: str = ""  # its name


def mounts_of(manifest: Manifest) -> list[fumehood.Mount]:
    """Return the paths of this machine that a manifest makes visible, or raise the error of what is not supported."""
    for path, entry in manifest.iter_entries():
        if isinstance(entry, MountEntry):
            raise errors.MountConfigError(message=f"manifest entry {path}: fumehood has no mounts: use a LocalDir")
    mounts, root = [], PurePosixPath(manifest.root)
    for grant in (each for each in manifest.extra_path_grants if each.host_path is not None):
        target = PurePosixPath(grant.path)
        if target == root or root in target.parents or target in root.parents:
            raise ValueError(f"path grant {grant.path}: a host_path must be mounted outside the workspace {root}")
        host = str(sandbox_path_grant_host_path(grant))
        mounts.append(fumehood.Mount(host, grant.path, writable=not grant.read_only))
    return mounts


async def start(client: AsyncClient, state: FumehoodSandboxSessionState) -> AsyncSandbox:
    """Start the sandbox of a state."""
    o, mounts = state.options, mounts_of(state.manifest)
    spec: Any = {"network": o.network, "ports": o.exposed_ports, "mounts": mounts, "keep": o.keep > 0, "ttl": o.keep}
    env, limits = await state.manifest.environment.resolve(), fumehood.Limits(o.memory, o.cpus, o.pids)
    sandbox = await client.start(o.image, env=env, limits=limits, labels={**o.labels, _MOUNTS: repr(mounts)}, **spec)
    state.sandbox, state.workspace_root_ready = sandbox.name, False
    return sandbox


async def find(client: AsyncClient, state: FumehoodSandboxSessionState) -> AsyncSandbox | None:
    """Return the sandbox of a state, if it runs."""
    try:
        sandbox = await client.get(state.sandbox)
        await sandbox.connection()
    except (fumehood.UnavailableError, fumehood.SandboxNotFoundError):
        return None
    if sandbox.info.labels.get(_MOUNTS) != repr(mounts_of(state.manifest)):
        raise ValueError(f"sandbox {state.sandbox} has other path grants than the state: create a session")
    if state.options.keep:
        await sandbox.renew(state.options.keep)
    return sandbox


@contextlib.contextmanager
def translated(path: Path, error: Any) -> Iterator[None]:
    """Translate the errors of files and archives."""
    try:
        yield
    except (fumehood.FumehoodError, UnsafeTarMemberError, tarfile.TarError) as e:
        if error is errors.WorkspaceArchiveReadError and isinstance(e, fumehood.NotFoundError):
            raise errors.WorkspaceReadNotFoundError(path=path, cause=e) from e
        raise error(path=path, context={"reason": str(e)}, cause=e) from e


class _Archive(io.BufferedRandom):
    def write(self, data: Any) -> int:
        if self.tell() + len(data) > _ARCHIVE:
            raise fumehood.TooLargeError("workspace: its archive has more than 4 GiB")
        return super().write(data)


class Running:
    """A command that runs on, with the output that the agent has not seen."""

    def __init__(self, process: fumehood.AsyncProcess, args: list[str], timeout: float | None, tty: bool) -> None:
        self.process, self.args, self.timeout, self.tty = process, args, timeout, tty
        self.room, self._missing, self._notify = _OUTPUT, 0, asyncio.Event()
        self._chunks: deque[bytes] = deque()
        self._writer: asyncio.Task[None] | None = None
        self.reader = asyncio.create_task(self._read())
        self.reader.add_done_callback(lambda _: self._notify.set())
        queue = {"output_chunks": self._chunks, "output_lock": asyncio.Lock(), "output_notify": self._notify}
        self.collect = partial(collect_pty_output, **queue, is_done=self.reader.done)

    async def _read(self) -> fumehood.Result:
        async with self.process.events() as events:
            async for event in events:
                if isinstance(event, fumehood.Chunk):
                    self._add(event)
        self.tell()
        return await self.process.wait()

    def _add(self, chunk: fumehood.Chunk) -> None:
        self._missing += chunk.skipped
        if self.room <= 0:
            self._missing += len(chunk.data)
            return
        self.tell()
        self.room -= len(chunk.data)
        self._chunks.append(chunk.data)
        self._notify.set()

    def tell(self) -> None:
        """Tell the agent how much output is missing here, if any is."""
        if self._missing:
            self._chunks.append(missing(self._missing).encode())
            self._missing = 0

    async def write(self, chars: str, seconds: float) -> None:
        """Write to the command's terminal, after what was written before. One that does not read gets it later."""
        before = self._writer

        async def send() -> None:
            if before:
                await asyncio.wait({before})
            with contextlib.suppress(*GONE):  # it has ended
                await self.process.write(chars)

        self._writer = asyncio.create_task(send())
        done, _ = await asyncio.wait({self._writer}, timeout=seconds)
        for each in done:
            each.result()

    async def kill(self) -> None:
        """Kill the command with all its descendants."""
        with contextlib.suppress(*GONE):
            await self.process.kill()
        await asyncio.gather(self.reader, *([self._writer] if self._writer else []), return_exceptions=True)


class FumehoodSandboxSession(BaseSandboxSession):
    """A sandbox of Fumehood with its workspace."""

    __module__ = "fumehood"  # the backend in traces

    def __init__(self, client: AsyncClient, state: FumehoodSandboxSessionState, sandbox: AsyncSandbox) -> None:
        self.state, self._client, self._sandbox = state, client, sandbox
        self._cwd = state.manifest.root if state.workspace_root_ready else ""
        self._running: dict[int, Running] = {}

    async def running(self) -> bool:
        """Report whether the sandbox runs."""
        with contextlib.suppress(*GONE):
            await self._sandbox.connection()
            return True
        return False

    async def remove(self) -> None:
        """Remove the sandbox, also a kept one. It may be called again."""
        with contextlib.suppress(*GONE):
            await self._sandbox.close()

    async def _ensure_backend_started(self) -> None:
        self._cwd = ""  # the workspace may not exist yet, or no longer
        if not await self.running():
            await self.remove()
            self._sandbox = await start(self._client, self.state)
            self._set_start_state_preserved(False)

    async def _after_start(self) -> None:
        self._cwd = self.state.manifest.root

    async def _shutdown_backend(self) -> None:
        if not self.state.options.keep:
            await self.remove()

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        for each in (await self._sandbox.connection()).ports if await self.running() else ():
            if each.container == port:
                return ExposedPortEndpoint(each.address, each.host)
        return await super()._resolve_exposed_port(port)  # raises the error

    async def exec(
        self, *command: str | Path, timeout: float | None = None, shell: bool | list[str] = True, user: Who = None
    ) -> ExecResult:
        """Run a command to its end, by default in a login shell. A timeout ends it with all its descendants."""
        args = self._prepare_exec_command(*command, shell=shell, user=None)
        return await self._exec_internal(*args, timeout=timeout, user=user)

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None, user: Who = None) -> ExecResult:
        args = [str(each) for each in command]
        result = await self._answered(args, self._as(user).run(args, timeout=timeout, cwd=self._cwd), timeout)
        stdout, stderr = mark_missing(result.stdout), mark_missing(result.stderr)
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=result.exit_code)

    async def _answered(self, args: Sequence[str], call: Awaitable[Any], timeout: float | None) -> Any:
        """Return what a call for a command returns, or a shell's result for a program that cannot be started."""
        try:
            found = await ended(call, fumehood.DirectoryNotFoundError)
        except fumehood.DirectoryNotFoundError as e:
            raise errors.WorkspaceRootNotFoundError(path=Path(self._cwd), cause=e) from e
        except fumehood.FumehoodError as e:
            raise errors.ExecTransportError(command=args, message=f"fumehood: {e}", cause=e) from e
        if isinstance(found, fumehood.Result) and found.timed_out:
            streams = {"stdout": found.stdout, "stderr": found.stderr}
            printed = {name: mark_missing(each).decode("utf-8", "replace") for name, each in streams.items()}
            raise errors.ExecTimeoutError(command=args, timeout_s=timeout, context=printed)
        return found

    def supports_pty(self) -> bool:
        """Report that commands can run on, with a terminal or without."""
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: Who = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        """Start a command, and return its output of the first seconds. timeout limits the time of the command."""
        args = self._prepare_exec_command(*command, shell=shell, user=None)
        started = self._as(user).start(args, stdin_open=tty, tty=tty, timeout=timeout, cwd=self._cwd)
        process = await self._answered(args, started, timeout)
        if isinstance(process, fumehood.Result):
            return PtyExecUpdate(None, process.stderr.data, process.exit_code, None)
        if len(self._running) >= pty_types.PTY_PROCESSES_MAX:
            await self._running.pop(next(iter(self._running))).kill()  # the one that was not used for longest
        number = pty_types.allocate_pty_process_id(set(self._running))
        self._running[number] = Running(process, args, timeout, tty)
        wait_ms = pty_types.clamp_pty_yield_time_ms(int(1000 * (10 if yield_time_s is None else yield_time_s)))
        return await self._update(number, wait_ms, max_output_tokens)

    async def pty_write_stdin(
        self, *, session_id: int, chars: str, yield_time_s: float | None = None, max_output_tokens: int | None = None
    ) -> PtyExecUpdate:
        """Write to a command's terminal, and return its output of the next moments."""
        running = self._resolve_pty_session_entry(pty_processes=self._running, session_id=session_id)
        wait_ms = int(1000 * (0.25 if yield_time_s is None else yield_time_s))
        if chars:
            if not running.tty:
                raise RuntimeError("stdin is not available for this process")  # the framework's tool expects this text
            await running.write(chars, wait_ms / 1000)
        wait_ms = pty_types.resolve_pty_write_yield_time_ms(yield_time_ms=wait_ms, input_empty=not chars)
        return await self._update(session_id, wait_ms, max_output_tokens)

    async def _update(self, number: int, wait_ms: int, tokens: int | None) -> PtyExecUpdate:
        running = self._running[number] = self._running.pop(number)  # now the last one
        running.tell()
        running.room = _OUTPUT
        output, count, ended = await running.collect(yield_time_ms=wait_ms, max_output_tokens=tokens)
        if not ended:
            return PtyExecUpdate(number, output, None, count)
        self._running.pop(number, None)
        result = await self._answered(running.args, running.reader, running.timeout)
        return PtyExecUpdate(None, output, result.exit_code, count)

    async def pty_terminate_all(self) -> None:
        """Kill the commands that run on, with all their descendants."""
        running, self._running = self._running, {}
        await asyncio.gather(*(each.kill() for each in running.values()))

    def _as(self, user: Who) -> fumehood.AsyncService:
        return self._sandbox.as_user(user.name if isinstance(user, User) else user or "")

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        return Path(await self._validate_remote_path_access(path, for_write=for_write))

    async def read(self, path: Path, *, user: Who = None) -> io.IOBase:
        """Return the content of a regular file of at most 1 GiB."""
        data = await self._read_bounded(path, max_bytes=_FILE + 1, user=user)
        if len(data) > _FILE:
            raise errors.WorkspaceArchiveReadError(path=path, context={"reason": "the file has more than 1 GiB"})
        return io.BytesIO(data)

    async def _read_bounded(self, path: Path, *, max_bytes: int, user: Who = None) -> bytes:
        checked = await self._validate_path_access(path)
        with translated(path, errors.WorkspaceArchiveReadError):
            return await self._as(user).read(sandbox_path_str(checked), length=max_bytes)

    async def write(self, path: Path, data: io.IOBase, *, user: Who = None) -> None:
        """Create or replace a file, and create missing directories above it."""
        stream: Any = coerce_write_payload(path=path, data=data).stream
        checked = await self._validate_path_access(path, for_write=True)
        with translated(path, errors.WorkspaceArchiveWriteError):
            await self._as(user).upload(stream, sandbox_path_str(checked))

    async def persist_workspace(self) -> io.IOBase:
        """Return the workspace as a tar archive, without ephemeral entries, sockets, pipes and devices."""
        root, staging = self._workspace_root_path(), f"/tmp/fumehood-{uuid.uuid4().hex}"
        skip = [f"./{sandbox_path_str(each)}" for each in self._persist_workspace_skip_relpaths()]
        archive: Any = _Archive(tempfile.TemporaryFile(buffering=0))  # noqa: SIM115  # it gets closed
        with translated(root, errors.WorkspaceArchiveReadError):
            try:
                copy = ["sh", "-c", _COPY, "sh", sandbox_path_str(root), f"{staging}/{root.name}", *skip]
                await self._exec_checked_nonzero(*copy)
                await self._sandbox.get_archive(f"{staging}/{root.name}", archive)
            finally:
                await self._exec_internal("rm", "-rf", staging)
            archive.seek(0)
            options = {"prefix": root.name, "relativize_symlinks_under": root}
            stripped: io.IOBase = await asyncio.to_thread(strip_tar_member_prefix, archive, **options)
            return stripped

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Extract a tar archive into the workspace. One whose members or links leave it is refused as a whole."""
        root = self._workspace_root_path()
        source: Any = coerce_write_payload(path=root, data=data).stream
        with translated(root, errors.WorkspaceArchiveWriteError), tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(shutil.copyfileobj, source, archive)
            archive.seek(0)
            with tarfile.open(fileobj=archive) as tar:
                await asyncio.to_thread(validate_tarfile, tar, allow_external_symlink_targets=False)
            archive.seek(0)
            await self._sandbox.mkdir(sandbox_path_str(root), parents=True)
            await self._sandbox.put_archive(sandbox_path_str(root), archive)
