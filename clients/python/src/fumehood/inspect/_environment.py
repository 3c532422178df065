"""The sandbox environment."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import anyio
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.util import (
    ExecRemoteAwaitableOptions,
    ExecRemoteProcess,
    ExecRemoteStreamingOptions,
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from inspect_ai.util._sandbox.environment import HostMapping, PortMapping, sandbox_prebuilt

from .. import (
    AsyncClient,
    AsyncSandbox,
    AsyncService,
    ConfigError,
    FumehoodError,
    NotExecutableError,
    Output,
    ProgramNotFoundError,
    Result,
    StaleError,
    TooLargeError,
    UnsupportedError,
)
from .._adapter import GONE, ended, explain, start_failure
from ._clients import this_loop
from ._config import ALLOW, CONFIG_FILES, FIELDS, FumehoodConfig, plan
from ._remote import RemoteProcess, available

if TYPE_CHECKING:
    from pydantic import BaseModel

LABEL = "inspect_ai"  # its value is the task's name
MAX_OUTPUT = 64 << 20  # bytes of a stream that the server keeps


def check_null(*texts: str) -> None:
    """Raise the error of Python's own subprocess for texts that no program can get."""
    if any("\0" in text for text in texts):
        raise ValueError("embedded null byte")


def limited(output: Output, limit: int) -> tuple[str, bool]:
    """Return the end of output as text of at most limit bytes, and whether it is all of it.

    U+FFFD in the place of one invalid byte has three bytes.
    """
    data = output.text.encode()
    if len(data) > limit:
        return data[-limit:].decode("utf-8", "ignore"), False
    return output.text, not output.truncated


