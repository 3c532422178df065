"""Agents of openai-agents in sandboxes of Fumehood."""

from __future__ import annotations

import asyncio
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agents import RunConfig, Runner, RunState, function_tool, set_tracing_disabled
from agents.run_config import SandboxRunConfig
from agents.sandbox import Group, Manifest, Permissions, SandboxAgent, SandboxPathGrant, User, errors
from agents.sandbox.entries import (
    Dir,
    DockerVolumeMountStrategy,
    File,
    InContainerMountStrategy,
    LocalDir,
    RcloneMountPattern,
    S3Mount,
)
from agents.sandbox.session import BaseSandboxSession, Dependencies
from agents.sandbox.snapshot import LocalSnapshotSpec, NoopSnapshotSpec, RemoteSnapshotSpec, resolve_snapshot
from agents.testing import ScriptedModel, assistant_message, function_call

import fumehood.openai_agents
import tests  # noqa: F401
from fumehood import AsyncClient, ConfigError, Result
from fumehood.openai_agents import FumehoodSandboxClient, FumehoodSandboxClientOptions, FumehoodSandboxSessionState
from fumehood.openai_agents._session import FumehoodSandboxSession
from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, Driver, Ending, documented, is_error
from tests.real import BINARY, BOMB, IMAGE, PROVIDER, kill, native_sandboxes, wait_for

FOLDER = Path(__file__).parent / "openai_agents"
HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "openai_agents.md"
LABEL = f"t{os.getpid()}"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LIST = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"

set_tracing_disabled(True)
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Remove kept sandboxes of a test that failed."""
    yield
    for container in containers():
        remove = [BINARY, "cleanup"] if PROVIDER == "native" else ["docker", "rm", "-f"]
        subprocess.run([*remove, container], check=True, capture_output=True)


@pytest.fixture
async def client(anyio_backend: str) -> AsyncIterator[FumehoodSandboxClient]:
    client = FumehoodSandboxClient()
    yield client
    await client.close()


def options(**given: Any) -> FumehoodSandboxClientOptions:
    return FumehoodSandboxClientOptions(IMAGE, labels={"test": LABEL}, **given)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def containers() -> list[str]:
    """Return the containers of these tests."""
    if PROVIDER == "native":
        return native_sandboxes()
    return output("docker", "ps", "-aq", "--filter", f"label=fumehood.label.test={LABEL}").split()


def command(cmd: str, **more: Any) -> Any:
    return function_call("exec_command", {"cmd": cmd, **more}, call_id=f"call-{cmd[:20]}")


def patch(*lines: str) -> Any:
    text = "\n".join(["*** Begin Patch", *lines, "*** End Patch", ""])
    kind = importlib.import_module("openai.types.responses").ResponseCustomToolCall
    return kind(type="custom_tool_call", name="apply_patch", input=text, call_id=f"patch-{lines[0]}")


async def run(client: Any, *steps: Any, agent: dict[str, Any] | None = None, **sandbox: Any) -> list[str]:
    """Run an agent with a scripted model, and return what its tools answered."""
    model = ScriptedModel([*([step] for step in steps), [assistant_message("done")]])
    made = SandboxAgent(name="agent", instructions="work", model=model, **(agent or {}))
    config = {"client": client, "options": options(), "snapshot": NoopSnapshotSpec(), **sandbox}
    result = await Runner.run(made, "go", run_config=RunConfig(sandbox=SandboxRunConfig(**config)))
    assert result.final_output == "done"
    assert not model.remaining_steps
    return [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]


@asynccontextmanager
async def started(client: FumehoodSandboxClient, manifest: Manifest | None = None, **given: Any) -> AsyncIterator[Any]:
    """Start a session without a snapshot, and delete it."""
    session = await client.create(manifest=manifest, options=options(**given))
    try:
        async with session:
            yield session
    finally:
        await client.delete(session)


async def shell(session: Any, text: str, **more: Any) -> str:
    """Return the output of a command that must succeed."""
    result = await session.exec(text, **more)
    assert result.ok(), result.stderr
    return str(result.stdout.decode())


async def test_agent(client: FumehoodSandboxClient) -> None:
    """An agent writes, runs, edits and searches files with the framework's own tools, and leaves nothing."""
    entries = {"given.txt": File(content=b"a file\n")}
    outputs = await run(
        client,
        patch("*** Add File: lib/answer.py", "+def answer():", "+    return 41"),
        command("python3 -B -c 'import lib.answer as a; print(a.answer())'; pwd; cat given.txt; exit 3"),
        patch("*** Update File: lib/answer.py", "@@ def answer():", "-    return 41", "+    return 42"),
        command("grep -rn return lib; python3 -B -c 'import lib.answer as a; print(a.answer())'"),
        patch("*** Delete File: lib/answer.py"),
        command(f"ls lib; echo {PNG} | base64 -d > ../dot.png", workdir="lib"),
        function_call("view_image", {"path": "dot.png"}, call_id="view"),
        agent={"default_manifest": Manifest(entries=entries)},
    )
    assert outputs[0].startswith("Created lib/answer.py"), outputs
    assert "exited with code 3\n" in outputs[1]
    assert outputs[1].endswith("Output:\n41\n/workspace\na file\n")
    assert "lib/answer.py:2:    return 42\n42\n" in outputs[3]
    assert "No such file" in outputs[5]
    assert PNG in outputs[6]
    assert not containers()


