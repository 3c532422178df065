"""Agents of deepagents in sandboxes of Fumehood."""

from __future__ import annotations

import asyncio
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from deepagents.backends.sandbox import BaseSandbox
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage

import tests  # noqa: F401
from fumehood import Client, ClosedError, Limits, Result
from fumehood.deepagents import FumehoodSandbox
from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, BlockingEnding, Driver, check_killed, documented, is_error
from tests.real import IMAGE

HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "deepagents.md"
PROCESSES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture
def backend(client: Client) -> Iterator[FumehoodSandbox]:
    with client.start(IMAGE, cwd="/work") as sandbox:
        yield FumehoodSandbox(sandbox)


class Scripted(FakeMessagesListChatModel):
    """A model that calls tools."""

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self


def scripted(*steps: tuple[str, dict[str, Any]]) -> Scripted:
    """Return a model that calls tools and ends."""
    calls = [{"name": tool, "args": arguments, "id": str(n)} for n, (tool, arguments) in enumerate(steps)]
    return Scripted(responses=[*(AIMessage("", tool_calls=[call]) for call in calls), AIMessage("done")])


MAIN = "import sys\nprint(6*9, file=sys.stderr, flush=True)\nprint(1)\n"
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("write_file", {"file_path": "/work/sub/main.py", "content": MAIN}),
    ("execute", {"command": "python3 sub/main.py"}),
    ("edit_file", {"file_path": "/work/sub/main.py", "old_string": "6*9", "new_string": "6*7"}),
    ("read_file", {"file_path": "/work/sub/main.py"}),
    ("grep", {"pattern": "6*7", "path": "/work"}),
    ("glob", {"pattern": "**/*.py", "path": "/work"}),
    ("ls", {"path": "/work"}),
    ("execute", {"command": "echo before; setsid sleep 871 & sleep 871", "timeout": 1}),
    ("execute", {"command": PROCESSES}),
]


@pytest.mark.parametrize("sync", [True, False])
async def test_agent(backend: FumehoodSandbox, sync: bool) -> None:
    """An agent writes, runs, edits and searches files with the tools of deepagents."""
    agent = create_deep_agent(scripted(*STEPS), backend=backend)
    given = {"messages": [("user", "do it")]}
    result = await asyncio.to_thread(agent.invoke, given) if sync else await agent.ainvoke(given)
    found = [message.content for message in result["messages"] if isinstance(message, ToolMessage)]
    assert len(found) == len(STEPS)
    assert found[1].startswith("54\n1\n")
    assert "exit code 0" in found[1]
    assert "print(6*7" in found[3]
    assert "/work/sub/main.py" in found[4]
    assert "/work/sub/main.py" in found[5]
    assert "/work/sub" in found[6]
    assert found[7].startswith("before\n\nError: Command timed out after 1 seconds")
    assert "exit code 124" in found[7]
    assert "exit code 0" in found[8]
    assert "sleep 871" not in found[8]
    assert result["messages"][-1].content == "done"


def test_execute(backend: FumehoodSandbox) -> None:
    for command, output, code in [
        ("echo out; echo err >&2; echo again", "out\nerr\nagain\n", 0),
        ("exit 124", "", 124),
        ("kill -9 $$", "", 137),
        ("kill -9 -1", "", 137),  # it kills the command's supervisor as well, and not the sandbox
        ("cat; echo end", "end\n", 0),
        ("sleep 872 & echo started", "started\n", 0),
    ]:
        found = backend.execute(command)
        assert (found.output, found.exit_code, found.truncated) == (output, code, False), command
    assert "syntax error" in backend.execute("if").output.lower()
    assert ": 1: " in backend.execute("no-such-program").output
    found = backend.execute("python3 -c 'x = bytearray(3 << 30)'")
    assert (found.exit_code, "Out of memory" in found.output) == (137, True)
    found = backend.execute("head -c 11000000 /dev/zero; echo end")
    assert found.truncated
    assert found.output.endswith("end\n")
    assert FumehoodSandbox(backend.sandbox, timeout=0.5).execute("sleep 873").exit_code == 124
    assert FumehoodSandbox(backend.sandbox, timeout=0.5).execute("sleep 1", timeout=0).exit_code == 0
    for command, error in [("echo a\0b", "NUL"), ("true", "not positive")]:
        with pytest.raises(ValueError, match=error):
            backend.execute(command, timeout=-1 if command == "true" else None)
    backend.execute("rm -r /work")
    assert backend.execute("true").exit_code == 127
    backend.sandbox.close()
    with pytest.raises(ClosedError):
        backend.execute("true")
    with pytest.raises(ClosedError):
        backend.download_files(["/etc/passwd"])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("sync", [True, False])