@sandboxenv(name="fumehood")
class FumehoodSandboxEnvironment(SandboxEnvironment):
    """A service of a sandbox of Fumehood."""

    def __init__(self, sandbox: AsyncSandbox, service: AsyncService) -> None:
        super().__init__()
        self.sandbox = sandbox
        self.service = service

    # Tasks and samples

    @classmethod
    def config_files(cls) -> list[str]:
        """Return the files that configure a sandbox, in the order of their precedence."""
        return list(CONFIG_FILES)

    @classmethod
    def is_docker_compatible(cls) -> bool:
        """Report that Compose files and Dockerfiles are accepted."""
        return True

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Return how many sandboxes run at a time: as many as with inspect's Docker provider."""
        return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Return the configuration that was written as JSON."""
        return FumehoodConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Check the configuration, and pull or build its images."""
        loop = this_loop()
        loop.folders.add(os.getcwd())  # noqa: PTH109  # inspect calls this in the task's folder
        try:
            made = plan(config, None, sandbox_prebuilt(), loop.folders)
            if not made.missing:
                client = loop.client(*made.flags)
                loop.images[made.key] = await client.prepare(made.image, compose=made.compose)
        except (FumehoodError, ValueError) as e:
            text = explain(e, FIELDS, ALLOW) if isinstance(e, FumehoodError) else str(e)
            raise PrerequisiteError(f"fumehood: {text}") from e
        else:
            loop.users += 1
        finally:
            if not loop.users:
                await loop.close()

    @classmethod
    async def task_init_environment(cls, config: BaseModel | str | None, metadata: dict[str, str]) -> dict[str, str]:
        """Return the variables of a sample that its images depend on."""
        try:
            return dict(plan(config, metadata).variables)
        except ConfigError as e:
            raise PrerequisiteError(f"fumehood: {e}") from e

    @classmethod
    async def task_cleanup(cls, task_name: str, config: BaseModel | str | None, cleanup: bool) -> None:
        """End the servers after the last configuration of the event loop."""
        loop = this_loop()
        loop.users = max(loop.users - 1, 0)
        if loop.users:
            return
        if not cleanup:
            for client in loop.clients.values():
                await cls._report(await client.sandboxes())
        await loop.close()

    @classmethod
    async def _report(cls, sandboxes: list[Any]) -> None:
        """Print which sandboxes stay after --no-sandbox-cleanup."""
        for each in sandboxes:
            if each.kept:
                remove = f"inspect sandbox cleanup fumehood {each.name}"
                print(f"{each.name}: kept until {each.expires}; remove it: {remove}")  # noqa: T201
            else:
                print(f"{each.name}: removed, because FumehoodConfig.keep is not set")  # noqa: T201

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start a sample's sandbox and return its services, the default one first."""
        loop = this_loop()
        made = plan(config, metadata, sandbox_prebuilt(), loop.folders)
        images, client, labels = loop.images, loop.client(*made.flags), {LABEL: task_name[:60]}
        try:
            with available():
                try:
                    sandbox = await client.start(**made.start(images.get(made.key), labels))
                except StaleError:  # the lease that they were prepared for is gone
                    images[made.key] = await client.prepare(made.image, compose=made.compose)
                    sandbox = await client.start(**made.start(images[made.key], labels))
        except FumehoodError as e:
            raise RuntimeError(f"fumehood: {explain(e, FIELDS, ALLOW)}") from e
        services = [sandbox.service(each.name) for each in sandbox.info.services]
        user = made.config.user if made.compose is None else ""
        return {each.name: cls(sandbox, each.as_user(user) if user else each) for each in services}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Remove a sample's sandbox."""
        sandboxes = {each.sandbox.info.id: each.sandbox for each in environments.values()}
        with anyio.CancelScope(shield=True):
            for sandbox in sandboxes.values():
                await sandbox.close()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:  # noqa: A002
        """Remove the kept sandbox of a name, or all kept ones of evaluations."""
        async with AsyncClient(allow_kept=True) as client:
            for info in await client.sandboxes():
                if LABEL in info.labels and id in (None, info.name, info.id):
                    await (await client.get(info.name)).close()
                    print(f"removed {info.name}")  # noqa: T201

    # Commands and files

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,  # noqa: A002
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command to its end. One that timed out is not run again; concurrency needs no limit here.

        A stream that exceeds inspect's limit, or 64 MiB, is an OutputLimitExceededError with the end of the output.
        """
        limit = min(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, MAX_OUTPUT)

        async def run() -> Result:
            options = {**self._options(cmd, cwd, env, user), "stdout_cap": limit, "stderr_cap": limit}
            return await self.service.run(cmd, stdin=input, timeout=timeout or None, **options)

        try:
            with available():
                result = await ended(run(), NotExecutableError)
        except UnsupportedError as e:
            if user:
                raise SandboxUserUnsupportedError(str(e)) from e
            raise
        except TooLargeError as e:  # control characters are longer in the answer
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, None) from e
        return self._result(result, limit, timeout)

    def _options(
        self, cmd: list[str], cwd: str | None, env: Mapping[str, str] | None, user: str | None
    ) -> dict[str, Any]:
        """Return options of a command, which has a program."""
        if not cmd:
            raise ProgramNotFoundError("the command is empty")
        check_null(*cmd, cwd or "", user or "", *(env or {}), *(env or {}).values())
        return {"cwd": cwd or "", "env": env, "user": user or ""}

    def _result(self, result: Result, limit: int, timeout: float | None) -> ExecResult[str]:
        """Return how a command ended, or raise the error of one that timed out or wrote too much."""
        (stdout, all_out), (stderr, all_err) = limited(result.stdout, limit), limited(result.stderr, limit)
        if result.timed_out:
            error = TimeoutError(f"Command timed out after {timeout} seconds")
            error.truncated_output = stdout + stderr  # type: ignore[attr-defined]
            raise error
        if not (all_out and all_err):
            ours = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE > MAX_OUTPUT
            text = "64 MiB" if ours else SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(text, stdout + stderr)
        return ExecResult(result.success, result.exit_code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Create or replace a file, as the service's user."""
        check_null(file)
        with available():
            await self.service.write(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Return the content of a regular file.

        As with inspect's Docker provider, a file that its owner may not read is a PermissionError also for root.
        """
        check_null(file)
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        with available():
            info = await self.service.stat(file)
            if info.is_file and not info.mode & 0o400:
                raise PermissionError(13, "Permission denied", file)
            data = await self.service.read(file, length=limit + 1)
        if len(data) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return data.decode() if text else data

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """Describe how a person connects to the service."""
        try:
            found = await (self.service.as_user(user) if user else self.service).connection()
        except GONE as e:
            raise ConnectionError(f"service {self.service.name!r} is not running: {e}") from e
        if not found.shell:
            raise NotImplementedError("no command leads into this sandbox: only kept sandboxes have one")
        ports: dict[tuple[int, str], list[HostMapping]] = {}
        for port in found.ports:
            mapping = HostMapping(host_ip=port.address, host_port=port.host)
            ports.setdefault((port.container, port.protocol), []).append(mapping)
        mapped = [PortMapping(container_port=c, protocol=p, mappings=found) for (c, p), found in ports.items()]
        # The editor attaches as the container's user only.
        attach = None if user else ["remote-containers.attachToRunningContainer", found.container]
        return SandboxConnection(
            type="fumehood",
            command=shlex.join(found.shell),
            vscode_command=attach,
            ports=mapped or None,
            container=found.container,
        )

    def default_polling_interval(self) -> float:
        """Return how often services of the sandbox are polled, in seconds."""
        return 0.1

    async def exec_remote(
        self,
        cmd: list[str],
        options: ExecRemoteStreamingOptions | ExecRemoteAwaitableOptions | None = None,
        *,
        stream: bool = True,
    ) -> ExecRemoteProcess | ExecResult[str]:
        """Start a command and return while it runs or, without stream, run it to its end.

        No program is put into the sandbox, and output arrives without polling.
        """
        o = options or ExecRemoteStreamingOptions()
        if not stream:
            timeout = getattr(o, "timeout", None)
            try:
                return await self.exec(cmd, o.input, o.cwd, o.env, o.user, timeout)
            except NotExecutableError as e:
                return self._result(start_failure(e), MAX_OUTPUT, timeout)

        async def start() -> RemoteProcess:
            opened, chosen = bool(getattr(o, "stdin_open", False)), self._options(cmd, o.cwd, o.env, o.user)
            return await RemoteProcess.start(self.service, cmd, opened, o.input, chosen)

        with available():
            found = await ended(start())
        return RemoteProcess.from_result(found) if isinstance(found, Result) else found
