"""Workspaces for pydantic-ai: `FumehoodWorkspace(client, image)` in the place of `LocalWorkspace(folder)`.

It is one of an agent's capabilities. Each new run gets a sandbox of its own, which ends with the client.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from . import AsyncClient, AsyncSandbox, FileInfo
from ._adapter import ended, translate
from ._errors import DirectoryNotFoundError, FumehoodError, NotDirectoryError
from ._framework import expect, importing

with importing("pydantic_ai", "pydantic-ai-slim"):
    import anyio
    from pydantic_ai import RunContext, workspaces
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.workspaces import CommandResult, FileEntry, WorkspaceBackend, WorkspaceRef
    from pydantic_ai.workspaces.protocol import validate_timeout

    expect(AbstractCapability.get_workspace, ["self", "ctx", "ref"])
    expect(workspaces.SupportsCommands.run, ["self", "command", "shell", "env", "timeout"])

PROVIDER = "fumehood"  # of refs; their id is the name of a sandbox


@dataclass(eq=False)
class FumehoodWorkspaceBackend:
    """A sandbox of Fumehood as a workspace, with commands and files.

    The first operation starts the sandbox, or finds the one that ref names: one of the client, or a kept one if the
    client's server allows these. options are further ones of AsyncClient.start, such as limits, cwd and network.
    """

    client: AsyncClient
    image: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    ref: WorkspaceRef | None = None  # None until the sandbox has started
    _sandbox: AsyncSandbox | None = field(default=None, init=False)
    _dir: str = field(default="", init=False)
    _starting: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    @contextlib.asynccontextmanager
    async def _opened(self) -> AsyncIterator[AsyncSandbox]:
        """Return the sandbox, and translate the errors of one that is gone."""
        if self._sandbox is None:
            async with self._starting:
                if self.ref is None:
                    await self._start()
        with translate(workspaces.WorkspaceUnavailableError):
            assert self.ref
            self._sandbox = self._sandbox or await self.client.get(self.ref.id)
            yield self._sandbox

    async def _start(self) -> None:
        """Start the sandbox. A caller that is canceled waits for it, so that its ref is not lost."""
        options = {"image": self.image, **self.options}
        if not options.get("images"):  # pulls and builds take long, and may be canceled
            options["images"] = await self.client.prepare(self.image, compose=options.get("compose"))
        failed: list[Exception] = []

        async def start() -> None:
            with anyio.CancelScope(shield=True):
                try:
                    self._sandbox = await self.client.start(**options)
                    self._sandbox.disown()  # the next run continues in it
                    self.ref = WorkspaceRef(provider=PROVIDER, id=self._sandbox.info.name)
                except (FumehoodError, TypeError) as e:
                    failed.append(e)

        async with anyio.create_task_group() as group:
            group.start_soon(start)
        if failed:
            raise failed[0]

    async def working_dir(self) -> str:
        """Return the sandbox's working directory, without symbolic links."""
        if not self._dir:
            found = await self.run("pwd -P", shell=True)
            if found.exit_code:
                raise workspaces.WorkspaceError(f"working directory: unknown: {found.stderr}")
            self._dir = found.stdout.removesuffix("\n")
        return self._dir

    async def run(
        self,
        command: str | Sequence[str],
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> CommandResult:
        """Run a command to its end. A timeout and a cancellation end it with all its descendants."""
        if isinstance(command, str) != shell:
            raise TypeError("command: a text needs shell=True, a sequence shell=False")
        validate_timeout(timeout)
        args = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        async with self._opened() as sandbox:
            # A local workspace raises a FileNotFoundError for a missing working directory, too.
            result = await ended(sandbox.run(args, env=env, timeout=timeout), DirectoryNotFoundError)
        stdout, stderr = result.stdout.text, result.stderr.text
        if result.timed_out:
            raise workspaces.WorkspaceTimeoutError(f"timed out after {timeout:g} s", stdout=stdout, stderr=stderr)
        if result.stdout.truncated or result.stderr.truncated:
            ends = {"stdout": stdout[-65536:], "stderr": stderr[-65536:]}  # beginnings are not kept
            raise workspaces.WorkspaceOutputLimitError("output exceeds 10 MiB: use a file", limit=10 << 20, **ends)
        return CommandResult(exit_code=result.exit_code, stdout=stdout, stderr=stderr)

    async def read_bytes(self, path: str) -> bytes:
        """Return the content of a regular file."""
        async with self._opened() as sandbox:
            return await sandbox.read(path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        """Create or replace a file, and create missing directories above it."""
        async with self._opened() as sandbox:
            await sandbox.write(path, data)

    async def stat(self, path: str) -> FileEntry:
        """Describe a file, or the one that a symbolic link leads to."""
        async with self._opened() as sandbox:
            return await self._entry(sandbox, path, await sandbox.stat(path), NotDirectoryError)

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        """Describe the entries of a directory, sorted by name."""
        async with self._opened() as sandbox:
            found = await sandbox.listdir(path)
            return [await self._entry(sandbox, f"{path.rstrip('/')}/{each.name}", each, OSError) for each in found]

    async def _entry(self, sandbox: AsyncSandbox, path: str, info: FileInfo, no_dir: type[OSError]) -> FileEntry:
        """Describe a file. no_dir is the error of a symbolic link that stands for a file."""
        is_dir = info.is_dir
        if info.type == "symlink":
            with contextlib.suppress(no_dir):
                is_dir = (await sandbox.stat(f"{path}/.")).is_dir
        return FileEntry(name=info.name, path=path, is_dir=is_dir, size=info.size if info.is_file else None)

    async def make_dir(self, path: str) -> None:
        """Create a directory, with those above it. An existing one is no error."""
        async with self._opened() as sandbox:
            try:
                await sandbox.mkdir(path, parents=True)
            except NotDirectoryError:
                if await self.exists(path):
                    raise FileExistsError(path) from None
                raise

    async def remove(self, path: str) -> None:
        """Remove a file, a symbolic link or a tree, but not the working directory or one above it."""
        root = await self.working_dir()
        async with self._opened() as sandbox:
            if (await sandbox.stat(path)).is_dir:
                real = await workspaces.Workspace(self).realpath(path)
                if f"{root}/".startswith(f"{real.rstrip('/')}/"):
                    raise ValueError(f"cannot remove {path}: it is the working directory or one above it")
            await sandbox.remove(path, recursive=True)

    async def exists(self, path: str) -> bool:
        """Report whether a file or directory exists. A symbolic link that leads nowhere does not."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            await self.stat(path)
            return True
        return False


@dataclass
class FumehoodWorkspace(AbstractCapability[Any]):
    """Gives each run a sandbox of Fumehood as its workspace.

    A run whose history has an earlier one of the same client, or that is given its ref, continues in its sandbox.
    """

    client: AsyncClient  # which the sandboxes end with
    image: str = ""
    _: KW_ONLY
    options: Mapping[str, Any] = field(default_factory=dict)  # further ones of AsyncClient.start
    id: str | None = "fumehood_workspace"

    @classmethod
    def combine(cls, capabilities: Sequence[Any]) -> Any:
        """Return the last one, which replaces earlier ones as a whole."""
        return capabilities[-1]

    def get_workspace(self, ctx: RunContext[Any], *, ref: WorkspaceRef | None) -> WorkspaceBackend | None:
        """Return the workspace of a run, or None for a ref of another provider."""
        if ref is not None and ref.provider != PROVIDER:
            return None
        return FumehoodWorkspaceBackend(self.client, self.image, options=self.options, ref=ref)