async def test_agent_terminal(client: FumehoodSandboxClient) -> None:
    """An agent talks to a program on a terminal, polls another, and interrupts it."""
    async with started(client) as session:
        outputs = await run(None, command("test -t 0 && cat", tty=True, yield_time_ms=250), session=session)
        (number,) = re.findall(r"running with session ID (\d+)", outputs[0])

        def write(chars: str) -> Any:
            arguments = {"session_id": int(number), "chars": chars}
            return function_call("write_stdin", arguments, call_id=f"write-{chars}")

        outputs = await run(None, write("hello\n"), write("\x03"), write("late\n"), session=session)
        assert "hello\r\nhello\r\n" in outputs[0]
        assert "exited with code 130" in outputs[1]
        assert "write_stdin failed" in outputs[2]
        slow = await session.pty_exec_start("echo one; sleep 1; echo two; exit 4", yield_time_s=0.25)
        assert (slow.output, slow.exit_code) == (b"one\n", None)
        with pytest.raises(RuntimeError, match="stdin is not available"):
            await session.pty_write_stdin(session_id=slow.process_id, chars="x")
        rest = await session.pty_write_stdin(session_id=slow.process_id, chars="")
        assert (rest.output, rest.exit_code, rest.process_id) == (b"two\n", 4, None)
        missing = await session.pty_exec_start("true", shell=["no-such-shell"])
        assert missing.exit_code == 127
        flood = await session.pty_exec_start("yes", yield_time_s=1)
        assert len(flood.output) < 11 << 20
        await session.pty_terminate_all()
        assert "yes" not in await shell(session, LIST)


async def test_agent_timeout(client: FumehoodSandboxClient) -> None:
    """A command that times out, and one that runs on when the session stops, end with all descendants."""
    async with started(client) as session:

        @function_tool
        async def limited() -> str:
            """Run a command for a second."""
            try:
                result = await session.exec("echo before; setsid sleep 71 & sleep 72", timeout=1)
            except errors.ExecTimeoutError as e:
                return f"{e}: {e.context['stdout']}"
            return f"exit code {result.exit_code}"

        outputs = await run(
            None, function_call("limited", {}, call_id="1"), session=session, agent={"tools": [limited]}
        )
        assert outputs == ["command timed out: before\n"]
        assert "sleep 7" not in await shell(session, LIST)
        with pytest.raises(errors.ExecTimeoutError):
            await session.pty_exec_start("sleep 73", timeout=0.5, yield_time_s=5)

        outputs = await run(None, command("setsid sleep 74 & sleep 75", yield_time_ms=250), session=session)
        assert "running with session ID" in outputs[0]
        assert {"sleep 74", "sleep 75"} <= set(re.findall(r"sleep \d+", await shell(session, LIST)))
        await session.stop()
        assert "sleep 7" not in await shell(session, LIST)
        task = asyncio.create_task(session.exec("sleep 76"))
        while "sleep 76" not in await shell(session, LIST):  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "sleep 76" not in await shell(session, LIST)


