"""Evaluations of inspect_ai in sandboxes of Fumehood."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from inspect_ai import Task, eval
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import json_dataset
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver
from inspect_ai.tool._sandbox_tools_utils.sandbox import resolve_root_access
from inspect_ai.util import (
    ComposeConfig,
    ExecCompleted,
    ExecRemoteAwaitableOptions,
    ExecRemoteStreamingOptions,
    ExecStderr,
    ExecStdout,
    OutputLimitExceededError,
    SandboxUnavailableError,
    sandbox,
)
from inspect_ai.util._sandbox.limits import override_max_exec_output_size, override_max_read_file_size

from fumehood import Result
from fumehood.inspect import FumehoodConfig, FumehoodSandboxEnvironment
from fumehood.inspect._clients import this_loop
from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, Driver, Ending, documented, is_error
from tests.adapters.evals import BACKENDS, COMPOSE, FOLDER, HOWTO, PLAIN, containers, evaluate, started
from tests.real import BOMB, IMAGE, PROVIDER, wait_for


@pytest.mark.short
def test_eval_exec_remote(tmp_path: Path) -> None:
    """A solver's exec_remote reaches the provider's own, and puts nothing into the sandbox."""
    seen: list[Any] = []

    @solver
    def runs() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            seen.append(type(await sandbox().exec_remote(["true"])).__name__)
            seen.append((await sandbox().exec_remote(["echo", "hi"], stream=False)).stdout)
            seen.append((await sandbox().exec(["ls", "-A", "/var/tmp"])).stdout)
            return state

        return solve

    log = evaluate(tmp_path, PLAIN, runs())
    assert log.status == "success", log.error
    assert seen == ["RemoteProcess", "hi\n", ""]


@pytest.mark.short
def test_eval_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project that is not allowed fails before any sample, with the field that allows it."""
    (tmp_path / "compose.yaml").write_text(f"services: {{default: {{image: {IMAGE}, privileged: true}}}}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrerequisiteError, match="FumehoodConfig allows it: allow_unsafe"):
        evaluate(tmp_path, ("fumehood", str(tmp_path / "compose.yaml")), generate())


@pytest.mark.parametrize(
    "signals",
    [pytest.param([signal.SIGKILL], marks=pytest.mark.short), [signal.SIGTERM], [signal.SIGINT], [signal.SIGINT] * 2],
)
def test_eval_ended(tmp_path: Path, signals: list[signal.Signals]) -> None:
    """An evaluation that is ended in the middle of its samples leaves no container."""
    command = [sys.executable, str(FOLDER / "slow.py"), f"t{os.getpid()}", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        stuck = threading.Timer(300, running.kill)  # the import of inspect alone takes long on a busy machine
        stuck.start()
        try:
            assert running.stdout
            assert list(itertools.islice(running.stdout, 8)) == ["running\n"] * 8
            assert len(containers()) == 8
            for count, number in enumerate(signals):
                if count:  # a person presses Ctrl-C again while the samples end
                    assert running.stdout.readline() == "canceled\n"
                running.send_signal(number)
            assert wait_for(lambda: not containers())
        finally:
            stuck.cancel()
            running.kill()


@pytest.mark.anyio
@BACKENDS
async def test_exec() -> None:
    async with started(PLAIN) as all_of_it:
        sb = all_of_it["default"]
        for cmd, options, code in [
            (["no-such-program"], {}, 127),
            (["true"], {"cwd": "/nowhere"}, 127),
            (["true"], {"user": "nobody-knows"}, 126),
            ([], {}, 127),
            (["sh", "-c", "kill -9 -1"], {}, 137),  # it kills the command's supervisor as well
        ]:
            result = await sb.exec(cmd, **options)
            assert (result.success, result.returncode) == (False, code), result
        with pytest.raises(ValueError, match="embedded null byte"):
            await sb.exec(["echo", "a\0b"])
        with pytest.raises(TimeoutError) as caught:
            await sb.exec(["sh", "-c", "echo before; setsid sleep 77 & sleep 77"], timeout=1)
        assert caught.value.truncated_output == "before\n"  # type: ignore[attr-defined]
        lists = ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"]
        assert "sleep 77" not in (await sb.exec(lists)).stdout
        flood = ["sh", "-c", "head -c 900 /dev/zero | tr '\\0' '\\377'; echo end"]  # three bytes of text for each
        with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as exceeded:
            await sb.exec(flood)
        end = exceeded.value.truncated_output or ""
        assert len(end.encode()) <= 1000
        assert end.endswith("end\n")
        if PROVIDER == "native":  # no command enters a sandbox that is not kept
            with pytest.raises(NotImplementedError):
                await sb.connection(user="nobody")
        else:
            connection = await sb.connection(user="nobody")
            assert "--user nobody" in connection.command
            assert connection.vscode_command is None
        root = "grep -c '^CapEff:.*[1-9a-f]' /proc/self/status"
        assert (await sb.exec(["sh", "-c", root], user="root")).stdout == "1\n"
        with anyio.move_on_after(1):
            await sb.exec(["sleep", "78"])
        assert "sleep 78" not in (await sb.exec(lists)).stdout
    with pytest.raises(SandboxUnavailableError):
        await sb.exec(["true"])


@pytest.mark.anyio
@pytest.mark.parametrize("end", ENDS)
async def test_ends(end: str, anyio_backend: str) -> None:
    """Commands end as the page about frameworks says."""
    ending: Any = Ending(end)
    sb, cell = FumehoodSandboxEnvironment(ending, ending), documented("inspect")[end]
    try:
        found = await sb.exec(["command"], timeout=1)
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert (str(found.returncode), found.success) == (cell, False)
        assert found.stderr or isinstance(ENDS[end], Result)


@pytest.mark.anyio
@pytest.mark.parametrize("end", [end for end in ENDS if end not in ("time limit", "output limit")])
async def test_ends_remote(end: str, anyio_backend: str) -> None:
    ending: Any = Ending(end)
    sb, cell = FumehoodSandboxEnvironment(ending, ending), documented("inspect")[end]
    try:
        *_, last = [event async for event in await sb.exec_remote(["command"])]
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert isinstance(last, ExecCompleted)
        assert str(last.exit_code) in cell


@pytest.mark.anyio
@pytest.mark.parametrize("end", REAL)
async def test_ends_real(end: str, anyio_backend: str) -> None:
    async with started(FumehoodConfig(image=IMAGE, cwd="/work", memory=MEMORY, pids=PIDS)) as e:
        sb = e["default"]

        async def execute(args: list[str], timeout: float | None) -> str:  # noqa: ASYNC109
            return str((await sb.exec(args, timeout=timeout)).returncode)

        await Driver("inspect", sb.sandbox.name, execute).check(end)


@pytest.mark.anyio
async def test_exec_large_output(anyio_backend: str) -> None:
    """A limit above what the server keeps holds up to that, as inspect's services need it."""
    async with started(PLAIN) as e:
        with override_max_exec_output_size(150 << 20):
            assert (await e["default"].exec(["echo", "little"])).stdout == "little\n"
            result = await e["default"].exec(["sh", "-c", "yes | head -c 60000000"])
            assert len(result.stdout) == 60_000_000
            with pytest.raises(OutputLimitExceededError, match="64 MiB"):
                await e["default"].exec(["sh", "-c", "yes | head -c 70000000"])
            with pytest.raises(OutputLimitExceededError, match="150 MiB"):
                await e["default"].exec(["head", "-c", "40000000", "/dev/zero"])


@pytest.mark.anyio
async def test_exec_no_processes(anyio_backend: str) -> None:
    """After a fork bomb commands fail, and the sample goes on."""
    async with started(FumehoodConfig(image=IMAGE, pids=64)) as e:
        await e["default"].exec_remote(["python3", "-c", BOMB])
        while (await e["default"].exec(["true"])).success:
            pass
        results = [await e["default"].exec(["true"]) for _ in range(5)]
        assert {(r.returncode, "limit of 64 processes" in r.stderr) for r in results} == {(126, True)}
        remote = await e["default"].exec_remote(["true"])
        assert [event async for event in remote][-1] == ExecCompleted(126)


@pytest.mark.anyio
async def test_exec_limit(anyio_backend: str) -> None:
    """A stream above inspect's limit is its error, with the end of the output: nothing is dropped without a word."""
    async with started(PLAIN) as e:
        whole = await e["default"].exec(["sh", "-c", "yes | head -c 10485760"])
        assert len(whole.stdout) == 10 << 20
        for stream in ("1", "2"):
            command = f"yes | head -c 10485762 >&{stream}"
            with pytest.raises(OutputLimitExceededError, match="10 MiB") as caught:
                await e["default"].exec(["sh", "-c", command])
            assert caught.value.truncated_output == "y\n" * (5 << 20)
        with pytest.raises(OutputLimitExceededError, match="10 MiB"):  # three bytes of text for each
            await e["default"].exec(["sh", "-c", "head -c 6000000 /dev/zero | tr '\\0' '\\377'"])


@pytest.mark.anyio
@BACKENDS
async def test_exec_remote_late() -> None:
    async with started(PLAIN) as all_of_it:
        for last, missing in ((1_000_000, False), (3_000_000, True)):  # the second prints more than a result keeps
            p = await all_of_it["default"].exec_remote(["seq", "1", str(last)])
            await p._process.wait()
            text = "".join([event.data async for event in p if isinstance(event, ExecStdout)])
            assert text.endswith(f"{last}\n")
            assert ("bytes of output are missing" in text) == missing
            assert missing or text == "".join(f"{n}\n" for n in range(1, last + 1))


@pytest.mark.anyio
@BACKENDS
async def test_exec_remote() -> None:
    async with started(PLAIN) as all_of_it:
        sb = all_of_it["default"]
        p = await sb.exec_remote(["sh", "-c", "cat; printf '\\303\\251'; echo err >&2; exit 3"])
        events = [event async for event in p]
        assert "".join(e.data for e in events if isinstance(e, ExecStdout)) == "é"
        assert "".join(e.data for e in events if isinstance(e, ExecStderr)) == "err\n"
        assert events[-1] == ExecCompleted(3)
        p = await sb.exec_remote(["cat"], ExecRemoteStreamingOptions(input="one\n", stdin_open=True))
        assert await anext(p) == ExecStdout("one\n")
        await p.write_stdin("two\n")
        assert await anext(p) == ExecStdout("two\n")
        await p.close_stdin()
        assert [e async for e in p] == [ExecCompleted(0)]
        with pytest.raises(RuntimeError):
            await p.write_stdin("late")
        p = await sb.exec_remote(["no-such-program"])
        assert [e async for e in p][-1] == ExecCompleted(127)
        p = await sb.exec_remote(["sleep", "79"])
        await p.kill()
        assert [e async for e in p] == []
        p = await sb.exec_remote(["sleep", "80"])
        with anyio.move_on_after(0.5) as scope:
            await anext(p)
        assert scope.cancelled_caught
        lists = await sb.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        assert "sleep" not in lists.stdout, lists.stdout
        with pytest.raises(TimeoutError):
            await sb.exec_remote(["sleep", "81"], ExecRemoteAwaitableOptions(timeout=0.5), stream=False)


@pytest.mark.anyio
async def test_read_file_limits(anyio_backend: str) -> None:
    service = {"image": IMAGE, "command": "sleep infinity"}
    async with started(ComposeConfig.model_validate({"services": {"default": service}})) as e:
        await e["default"].write_file("lines", "a\r\nb\n")
        assert await e["default"].read_file("lines") == "a\r\nb\n"
        with override_max_read_file_size(3), pytest.raises(OutputLimitExceededError, match="3 bytes"):
            await e["default"].read_file("lines")
        with override_max_read_file_size(5):
            assert await e["default"].read_file("lines", text=False) == b"a\r\nb\n"


@pytest.mark.anyio
async def test_cli_cleanup(anyio_backend: str) -> None:
    """Kept sandboxes outlive an evaluation without cleanup, until they are removed."""
    config = FumehoodConfig(image=IMAGE, keep=600)
    provider = FumehoodSandboxEnvironment
    await provider.task_init("startup", config)
    await provider.sample_init(f"t{os.getpid()}", config, {})
    await provider.task_cleanup("shutdown", config, cleanup=False)
    assert len(containers()) == 1
    await provider.cli_cleanup("another")
    assert len(containers()) == 1
    await provider.cli_cleanup(None)
    assert containers() == []


@pytest.mark.anyio
async def test_images_of_lost_lease(anyio_backend: str) -> None:
    """Images that were not prepared for the client's lease, since it has a new one, are prepared again."""
    config = ComposeConfig.model_validate({"services": {"default": {"image": IMAGE, "command": "sleep infinity"}}})
    async with started(config) as e:
        images = this_loop().images
        images.update({key: {"default": f"sha256:{'0' * 64}"} for key in images})
        again = await FumehoodSandboxEnvironment.sample_init("again", config, {})
        assert (await again["default"].exec(["echo", "again"])).stdout == "again\n"
        await FumehoodSandboxEnvironment.sample_cleanup("again", config, again, interrupted=False)
        assert (await e["default"].exec(["true"])).success


@pytest.mark.anyio
async def test_task_init_environment(anyio_backend: str) -> None:
    found = await FumehoodSandboxEnvironment.task_init_environment(COMPOSE, {"image": IMAGE, "other": "x"})
    assert found == {"SAMPLE_METADATA_IMAGE": IMAGE}


@pytest.mark.anyio
async def test_config_user(anyio_backend: str) -> None:
    """Root is usable in an image with another user, as inspect's own tools need it."""
    async with started(FumehoodConfig(image=IMAGE, user="nobody", cwd="/tmp")) as e:
        assert (await e["default"].exec(["id", "-un"])).stdout == "nobody\n"
        await e["default"].write_file("mine", "text")
        assert (await e["default"].exec(["stat", "-c", "%U", "mine"])).stdout == "nobody\n"
        assert (await resolve_root_access(e["default"])).state == "usable"


@pytest.mark.short
def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the how-to run as they are, on the test image."""
    blocks = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 1
    code = blocks[0].replace("python:3.12-slim", IMAGE)
    assert code != blocks[0]
    monkeypatch.setenv("INSPECT_LOG_DIR", str(tmp_path))  # by default logs are written into the working directory
    spaces: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "inspect.md", "exec"), spaces)
    log = spaces["log"]
    assert list(tmp_path.iterdir())
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1


@pytest.mark.short
def test_eval_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of data names a file of the task's folder, and no other one of this machine."""
    for name in ("task", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(name)
        (tmp_path / name / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY . /context\n")
    (tmp_path / "task" / "link").symlink_to("../other")
    (tmp_path / "task" / "compose.yaml").write_text(f"services: {{default: {{image: {IMAGE}, command: sleep 600}}}}\n")
    monkeypatch.chdir(tmp_path / "task")
    found = []

    @solver
    def reads() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            found.append(await sandbox().read_file("/context/key"))
            return state

        return solve

    def run(path: str) -> None:
        row = json.dumps({"input": "x", "target": "y", "sandbox": ["fumehood", path]})
        (tmp_path / "task" / "rows.jsonl").write_text(row)
        rows = json_dataset("rows.jsonl")
        task = Task(dataset=rows, solver=reads(), sandbox=("fumehood", "compose.yaml"), name=f"t{os.getpid()}")
        (log,) = eval(task, model="mockllm/model", display="none", log_dir=str(tmp_path / "logs"))
        assert log.status == "success", log.error

    for path in (str(tmp_path / "other" / "Dockerfile"), "../other/Dockerfile", "link/Dockerfile"):
        with pytest.raises(
            PrerequisiteError, match=r"other/Dockerfile is not in the task's folder.*FUMEHOOD_ALLOW_READ"
        ):
            run(path)
    assert not found
    run("Dockerfile")
    monkeypatch.setenv("FUMEHOOD_ALLOW_READ", os.pathsep.join(["/nowhere", str(tmp_path / "other")]))
    run("../other/Dockerfile")
    assert found == ["task", "other"]


@pytest.mark.anyio
async def test_config_refused(anyio_backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "in").mkdir()
    service = {"image": IMAGE, "volumes": [f"{outside}:/data:ro"], "command": "sleep infinity"}
    project = {"services": {"default": service}}
    path = tmp_path / "in" / "compose.yaml"
    path.write_text(ComposeConfig.model_validate(project).model_dump_json(exclude_none=True))
    monkeypatch.chdir(path.parent)
    with pytest.raises(PrerequisiteError, match=r"FumehoodConfig allows it: allow_read$"):
        async with started(str(path)):
            pass
    async with started(FumehoodConfig(compose=str(path), allow_read=(str(outside),))) as e:
        assert (await e["default"].exec(["test", "-d", "/data"])).success


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", "asyncio"))
