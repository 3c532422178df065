"""Agents of pydantic-ai in sandboxes of Fumehood."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import AsyncIterator
from importlib import metadata
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import (
    SupportsCommands,
    Workspace,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

import tests  # noqa: F401
from fumehood import AsyncClient, ConfigError, Limits, Result
from fumehood.pydantic_ai import FumehoodWorkspace, FumehoodWorkspaceBackend
from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, Driver, Ending, check_killed, documented, is_error
from tests.real import IMAGE

HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "pydantic_ai.md"
PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
OPTIONS = {"cwd": "/work"}

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with AsyncClient() as client:
        yield client


@pytest.fixture
def backend(client: AsyncClient) -> FumehoodWorkspaceBackend:
    return FumehoodWorkspaceBackend(client, IMAGE, OPTIONS)


async def shell(ctx: RunContext[None], command: str, timeout: float = 60) -> str:  # noqa: ASYNC109
    try:
        result = await ctx.workspace.run(command, shell=True, timeout=timeout)
    except WorkspaceTimeoutError as e:
        return f"{e}: {e.stdout}"
    return f"{result.exit_code} {result.stdout}{result.stderr}"


async def write(ctx: RunContext[None], path: str, text: str) -> None:
    await ctx.workspace.write_text(path, text)


async def replace(ctx: RunContext[None], path: str, old: str, new: str) -> str:
    text: str = (await ctx.workspace.read_text(path)).replace(old, new)
    await ctx.workspace.write_text(path, text)
    return text


async def search(ctx: RunContext[None], text: str) -> list[str]:
    files = [each.path for each in await ctx.workspace.list_dir(".") if not each.is_dir]
    return [path for path in files if text in await ctx.workspace.read_text(path)]


def scripted(*steps: tuple[str, dict[str, Any]] | str) -> FunctionModel:
    """Return a model that calls tools, and says something for each text."""
    left = [TextPart(step) if isinstance(step, str) else ToolCallPart(*step) for step in steps]
    return FunctionModel(lambda messages, info: ModelResponse(parts=[left.pop(0)]))


def returned(result: Any) -> list[Any]:
    parts = [part for message in result.new_messages() for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


async def test_agent(client: AsyncClient) -> None:
    """An agent writes, runs, edits and searches files, and a later run continues in its sandbox."""
    model = scripted(
        ("write", {"path": "sub/main.py", "text": "print(6*9)"}),
        ("shell", {"command": "cp sub/main.py main.py; python3 main.py"}),
        ("replace", {"path": "main.py", "old": "9", "new": "7"}),
        ("search", {"text": "6*7"}),
        ("shell", {"command": "echo before; setsid sleep 771 & sleep 771", "timeout": 1}),
        ("shell", {"command": PROCESSES}),
        "done",
        ("shell", {"command": "python3 main.py"}),
        "done",
        ("shell", {"command": "ls -A"}),
        "done",
    )
    sandboxes = FumehoodWorkspace(client, IMAGE, options=OPTIONS)
    agent = Agent(model, tools=[shell, write, replace, search], capabilities=[sandboxes])
    first = await agent.run("do it")
    *results, listed = returned(first)
    assert results[1:] == ["0 54\n", "print(6*7)", ["/work/main.py"], "timed out after 1 s: before\n"]
    assert listed.startswith("0 ")
    assert "sleep 771" not in listed
    second = await agent.run("again", message_history=first.all_messages())
    assert returned(second) == ["0 42\n"]
    assert second.workspace.ref == first.workspace.ref
    other = await agent.run("in a new one")
    assert returned(other) == ["0 "]
    assert other.workspace.ref != first.workspace.ref
    assert len(await client.sandboxes()) == 2


async def test_run(backend: FumehoodWorkspaceBackend) -> None:
    await backend.write_bytes("/work/text", b"no program")
    assert (await backend.run(["./text"])).exit_code == 126
    assert (await backend.run("kill -9 $$", shell=True)).exit_code == 137
    assert (await backend.run("kill -9 -1", shell=True)).exit_code == 137  # the command's supervisor is killed as well
    with pytest.raises(WorkspaceOutputLimitError) as caught:
        await backend.run("head -c 11000000 /dev/zero; echo; echo end; echo err >&2", shell=True)
    assert caught.value.stdout.endswith("\nend\n")
    assert len(caught.value.stdout) <= 64 << 10
    assert caught.value.stderr == "err\n"
    with pytest.raises(ValueError, match="positive"):
        await backend.run(["true"], timeout=float("nan"))
    with pytest.raises(FileNotFoundError):
        await Workspace(backend).run(["true"], cwd="missing")
    with anyio.move_on_after(1) as scope:
        await backend.run("setsid sleep 772 & sleep 772", shell=True)
    assert scope.cancelled_caught
    assert "sleep 772" not in (await backend.run(PROCESSES, shell=True)).stdout
    await backend.run(["rm", "-r", "/work"])
    with pytest.raises(FileNotFoundError):
        await backend.run(["true"])


@pytest.mark.parametrize("end", ENDS)
async def test_ends(end: str) -> None:
    """Commands end as the page about frameworks says."""
    client, sandbox, cell = AsyncClient(), Ending(end), documented("pydantic_ai")[end]
    backend = FumehoodWorkspaceBackend(client, ref=WorkspaceRef(provider="fumehood", id="x"))
    backend._sandbox = sandbox  # type: ignore[assignment]
    try:
        found = await backend.run(["command"], timeout=1)
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert str(found.exit_code) == cell
        assert found.stderr or isinstance(ENDS[end], Result)


@pytest.mark.parametrize("end", REAL)
async def test_ends_real(client: AsyncClient, end: str) -> None:
    backend = FumehoodWorkspaceBackend(client, IMAGE, {**OPTIONS, "limits": Limits(MEMORY, pids=PIDS)})
    await backend.working_dir()
    assert backend.ref

    async def execute(args: list[str], timeout: float | None) -> str:  # noqa: ASYNC109
        return str((await backend.run(args, timeout=timeout)).exit_code)

    await Driver("pydantic_ai", backend.ref.id, execute).check(end)


async def test_files(backend: FumehoodWorkspaceBackend) -> None:
    links = "mkdir dir; echo 12 >file; ln -s dir d; ln -s file f; ln -s missing m; ln -s loop loop; ln -s / root"
    await backend.run(links, shell=True)
    listed = {each.name: (each.is_dir, each.size) for each in await backend.list_dir("/work")}
    expected = dict.fromkeys(["dir", "d", "root"], (True, None)) | dict.fromkeys(["f", "m", "loop"], (False, None))
    assert listed == {**expected, "file": (False, 3)}
    for name, exists in [("d", True), ("f", True), ("m", False), ("loop", False), ("file/x", False), ("no", False)]:
        assert await backend.exists(f"/work/{name}") == exists, name
    assert (await backend.stat("/")).is_dir
    with pytest.raises(ValueError, match="working directory or one above it"):
        await backend.remove("/work/root/work")
    await backend.remove("/work/root")  # the link alone
    assert await backend.exists("/work")


async def test_start_canceled(client: AsyncClient) -> None:
    """A canceled first operation has no sandbox, or one whose ref is known."""
    for delay in (0.001, 0.02, 0.05, 0.1):
        backend = FumehoodWorkspaceBackend(client, IMAGE)
        with anyio.move_on_after(delay):
            await backend.run(["true"])
        assert {each.name for each in await client.sandboxes()} == ({backend.ref.id} if backend.ref else set())
        await backend.working_dir()
        (only,) = await client.sandboxes()
        assert backend.ref == WorkspaceRef(provider="fumehood", id=only.name)
        await (await client.get(only.name)).close()


async def test_start_fails(client: AsyncClient) -> None:
    """A sandbox that does not start is an error of its own, and may be tried again."""
    cases: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"user": "nobody-knows"}, ConfigError),
        ({"no_such_option": 1}, TypeError),
    ]
    for options, error in cases:
        backend = FumehoodWorkspaceBackend(client, IMAGE, options)
        for _ in range(2):
            with pytest.raises(error):
                await backend.working_dir()
        assert backend.ref is None
    with pytest.raises(WorkspaceUnavailableError, match="find sandbox gone: the lease has none with this id"):
        await FumehoodWorkspaceBackend(client, ref=WorkspaceRef(provider="fumehood", id="gone")).working_dir()


async def test_ref(client: AsyncClient) -> None:
    """A ref of another provider is left to its own."""
    offered = FumehoodWorkspace(client, IMAGE).get_workspace
    ctx: Any = None
    assert offered(ctx, ref=WorkspaceRef(provider="local", id="/")) is None
    ref = WorkspaceRef(provider="fumehood", id="x")
    found = offered(ctx, ref=ref)
    assert found
    assert found.ref == ref


async def test_kept() -> None:
    """Another client continues in a kept sandbox."""
    async with AsyncClient(allow_kept=True) as first:
        backend = FumehoodWorkspaceBackend(first, IMAGE, {"keep": True, "ttl": 600})
        await backend.write_bytes("/file", b"kept")
    async with AsyncClient(allow_kept=True) as second:
        again = FumehoodWorkspaceBackend(second, ref=backend.ref)
        try:
            assert await again.read_bytes("/file") == b"kept"
        finally:
            assert backend.ref
            await (await second.get(backend.ref.id)).close()
        with pytest.raises(WorkspaceUnavailableError):
            await again.run(["true"])


KILLED = f"""
import asyncio
from fumehood import AsyncClient
from fumehood.pydantic_ai import FumehoodWorkspaceBackend