async def test_pty_that_does_not_read(client: FumehoodSandboxClient) -> None:
    """Input that a program does not read keeps no agent waiting, and arrives in its order when it is read."""
    async with started(client) as session:
        line = "stty raw -echo; echo ready; sleep 3; head -c 200000 | tr -d x; sleep 871"
        update = await session.pty_exec_start(line, tty=True, yield_time_s=2)
        assert update.process_id is not None
        begin = time.monotonic()
        for chars in ("x" * 199_998, "1", "2"):
            update = await session.pty_write_stdin(session_id=update.process_id, chars=chars, yield_time_s=0.25)
        assert time.monotonic() - begin < 20
        output = update.output
        while b"12" not in output and time.monotonic() - begin < 60:
            update = await session.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=5)
            output += update.output
        assert output.endswith(b"12")
        stuck = await session.pty_exec_start("stty raw; sleep 872", tty=True, yield_time_s=1)
        assert stuck.process_id is not None
        await session.pty_write_stdin(session_id=stuck.process_id, chars="x" * 100_000, yield_time_s=0.25)
        with pytest.raises(ConfigError, match="surrogate"):
            other = await session.pty_exec_start("cat", tty=True, yield_time_s=1)
            await session.pty_write_stdin(session_id=other.process_id or 0, chars="\ud800")
        await asyncio.wait_for(session.pty_terminate_all(), 30)


async def test_exec(client: FumehoodSandboxClient) -> None:
    async with started(client, Manifest(environment={"value": {"A": "b c"}})) as session:
        assert await shell(session, "pwd; echo $A; id -un") == "/workspace\nb c\nroot\n"
        assert type(session._inner).__module__ == client.backend_id  # the framework's traces name it
        assert await shell(session, "id -un; pwd", user="nobody") == "nobody\n/workspace\n"
        assert await shell(session, "id -un", user=User(name="nobody")) == "nobody\n"
        result = await session.exec("sh", "-c", "echo out; echo err >&2; kill -9 $$", shell=False)
        assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 137)
        assert (await session.exec("kill -9 -1")).exit_code == 137  # the command's supervisor is killed as well
        assert (await session.exec("no-such-program", shell=False)).exit_code == 127
        assert (await session.exec("/etc/passwd", shell=False)).exit_code == 126
        assert (await session.exec("true", user="no-such-user")).exit_code == 126
        assert not (await session.exec("getent hosts example.com || wget -qT1 -O- 1.1.1.1")).ok()  # no network
        with pytest.raises(errors.ExecTransportError, match="timeout: 0 is not positive"):
            await session.exec("true", timeout=0)
        await session.exec("rm -rf /workspace", shell=["sh", "-c"])
        with pytest.raises(errors.WorkspaceRootNotFoundError, match=r"root not found: /workspace$"):
            await session.exec("true")
        await asyncio.to_thread(kill, session._inner._sandbox.name)
        with pytest.raises(errors.ExecTransportError):
            await session.exec("true")
        assert not await session.running()


@pytest.mark.parametrize("end", ENDS)
async def test_ends(end: str) -> None:
    """Commands end as the page about frameworks says."""
    ending: Any = Ending(end)
    state = FumehoodSandboxSessionState(
        session_id=uuid4(), snapshot=resolve_snapshot(None, "x"), manifest=Manifest(), options=options()
    )
    session, cell = FumehoodSandboxSession(ending, state, ending), documented("openai_agents")[end]
    try:
        found = await session.exec("command", shell=False, timeout=1)
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert ("a line" if b"bytes of output are missing" in found.stdout else str(found.exit_code)) == cell
        assert found.stderr or isinstance(ENDS[end], Result)
    if not isinstance(ENDS[end], Result):
        try:
            update = await session.pty_exec_start("command", shell=False)
        except Exception as e:  # noqa: BLE001
            assert is_error(e, cell), e
        else:
            assert str(update.exit_code) == cell