async def test_ends(end: str, sync: bool) -> None:
    """Commands end as the page about frameworks says."""
    sandbox: Any = BlockingEnding(end)
    backend, cell = FumehoodSandbox(sandbox), documented("deepagents")[end]
    try:
        found = backend.execute("command") if sync else await backend.aexecute("command")
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert ("`truncated`" if found.truncated else str(found.exit_code)) == cell
        assert found.output or isinstance(ENDS[end], Result)


@pytest.mark.parametrize("end", REAL)
async def test_ends_real(client: Client, end: str) -> None:
    with client.start(IMAGE, cwd="/work", limits=Limits(MEMORY, pids=PIDS)) as sandbox:
        backend = FumehoodSandbox(sandbox)

        async def execute(args: list[str], timeout: float | None) -> str:
            found = await backend.aexecute(shlex.join(args), timeout=int(timeout or 0))
            return "`truncated`" if found.truncated else str(found.exit_code)

        await Driver("deepagents", sandbox.name, execute).check(end)


def test_files(backend: FumehoodSandbox) -> None:
    backend.execute("mkdir dir; mkfifo pipe; touch file; head -c 1G /dev/zero >/dev/shm/full")
    files = {
        "/work/new/file": None,
        "/work/dir": "is_directory",
        "/work/file/x": "invalid_path",
        "/work/pipe": "invalid_path",
        "/sys/x": "permission_denied",
        "relative": "invalid_path",
        "/nul\0": "invalid_path",
    }
    uploaded = backend.upload_files([(path, b"data") for path in files])
    assert {each.path: each.error for each in uploaded} == files
    (full,) = backend.upload_files([("/dev/shm/more", b"data")])
    assert full.error is not None
    assert "no space left" in full.error
    downloaded = backend.download_files(["/work/new/file", "/work/missing", "/work/dir"])
    assert [(each.content, each.error) for each in downloaded] == [
        (b"data", None),
        (None, "file_not_found"),
        (None, "is_directory"),
    ]


async def test_canceled(backend: FumehoodSandbox) -> None:
    """A task that is canceled ends its command, in whatever state this is."""
    for delay in (0, 0.001, 0.02, 0.5):
        tasks = [asyncio.create_task(backend.aexecute("setsid sleep 874 & sleep 874")) for _ in range(8)]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results)
        assert "sleep 874" not in (await backend.aexecute(PROCESSES)).output
    many = await asyncio.gather(*(backend.aexecute(f"echo {n}") for n in range(100)))
    assert [each.output for each in many] == [f"{n}\n" for n in range(100)]


KILLED = f"""
from fumehood import Client
from fumehood.deepagents import FumehoodSandbox
import threading, time

backend = FumehoodSandbox(Client().start("{IMAGE}"))
threading.Thread(target=backend.execute, args=["touch /started; sleep 875"], daemon=True).start()
while backend.download_files(["/started"])[0].error:
    time.sleep(0.02)
print("started", backend.id, flush=True)
time.sleep(600)
"""


def test_killed() -> None:
    """A process that is killed while a command runs leaves no container."""
    check_killed(KILLED)


def test_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed framework is one clear error."""

    def changed(self: Any, command: str, *, timeout: int | None = None, cwd: str = "") -> None: ...

    monkeypatch.delitem(sys.modules, "fumehood.deepagents")
    monkeypatch.setattr(BaseSandbox, "execute", changed)
    text = f"the interface of deepagents {metadata.version('deepagents')} is not supported: the parameters of .*cwd"
    with pytest.raises(ImportError, match=f"fumehood.deepagents: {text}"):
        importlib.import_module("fumehood.deepagents")

    def missing(distribution: str) -> str:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "deepagents.backends.protocol", None)
    with pytest.raises(ImportError, match=r"deepagents is not installed: pip install 'deepagents"):
        importlib.import_module("fumehood.deepagents")


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the how-to runs as it is, on the test image."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = block.replace("python:3.12-slim", IMAGE)
    assert code != block
    exec(compile(code, "deepagents.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert capsys.readouterr().out == "The answer is 42.\nprint(6 * 7)\n"