async def main():
    backend = FumehoodWorkspaceBackend(AsyncClient(), "{IMAGE}")
    running = asyncio.create_task(backend.run("touch /started; sleep 773", shell=True))
    while not await backend.exists("/started"):
        await asyncio.sleep(0.02)
    print("started", backend.ref.id, flush=True)
    await running

asyncio.run(main())
"""


def test_killed() -> None:
    """A process that is killed while a command runs leaves no container."""
    check_killed(KILLED)


def test_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed framework is one clear error."""

    def changed(self: Any, command: str, *, shell: bool = False, cwd: str = "") -> None: ...

    monkeypatch.delitem(sys.modules, "fumehood.pydantic_ai")
    monkeypatch.setattr(SupportsCommands, "run", changed)
    version = metadata.version("pydantic-ai-slim")
    text = (
        f"fumehood.pydantic_ai: the interface of pydantic-ai-slim {version} is not supported: the parameters of .*cwd"
    )
    with pytest.raises(ImportError, match=text):
        importlib.import_module("fumehood.pydantic_ai")

    def missing(distribution: str) -> str:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ImportError, match=r"pydantic-ai-slim is not installed: pip install 'pydantic-ai-slim"):
        importlib.import_module("fumehood.pydantic_ai")


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the how-to runs as it is, on the test image."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = block.replace("python:3.12-slim", IMAGE)
    assert code != block
    exec(compile(code, "pydantic_ai.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert capsys.readouterr().out == "The answer is 42.\nprint(6 * 7)\n"