@pytest.mark.parametrize("end", REAL)
async def test_ends_real(client: FumehoodSandboxClient, end: str) -> None:
    async with started(client, Manifest(root="/work"), memory=MEMORY, pids=PIDS) as session:

        async def execute(args: list[str], timeout: float | None) -> str:
            found = await session.exec(*args, shell=False, timeout=timeout)
            return "a line" if b"bytes of output are missing" in found.stdout else str(found.exit_code)

        await Driver("openai_agents", session._inner._sandbox.name, execute).check(end)


async def test_no_processes(client: FumehoodSandboxClient) -> None:
    """After a fork bomb commands fail, and the session goes on."""
    async with started(client, pids=64) as session:
        await session.pty_exec_start("python3", "-c", BOMB, shell=False, yield_time_s=1)
        while (await session.exec("true", shell=False)).ok():
            pass
        results = [await session.exec("true", shell=False) for _ in range(5)]
        assert {(r.exit_code, b"limit of 64 processes" in r.stderr) for r in results} == {(126, True)}


async def test_flood(client: FumehoodSandboxClient) -> None:
    """Output that is not kept is counted where it is missing."""
    async with started(client) as session:
        result = await session.exec("head -c 11000000 /dev/zero | tr '\\0' x")
        note, _, kept = result.stdout.partition(b"\n")
        assert note == b"[514240 bytes of output are missing: more than is kept]"
        assert (len(kept), kept.strip(b"x")) == (10 << 20, b"")
        flood = "head -c 30000000 /dev/zero | tr '\\0' x; echo; while [ ! -e go ]; do sleep 0.02; done; echo end"
        update = await session.pty_exec_start("sh", "-c", flood, shell=False, yield_time_s=5)
        text = update.output
        while b"missing" not in text:
            assert update.process_id
            update = await session.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=5)
            text += update.output
        assert update.process_id
        await session.exec("touch go")
        while update.exit_code is None:
            update = await session.pty_write_stdin(session_id=update.process_id, chars="", yield_time_s=5)
            text += update.output
        missing = sum(map(int, re.findall(rb"\[(\d+) bytes of output are missing: they were read too late\]", text)))
        notes = text.count(b"bytes of output are missing")
        assert len(text) + missing == 30_000_000 + len("\nend\n") + sum(map(len, re.findall(rb"\n\[.*?\]\n", text)))
        assert notes
        assert text.endswith(b"end\n")


async def test_files(client: FumehoodSandboxClient) -> None:
    async with started(client, Manifest(users=[User(name="ann")])) as session:
        data = bytes(range(256)) * 5000
        await session.write(Path("deep/er/data"), io.BytesIO(data))
        assert (await session.read(Path("/workspace/deep/er/data"))).read() == data
        assert await session.read_bounded(Path("deep/er/data"), max_bytes=7) == data[:7]
        assert [(e.path, e.is_dir()) for e in await session.ls("deep")] == [("/workspace/deep/er", True)]
        await shell(
            session, "mkdir -m 700 secret; echo x > secret/x; mkdir -m 777 open; ln -s /etc/passwd link; mkfifo pipe"
        )
        await session.write(Path("open/anns"), io.BytesIO(b"hers"), user=User(name="ann"))
        assert await shell(session, "stat -c %U open/anns") == "ann\n"
        raises: list[tuple[type[Exception], Callable[[], Any]]] = [
            (errors.WorkspaceReadNotFoundError, lambda: session.read(Path("missing"))),
            (errors.WorkspaceArchiveReadError, lambda: session.read(Path("deep"))),
            (errors.WorkspaceArchiveReadError, lambda: session.read(Path("pipe"))),
            (errors.WorkspaceArchiveReadError, lambda: session.read(Path("secret/x"), user="ann")),
            (errors.WorkspaceArchiveWriteError, lambda: session.write(Path("secret/y"), io.BytesIO(b""), user="ann")),
            (errors.WorkspaceArchiveWriteError, lambda: session.write(Path("deep"), io.BytesIO(b""))),
            (errors.WorkspaceWriteTypeError, lambda: session.write(Path("text"), io.StringIO("text"))),
            (errors.InvalidManifestPathError, lambda: session.read(Path("link"))),
            (errors.InvalidManifestPathError, lambda: session.write(Path("../outside"), io.BytesIO(b""))),
        ]
        for error, call in raises:
            with pytest.raises(error):
                await call()


async def test_manifest(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """Entries, users, groups and path grants are as the framework defines them."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "file").write_text("of the host")
    (tmp_path / "local" / "sub").mkdir(parents=True)
    (tmp_path / "local" / "sub" / "b").write_text("local")
    secret = Permissions(owner=6, group=4)
    manifest = Manifest(
        root="/work",
        users=[User(name="ann")],
        groups=[Group(name="team", users=[User(name="bob")])],
        entries={
            "d": Dir(children={"f": File(content=b"\0\xff", permissions=secret, group=Group(name="team", users=[]))}),
            "l": LocalDir(src=tmp_path / "local"),
        },
        extra_path_grants=(
            SandboxPathGrant(path="/ro", host_path=str(tmp_path / "shared"), read_only=True),
            SandboxPathGrant(path="/rw", host_path=str(tmp_path / "shared")),
            SandboxPathGrant(path=str(tmp_path), read_only=True),
        ),
    )
    async with started(client, manifest) as session:
        assert (
            await shell(session, "pwd; stat -c '%a %G' d/f; id -nG bob; id -nG ann")
            == "/work\n640 team\nbob team\nann\n"
        )
        assert (await session.read(Path("d/f"))).read() == b"\0\xff"
        assert (await session.read(Path("l/sub/b"))).read() == b"local"
        assert (await session.read(Path("/ro/file"))).read() == b"of the host"
        await session.write(Path("/rw/new"), io.BytesIO(b"new"))
        assert (tmp_path / "shared" / "new").read_text() == "new"
        with pytest.raises(errors.WorkspaceArchiveWriteError):
            await session.write(Path("/ro/new"), io.BytesIO(b""))
        assert not (await session.exec("echo > /ro/new")).ok()
    outputs = await run(client, command("id -un; echo text > mine; ls -l mine"), agent={"run_as": "carl"})
    assert "carl\n" in outputs[0]


async def test_exposed_ports(client: FumehoodSandboxClient) -> None:
    async with started(client, network="bridge", exposed_ports=(8000, 8001)) as session:
        await session.pty_exec_start("python3 -m http.server 8000", yield_time_s=0.25)
        endpoint = await session.resolve_exposed_port(8000)
        assert endpoint.host == "127.0.0.1"

        def answers() -> bool:
            try:
                with urllib.request.urlopen(endpoint.url_for("http"), timeout=1) as answer:
                    return bool(answer.status == 200)
            except OSError:
                return False

        assert await asyncio.to_thread(wait_for, answers)
        with pytest.raises(errors.ExposedPortUnavailableError):
            await session.resolve_exposed_port(9000)
    with pytest.raises(errors.ExposedPortUnavailableError):
        await session.resolve_exposed_port(8000)


MANIFEST = Manifest(
    entries={"given": File(content=b"1"), "d/passing": File(content=b"of the manifest", ephemeral=True)},
    users=[User(name="ann")],
)


async def test_resume_gone(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """A new sandbox gets the workspace of the snapshot if the old one is gone, also in another process."""
    first = await client.create(
        options=options(), manifest=MANIFEST, snapshot=LocalSnapshotSpec(base_path=tmp_path / "snapshots")
    )
    async with first:
        await shell(
            first,
            """mkdir -p d/e; echo 2 > given; echo changed > d/passing; ln given d/hard; ln -s /workspace/given d/e/up
            printf '#!/bin/sh\necho ran' > d/run; chmod 750 d/run; touch 'a b' /outside; mkfifo pipe
            python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'""",
        )
    assert not containers()
    payload = json.loads(json.dumps(client.serialize_session_state(first.state)))
    await client.close()
    other = FumehoodSandboxClient()
    state = other.deserialize_session_state(payload)
    async with await other.resume(state) as second:
        assert second.state.session_id == first.state.session_id
        assert await shell(second, "cat given d/hard d/e/up d/passing; d/run") == "2\n2\n2\nof the manifestran\n"
        assert (
            await shell(second, "find . | sort")
            == ".\n./a b\n./d\n./d/e\n./d/e/up\n./d/hard\n./d/passing\n./d/run\n./given\n"
        )
        assert await shell(second, "id -un", user="ann") == "ann\n"
        assert not (await second.exec("test -e /outside")).ok()
        await shell(second, "rm -r ./*; echo 3 > new")
    async with await other.resume(state) as third:  # the second one's snapshot replaced the first one's
        assert await shell(third, "cat new; ls") == "3\nd\nnew\n"
        assert len(containers()) == 1
    assert not containers()
    await other.close()


class Store:
    """A store of snapshots elsewhere."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    async def upload(self, key: str, data: io.IOBase) -> None:
        self.stored[key] = data.read()

    def download(self, key: str) -> io.BytesIO:
        return io.BytesIO(self.stored[key])

    def exists(self, key: str) -> bool:
        return key in self.stored


async def test_remote_snapshot(anyio_backend: str) -> None:
    store = Store()
    async with AsyncClient() as server:
        client = FumehoodSandboxClient(server, dependencies=Dependencies.with_values({"store": store}))
        snapshot = RemoteSnapshotSpec(client_dependency_key="store")
        first = await client.create(options=options(), snapshot=snapshot, manifest=MANIFEST)
        async with first:
            await shell(first, "echo text > file")
        assert len(store.stored) == 1
        async with await client.resume(first.state) as second:
            assert await shell(second, "cat file given") == "text\n1"


async def test_resume_running(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """The same sandbox is used if it still runs. A workspace that differs from the snapshot is restored."""
    first = await client.create(options=options(), manifest=MANIFEST, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    await first.start()
    await shell(first, "echo same > /outside; echo 2 > given")
    await first.stop()
    payload = client.serialize_session_state(first.state)
    second = await client.resume(client.deserialize_session_state(dict(payload)))
    assert await shell(second, "pwd") == "/workspace\n"
    await second.start()
    inode = await shell(second, "cat /outside given; stat -c %i given")
    assert inode.startswith("same\n2\n")
    await shell(second, "echo 3 > given; echo more > more")
    third = await client.resume(client.deserialize_session_state(dict(payload)))
    await third.start()
    assert await shell(third, "cat /outside given; ls") == "same\n2\nd\ngiven\n"
    await shell(third, "cd /; rm -r /workspace")
    fourth = await client.resume(client.deserialize_session_state(dict(payload)))
    await fourth.start()
    assert await shell(fourth, "cat /outside given; pwd") == "same\n2\n/workspace\n"
    assert len(containers()) == 1
    await client.delete(fourth)
    assert not containers()
    for session in (first, second, third, fourth):
        await client.delete(session)  # may be called again


async def test_keep(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """A kept sandbox outlives its session and its client until it is deleted."""
    manifest = Manifest(extra_path_grants=(SandboxPathGrant(path="/host", host_path=str(tmp_path)),))
    async with await client.create(options=options(keep=300), manifest=manifest) as session:
        await shell(session, "echo kept > file; echo kept > /outside")
    await client.close()
    assert len(containers()) == 1
    payload = client.serialize_session_state(session.state)
    other = FumehoodSandboxClient()
    state = other.deserialize_session_state(payload)
    with pytest.raises(ValueError, match="must be rebound"):
        await other.resume(state)
    (tmp_path / "other").mkdir()
    for path, error in [(tmp_path / "other", "other path grants"), (tmp_path, "")]:
        grants = (SandboxPathGrant(path="/host", host_path=str(path)),)
        trusted = state.manifest.model_copy(update={"extra_path_grants": grants})
        bound = state.model_copy(update={"manifest": trusted}).rebind_persisted_path_grants(trusted)
        if error:
            with pytest.raises(ValueError, match=error):
                await other.resume(bound)
    async with await other.resume(bound) as again:
        assert await shell(again, "cat file /outside") == "kept\nkept\n"
        await other.delete(again)
    assert not containers()
    await other.close()


async def test_run_state(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """A run that waits for an approval goes on from JSON, with its workspace."""

    @function_tool(needs_approval=True)
    def ask() -> str:
        """Ask a person."""
        return "approved"

    steps = [[command("echo text > file")], [function_call("ask", {}, call_id="2")], [command("cat file")]]
    model = ScriptedModel([*steps, [assistant_message("done")]])
    agent = SandboxAgent(name="agent", model=model, tools=[ask])
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    config = RunConfig(sandbox=SandboxRunConfig(client=client, options=options(), snapshot=snapshot))
    result = await Runner.run(agent, "go", run_config=config)
    assert len(result.interruptions) == 1
    assert not containers()
    state = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(agent, state, run_config=config)
    assert result.final_output == "done"
    outputs = [str(item.output) for item in result.new_items if item.type == "tool_call_output_item"]
    assert outputs[-1].endswith("Output:\ntext\n"), outputs
    assert not containers()


def archive(**member: Any) -> io.BytesIO:
    """Return a tar archive with a file and another member."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        file = tarfile.TarInfo("first")
        file.size = 4
        tar.addfile(file, io.BytesIO(b"text"))
        info = tarfile.TarInfo()
        for name, value in member.items():
            setattr(info, name, value)
        tar.addfile(info)
    data.seek(0)
    return data


async def test_hydrate_unsafe(client: FumehoodSandboxClient) -> None:
    async with started(client) as session:
        for bad in (
            archive(name="../outside"),
            archive(name="link", type=tarfile.SYMTYPE, linkname="/etc"),
            archive(name="link", type=tarfile.SYMTYPE, linkname="../etc"),
            archive(name="pipe", type=tarfile.FIFOTYPE),
            io.BytesIO(b"no archive"),
        ):
            with pytest.raises(errors.WorkspaceArchiveWriteError):
                await session.hydrate_workspace(bad)
        assert await shell(session, "ls -A") == ""
        await session.hydrate_workspace(archive(name="link", type=tarfile.SYMTYPE, linkname="first"))
        assert await shell(session, "cat link") == "text"
        await shell(session, "ln -s /etc/passwd outside")
        with pytest.raises(errors.WorkspaceArchiveWriteError):  # as from the framework's Docker client
            await session.hydrate_workspace(await session.persist_workspace())


async def test_huge(client: FumehoodSandboxClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file with a huge hole fills neither the memory nor the disk of this machine."""
    session_module = importlib.import_module("fumehood.openai_agents._session")
    monkeypatch.setattr(session_module, "_FILE", 1 << 20)
    monkeypatch.setattr(session_module, "_ARCHIVE", 4 << 20)
    async with started(client) as session:
        await shell(session, "truncate -s 1T huge")
        for call in (session.read(Path("huge")), session.persist_workspace()):
            with pytest.raises(errors.WorkspaceArchiveReadError) as caught:
                await call
            assert "GiB" in caught.value.context["reason"]
        assert await shell(session, "ls /tmp | grep fumehood || echo none") == "none\n"
        await shell(session, "truncate -s 1M huge")
        assert len((await session.read(Path("huge"))).read()) == 1 << 20


async def test_unsupported(client: FumehoodSandboxClient, tmp_path: Path) -> None:
    """What is not supported is an error before a sandbox starts."""
    for bad in ({"network_mode": "none"}, {"network": "host"}, {"keep": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            options(**bad)
    config = {"image": IMAGE, "labels": {"test": LABEL}}
    assert SandboxRunConfig(client=client, options=config).options == options()
    with pytest.raises((TypeError, ValueError), match="privileged"):
        SandboxRunConfig(client=client, options={**config, "privileged": True})
    volume = S3Mount(bucket="b", mount_strategy=DockerVolumeMountStrategy(driver="rclone"))
    inner = S3Mount(bucket="b", mount_strategy=InContainerMountStrategy(pattern=RcloneMountPattern()))
    inside = Manifest(extra_path_grants=(SandboxPathGrant(path="/workspace/in", host_path=str(tmp_path)),))
    create: Any = client.create
    for given, error, text in [
        ({"options": options(), "manifest": Manifest(entries={"m": volume})}, errors.MountConfigError, "volume mounts"),
        (
            {"options": options(), "manifest": Manifest(entries={"m": inner})},
            errors.MountConfigError,
            "m: fumehood has no",
        ),
        ({"options": options(), "manifest": inside}, ValueError, "outside the workspace"),
        ({"options": options(exposed_ports=(80,))}, ConfigError, "set the network to bridge"),
        ({"options": options(network="bridge", exposed_ports=(0,))}, ValueError, "between 1 and 65535"),
        ({"options": options(memory=1)}, ConfigError, "memory limit"),
        ({"options": FumehoodSandboxClientOptions("no/such:image")}, Exception, "no/such:image"),
    ]:
        with pytest.raises(error, match=text):
            await create(**given)
    with pytest.raises(TypeError, match="expects a FumehoodSandboxSessionState"):
        await client.resume(create)
    async with AsyncClient() as strict:  # a server that allows no networks
        with pytest.raises(Exception, match="allow_egress=True"):
            await FumehoodSandboxClient(strict).create(options=options(network="bridge"))
        async with started(FumehoodSandboxClient(strict)) as session:
            assert await shell(session, "echo works") == "works\n"
    assert not containers()


async def test_failed_start(client: FumehoodSandboxClient) -> None:
    """A run whose workspace cannot be made leaves nothing."""
    manifest = Manifest(users=[User(name="root")])
    with pytest.raises(errors.ExecNonZeroError, match="already exists"):
        await run(client, manifest=manifest)
    assert not containers()


def test_loops() -> None:
    """One client serves several event loops. The servers of those that have ended end too."""
    client = FumehoodSandboxClient()

    async def create() -> str:
        session = await client.create(options=options())
        async with session:
            await session.start()
            return await shell(session, "echo works")

    assert asyncio.run(create()) == "works\n"

    async def leave() -> None:
        await client.create(options=options())
        assert len(containers()) == 1

    asyncio.run(leave())
    assert asyncio.run(create()) == "works\n"
    assert wait_for(lambda: not containers())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ended(number: signal.Signals) -> None:
    """An agent that is ended while its command runs leaves nothing after 10 seconds."""
    seconds = f"7{os.getpid()}"  # that no other test's command has
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    agent = [sys.executable, str(FOLDER / "slow.py"), LABEL, seconds]
    with subprocess.Popen(agent, env=environment, stderr=subprocess.DEVNULL) as running:
        try:

            def works() -> bool:
                return bool(containers()) and f"sleep {seconds}" in output("ps", "-eo", "args")

            assert wait_for(lambda: works() or running.poll() is not None, 300)  # imports take long on a busy machine
            assert running.poll() is None
            running.send_signal(number)
            deadline = time.monotonic() + 10
            while containers():
                assert time.monotonic() < deadline
                time.sleep(0.1)
            assert f"sleep {seconds}" not in output("ps", "-eo", "args")
        finally:
            running.kill()


def test_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    """A framework that is missing or has another interface is one clear error."""
    version = metadata.version("openai-agents")
    with monkeypatch.context() as patched:

        async def changed(self: Any, *command: str, deadline: float) -> None: ...

        patched.setattr(BaseSandboxSession, "exec", changed)
        text = f"fumehood.openai_agents: the interface of openai-agents {version} is not supported: .*deadline"
        with pytest.raises(ImportError, match=text):
            importlib.reload(fumehood.openai_agents)
    with monkeypatch.context() as patched:
        patched.delattr(BaseSandboxSession, "_after_start")
        with pytest.raises(ImportError, match="BaseSandboxSession has no _after_start"):
            importlib.reload(fumehood.openai_agents)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "agents.sandbox.session", None)
        patched.setattr(metadata, "version", missing)
        with pytest.raises(ImportError, match=re.escape("pip install 'openai-agents")):
            importlib.reload(fumehood.openai_agents)


def missing(name: str) -> str:
    raise metadata.PackageNotFoundError(name)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The examples of the how-to run as they are, on the test image."""
    text = HOWTO.read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    prints = re.findall(r"^It prints `(.*)`\.$", text, re.MULTILINE)
    assert len(blocks) == len(prints) == 2
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for block, expected in zip(blocks, prints, strict=True):
        code = block.replace("python:3.12-slim", IMAGE)
        assert code != block
        exec(compile(code, "openai_agents.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == f"{expected}\n"
