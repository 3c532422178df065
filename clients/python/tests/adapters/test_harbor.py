"""Trials of Harbor in sandboxes of Fumehood."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from harbor.environments.base import BaseEnvironment, SandboxBuildFailedError
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import AgentConfig, ResourceMode, TaskConfig, TrialConfig
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironmentConfig
from harbor.models.trial.paths import TrialPaths
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

import tests  # noqa: F401
from fumehood import AsyncService, FileInfo, IsDirectoryError, Result, TooLargeError, UnavailableError
from fumehood.harbor import FumehoodEnvironment
from fumehood.harbor._environment import LOOPS
from fumehood.harbor._files import download_dir
from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, Driver, Ending, documented, is_error
from tests.real import BOMB, IMAGE, PROVIDER, native_sandboxes

ENVIRONMENT = "fumehood.harbor:FumehoodEnvironment"
HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "harbor.md"
NO_NETWORK = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)
DOCKERFILE = f"FROM {IMAGE}\nRUN mkdir /app\nWORKDIR /app\n"
COMPOSE = """
services:
  main:
    depends_on: [store]
    environment: {GIVEN: "${GIVEN}"}
  store:
    image: fumehood-test/busybox
    command: [sh, -c, "mkdir -p /www/data; echo stored >/www/data/word; httpd -f -p 8000 -h /www"]
"""
FETCH = "python3 -c \"import urllib.request as u; print(u.urlopen('http://store:8000/data/word').read().decode())\""
GRADE = "if grep -q forty-two {}; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
SHORT = pytest.mark.short


def output(command: list[str]) -> str:
    """Return what a command of this machine prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def of_programs() -> dict[str, str]:
    """Return the variables of Python programs that reach for nothing outside."""
    quiet = {"HARBOR_TELEMETRY": "off", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(sys.path)}


def containers(part: str) -> list[str]:
    """Return the containers of sessions whose ids have a part."""
    if PROVIDER == "native":
        return native_sandboxes()
    command = ["docker", "ps", "-a", "--format", '{{.Label "fumehood.label.harbor"}}']
    return [each for each in output(command).split() if part in each]


def make_task(folder: Path, files: dict[str, str], environment: str = "", more: str = "") -> Path:
    """Write a task."""
    files = {
        "task.toml": f'schema_version = "1.1"\n[task]\nname = "test/answer"\n[environment]\n{environment}\n{more}\n',
        "instruction.md": "Write the answer.\n",
        "solution/solve.sh": "#!/bin/bash\necho forty-two >answer\n",
        "tests/test.sh": "#!/bin/bash\n" + GRADE.format("/app/answer"),
        **files,
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "environment").mkdir(exist_ok=True)
    return folder


def run_trial(tmp_path: Path, task: Path, agent: str = "oracle", **environment: Any) -> TrialResult:
    """Run a trial, after which nothing of it is left."""
    name = f"t{uuid4().hex[:12]}"
    config = TrialConfig(
        task=TaskConfig(path=task),
        trial_name=name,
        trials_dir=tmp_path / "trials",
        agent=AgentConfig(name=agent),
        environment=TrialEnvironmentConfig(import_path=ENVIRONMENT, **environment),
    )

    async def run() -> TrialResult:
        result = await (await Trial.create(config)).run()
        assert not LOOPS.running().clients
        return result

    result = asyncio.run(run())
    assert not containers(name)
    return result


def reward(result: TrialResult) -> Any:
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result
    assert result.verifier_result.rewards
    return result.verifier_result.rewards["reward"]


SEPARATE = '[verifier]\nenvironment_mode = "separate"\n[verifier.environment]\nnetwork_mode = "no-network"'
KINDS: dict[str, tuple[dict[str, str], str, str]] = {
    "dockerfile": ({"environment/Dockerfile": DOCKERFILE}, "", ""),
    "compose": (
        {
            "environment/Dockerfile": DOCKERFILE,
            "environment/docker-compose.yaml": COMPOSE,
            "solution/solve.sh": f"#!/bin/bash\n[ $GIVEN = given ] && {FETCH} && echo forty-two >answer\n",
        },
        'env = {GIVEN = "given"}\nnetwork_mode = "no-network"',
        "",
    ),
    "separate": (
        {
            "environment/Dockerfile": DOCKERFILE,
            "tests/Dockerfile": f"FROM {IMAGE}\nCOPY test.sh /tests/test.sh\n",
            "solution/solve.sh": "#!/bin/bash\necho forty-two >/logs/artifacts/answer\n",
            "tests/test.sh": "#!/bin/bash\n[ ! -e /app ] && " + GRADE.format("/logs/artifacts/answer"),
        },
        "",
        SEPARATE,
    ),
    "image": (
        {
            "environment/given.txt": "forty-two",
            "solution/solve.sh": "#!/bin/bash\ncp /work/given.txt /work/answer\n",
            "tests/test.sh": "#!/bin/bash\n" + GRADE.format("/work/answer"),
        },
        f'docker_image = "{IMAGE}"\nworkdir = "/work"',
        "",
    ),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[SHORT] * (kind != "image")) for kind in KINDS])
def test_trial(tmp_path: Path, kind: str) -> None:
    """The oracle solves tasks of all kinds, and the agent that does nothing solves none."""
    task = make_task(tmp_path / "task", *KINDS[kind])
    assert [reward(run_trial(tmp_path, task, agent)) for agent in ("oracle", "nop")] == [1, 0]


def test_trial_sidecar(tmp_path: Path) -> None:
    """What other services hold is collected after the main one has stopped, for a separate verifier."""
    files, environment, _ = KINDS["compose"]
    hook = '[[verifier.collect]]\nservice = "store"\ncommand = "echo collected >/www/data/more"'
    artifact = 'artifacts = [{source = "/www/data", service = "store", destination = "data"}]\n'
    task = make_task(
        tmp_path / "task",
        {**files, "tests/Dockerfile": f"FROM {IMAGE}\nCOPY test.sh /tests/test.sh\n"},
        environment,
        f"{SEPARATE}\n{hook}",
    )
    path = task / "task.toml"
    path.write_text(artifact + path.read_text())
    (task / "tests" / "test.sh").write_text(
        "#!/bin/bash\nfind / -name word -path '*data*' | xargs grep stored && find / -name more -path '*data*' |"
        " xargs grep collected && echo 1 >/logs/verifier/reward.txt\n"
    )
    assert reward(run_trial(tmp_path, task)) == 1


def test_trial_steps(tmp_path: Path) -> None:
    """The steps of a task follow one another in one environment, each with its own solution and tests."""
    files = {"environment/Dockerfile": DOCKERFILE}
    for name, solve in {"first": "touch begun", "second": "[ -e begun ] && echo forty-two >answer"}.items():
        grade = GRADE.format("/app/answer") if name == "second" else "echo 1 >/logs/verifier/reward.txt\n"
        files[f"steps/{name}/instruction.md"] = "Go on.\n"
        files[f"steps/{name}/solution/solve.sh"] = f"#!/bin/bash\n{solve}\n"
        files[f"steps/{name}/tests/test.sh"] = f"#!/bin/bash\n{grade}"
    task = make_task(tmp_path / "task", files, "", '[[steps]]\nname = "first"\n[[steps]]\nname = "second"')
    result = run_trial(tmp_path, task)
    assert reward(result) == 1
    assert result.step_results
    assert [each.step_name for each in result.step_results] == ["first", "second"]
    assert reward(run_trial(tmp_path, task, "nop")) == 0.5


def test_trial_extra_compose(tmp_path: Path) -> None:
    """A Compose file of the run comes over the task's own definition."""
    extra = tmp_path / "extra.yaml"
    extra.write_text("services: {main: {environment: {ADDED: forty-two}}}\n")
    solve = {"solution/solve.sh": "#!/bin/bash\necho $ADDED >answer\n"}
    task = make_task(tmp_path / "task", {"environment/Dockerfile": DOCKERFILE, **solve})
    assert reward(run_trial(tmp_path, task, extra_docker_compose=[extra])) == 1
    assert reward(run_trial(tmp_path, task)) == 0


def test_trial_health(tmp_path: Path) -> None:
    """Users of the agent and the verifier are those of the task, and a health check is waited for."""
    grade = "#!/bin/bash\ngrep -q healthy /app/state && [ $(id -un) = daemon ] && " + GRADE.format("/app/answer")
    task = make_task(
        tmp_path / "task",
        {
            "environment/Dockerfile": DOCKERFILE + "RUN chmod 777 /app\n",
            "solution/solve.sh": "#!/bin/bash\n[ $(id -un) = nobody ] && echo forty-two >answer\n",
            "tests/test.sh": grade,
        },
        "",
        '[environment.healthcheck]\ncommand = "echo healthy >>state; [ $(wc -l <state) -ge 2 ]"\ninterval_sec = 0.1\n'
        '[agent]\nuser = "nobody"\n[verifier]\nuser = "daemon"',
    )
    assert reward(run_trial(tmp_path, task)) == 1
    task = make_task(task, {}, "", '[environment.healthcheck]\ncommand = "false"\nretries = 2\ninterval_sec = 0.1\n')
    failed = run_trial(tmp_path, task).exception_info
    assert failed
    assert failed.exception_type == "HealthcheckError"


def make(tmp_path: Path, files: dict[str, str] | None = None, **options: Any) -> FumehoodEnvironment:
    """Write an environment's files, and construct it as Harbor does."""
    folder = tmp_path / "environment"
    for name, content in (files or {"Dockerfile": DOCKERFILE}).items():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return construct(tmp_path, **options)


def construct(task: Path, **options: Any) -> FumehoodEnvironment:
    """Construct the environment of a task's folder."""
    paths = TrialPaths(trial_dir=task / "trial")
    paths.mkdir()
    config = options.pop("config", {})
    return FumehoodEnvironment(
        environment_dir=task / "environment",
        environment_name="answer",
        session_id=f"t{uuid4().hex[:12]}__env",
        trial_paths=paths,
        task_env_config=EnvironmentConfig(**config),
        logger=logging.getLogger("test"),
        **options,
    )


@asynccontextmanager
async def started(env: BaseEnvironment) -> AsyncIterator[BaseEnvironment]:
    """Start an environment, and end it."""
    try:
        await env.start(force_build=False)
        yield env
    finally:
        await env.stop(delete=True)
    assert not containers(env.session_id)


def in_environment(env: BaseEnvironment, test: Callable[[BaseEnvironment], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a started environment."""

    async def run() -> None:
        async with started(env):
            await test(env)

    asyncio.run(run())


@SHORT
def test_exec(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(env: BaseEnvironment) -> None:
        r = await env.exec("echo out; echo err >&2; [[ x == x ]] && exit 3")
        assert (r.stdout, r.stderr, r.return_code) == ("out\n", "err\n", 3)
        r = await env.exec("head -c 11000000 /dev/zero | tr '\\0' x; echo end")
        assert r.stdout
        assert r.stdout.endswith("xend\n")
        assert r.stdout.startswith("[514244 bytes of output are missing: more than is kept]\nxxx")
        assert len(r.stdout.partition("\n")[2]) == 10 << 20
        assert "stdout of a command: only the last 10485760 bytes are kept" in caplog.text
        r = await env.exec("true")
        assert (r.stdout, r.stderr, r.return_code) == (None, None, 0)
        assert (await env.exec("kill -9 $$")).return_code == 137
        assert (await env.exec("kill -9 -1")).return_code == 137  # the command's supervisor is killed as well
        assert (await env.exec("pwd")).stdout == "/app\n"
        assert (await env.exec("pwd", cwd="/tmp")).stdout == "/tmp\n"
        r = await env.exec("echo $A $B $C", env={"B": "call", "C": "call"})
        assert r.stdout == "$kept call call\n"
        with env.scoped_exec_env({"C": "scope"}):
            assert (await env.exec("echo $A $B $C", env={"B": "call", "C": "call"})).stdout == "$kept call scope\n"
        assert (await env.exec("echo $A", env={"A": "call"})).stdout == "call\n"
        with env.with_default_user("nobody"):
            assert (await env.exec("id -un")).stdout == "nobody\n"
            assert (await env.exec("id -un", user=0)).stdout == "root\n"
        for options, code in [({"user": "nobody-knows"}, 126), ({"cwd": "/nowhere"}, 127)]:
            r = await env.exec("true", **options)
            assert r.return_code == code
            assert r.stderr

        before = asyncio.get_running_loop().time()
        with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
            await env.exec("setsid sleep 77 & sleep 77", timeout_sec=1)
        assert asyncio.get_running_loop().time() - before < 5
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(env.exec("setsid sleep 77 & sleep 77"), 1)
        assert (await env.exec("sleep 78 & exit")).return_code == 0  # a service that an agent leaves behind
        listed = (await env.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout
        assert "sleep 77" not in listed
        assert "sleep 78" in listed

        seen: list[tuple[str, str]] = []
        first = asyncio.Event()

        async def callback(text: str, stream: str) -> None:
            seen.append((stream, text))
            first.set()

        with env.scoped_output_callback(callback):
            running = asyncio.create_task(env.exec("echo one; while [ ! -e go ]; do sleep 0.02; done; echo é >&2"))
            await asyncio.wait_for(first.wait(), 10)
            assert seen == [("stdout", "one\n")]
            await env.exec("touch go")
            r = await running
            assert (r.stdout, r.stderr) == ("one\n", "é\n")
            assert seen == [("stdout", "one\n"), ("stderr", "é\n")]
            await env.exec("printf 'a\\303'")
            assert "".join(text for _, text in seen[2:]) == "a\ufffd"  # also a character that was not completed
            with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
                await env.exec("setsid sleep 79 & sleep 79", timeout_sec=1)
        assert "sleep 79" not in (await env.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout

    env = make(tmp_path, persistent_env={"A": "$kept", "B": "kept"})
    in_environment(env, test)
    with pytest.raises(UnavailableError, match="not started"):
        asyncio.run(env.exec("true"))


@SHORT
@pytest.mark.parametrize("end", ENDS)
def test_ends(tmp_path: Path, end: str) -> None:
    """Commands end as the page about frameworks says."""
    env, sandbox, cell = make(tmp_path), Ending(end), documented("harbor")[end]
    env._sandbox = sandbox  # type: ignore[assignment]
    try:
        found = asyncio.run(env.exec("command", timeout_sec=1))
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert ("a line" if "bytes of output are missing" in (found.stdout or "") else str(found.return_code)) == cell
        assert found.stderr or isinstance(ENDS[end], Result)


@pytest.mark.parametrize("end", REAL)
def test_ends_real(tmp_path: Path, end: str) -> None:
    env = make(
        tmp_path, {"Dockerfile": f"FROM {IMAGE}\nRUN mkdir /work\n"}, pids=PIDS, config={"memory_mb": MEMORY >> 20}
    )

    async def test(_: BaseEnvironment) -> None:
        async def execute(args: list[str], timeout: float | None) -> str:
            found = await env.exec(shlex.join(args), "/work", timeout_sec=int(timeout or 0))
            return "a line" if "bytes of output are missing" in (found.stdout or "") else str(found.return_code)

        assert env._sandbox
        await Driver("harbor", env._sandbox.name, execute).check(end)

    in_environment(env, test)


@SHORT
def test_files(tmp_path: Path) -> None:
    """Files are copied as by `docker cp`, and nothing from a sandbox leads out of the target."""
    source = tmp_path / "source"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "run.sh").write_text("#!/bin/bash\necho ran\n")
    (source / "sub" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("sub/run.sh")
    outside = tmp_path / "outside"

    async def test(env: BaseEnvironment) -> None:
        await env.upload_dir(source_dir=source, target_dir="/new/tree")
        assert (await env.exec("./link; stat -c %U link sub/run.sh; ls sub", cwd="/new/tree")).stdout == (
            "ran\nroot\nroot\nempty\nrun.sh\n"
        )
        await env.upload_file(source_path=str(source / "sub" / "run.sh"), target_path="/new/other/renamed")
        await env.upload_file(source_path=source / "sub" / "run.sh", target_path="/new/tree")
        await env.exec("ln -s /new/tree /linked; echo old >/new/old; chmod 600 /new/old")
        await env.upload_file(source_path=source / "sub" / "run.sh", target_path="/linked/")
        await env.upload_file(source_path=source / "sub" / "run.sh", target_path="/new/old")
        assert (await env.exec("/new/other/renamed; /new/tree/run.sh; /new/old")).stdout == "ran\nran\nran\n"

        await env.download_file(source_path="/new/old", target_path=tmp_path / "made" / "file")
        assert os.access(tmp_path / "made" / "file", os.X_OK)
        await env.download_file(source_path="/new/tree/link", target_path=str(tmp_path / "made"))
        assert (tmp_path / "made" / "link").read_text().endswith("ran\n")
        with pytest.raises(FileNotFoundError):
            await env.download_file(source_path="/nowhere", target_path=tmp_path / "none")
        for folder in ("/new/tree", "/new/tree/"):  # where a file was expected
            with pytest.raises(IsDirectoryError):
                await env.download_file(source_path=folder, target_path=tmp_path / "none")
        assert not (tmp_path / "none").exists()
        with pytest.raises(IsADirectoryError):
            await env.upload_file(source_path=source, target_path="/new/none")

        hostile = f"ln -s {outside} out; ln -s ../../outside up; mkfifo pipe; mkdir d; echo x >d/f; chmod 0 d/f; echo"
        await env.exec(f"cd /new/tree; {hostile} changed >sub/run.sh; chmod 777 sub/run.sh; sleep 1")
        target = tmp_path / "target"
        target.mkdir()
        (target / "kept").touch()
        (target / "link").write_text("replaced")
        await env.download_dir(source_dir="/linked", target_dir=target)
        await env.download_dir(source_dir="/new/tree/", target_dir=str(target))
        assert sorted(str(each.relative_to(target)) for each in target.rglob("*")) == [
            "d", "d/f", "kept", "link", "run.sh", "sub", "sub/empty", "sub/run.sh",
        ]  # fmt: skip
        assert (target / "link").resolve() == target / "sub" / "run.sh"
        assert (target / "sub" / "run.sh").read_text() == "changed\n"
        assert (target / "sub" / "run.sh").stat().st_mode & 0o777 == 0o755
        assert (target / "d" / "f").read_text() == "x\n"
        with pytest.raises(FileNotFoundError):
            await env.download_dir(source_dir="/nowhere", target_dir=target)
        with pytest.raises(NotADirectoryError):
            await env.download_dir(source_dir="/new/old", target_dir=target)
        await env.download_dir_with_exclusions(
            source_dir="/new/tree", target_dir=tmp_path / "some", exclude=["sub", "up", "out"]
        )
        assert not (tmp_path / "some" / "sub").exists()
        assert await env.is_dir("/linked")
        assert not await env.is_file("/linked")

    in_environment(make(tmp_path), test)
    assert not outside.exists()


@pytest.mark.parametrize("path", ["../outside", "/outside", "a/../../outside"])
def test_files_hostile(tmp_path: Path, path: str) -> None:
    """A guest that was taken over cannot name files outside of the target."""

    class Hostile:
        async def walk(self, source: str) -> AsyncIterator[FileInfo]:
            yield FileInfo(".", "directory", path=".")
            yield FileInfo("outside", "file", path=path)

        async def download(self, source: str, target: Path) -> None:
            target.touch()  # noqa: ASYNC240

    hostile: Any = Hostile()
    with pytest.raises(ValueError, match="invalid path"):
        asyncio.run(download_dir(hostile, "/logs", tmp_path / "target", logging.getLogger("test")))
    assert not (tmp_path / "outside").exists()


def test_files_replaced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A folder that takes the place of a file, while files are copied, is left out."""

    class Replacing:
        def __init__(self, of: AsyncService) -> None:
            self.download = of.download

        async def walk(self, source: str) -> AsyncIterator[FileInfo]:
            yield FileInfo(".", "directory", path=".")
            yield FileInfo("file", "file", path="file")
            yield FileInfo("replaced", "file", path="replaced")

    async def test(env: Any) -> None:
        await env.exec("mkdir -p /logs/x/replaced/secret; echo x >/logs/x/file")
        replacing: Any = Replacing(await env._reader(None))
        target = tmp_path / "target"
        await download_dir(replacing, "/logs/x", target, logging.getLogger("test"))
        assert [each.name for each in target.iterdir()] == ["file"]
        assert "not downloaded: /logs/x/replaced: " in caplog.text

    in_environment(make(tmp_path, network_policy=NO_NETWORK), test)


@SHORT
def test_files_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What this machine cannot hold, and what exceeds a limit, is left out. A sparse file stays sparse."""
    name = "A" * 255
    deep = "/".join("d" * 200 for _ in range(30))

    async def test(env: BaseEnvironment) -> None:
        await env.exec(f"mkdir -p /logs/x; cd /logs/x; echo x >{name}; truncate -s 64M sparse; echo y >last")
        make = (
            f"import os; os.chdir('/logs/x'); [(os.mkdir(d), os.chdir(d)) for d in '{deep}'.split('/')]; open('f', 'w')"
        )
        await env.exec(f'python3 -c "{make}"')
        await env.download_dir(source_dir="/logs/x", target_dir=tmp_path / "all")
        found = tmp_path / "all"
        assert (found / name).read_text() == "x\n"
        assert (found / "last").read_text() == "y\n"
        assert (found / "sparse").stat().st_size == 64 << 20
        assert (found / "sparse").stat().st_blocks < 2048
        assert "not downloaded: /logs/x/dddd" in caplog.text

        caplog.clear()
        env.options = env.options.model_copy(update={"max_download_bytes": 1 << 20})
        await env.download_dir(source_dir="/logs/x", target_dir=tmp_path / "small")
        assert not (tmp_path / "small" / "sparse").exists()
        assert (tmp_path / "small" / "last").read_text() == "y\n"
        assert "not downloaded: /logs/x/sparse: more bytes than max_download_bytes, holes included" in caplog.text
        with pytest.raises(TooLargeError, match="more than 1048576 bytes"):
            await env.download_file(source_path="/logs/x/sparse", target_path=tmp_path / "one")
        assert not (tmp_path / "one").exists()

        caplog.clear()
        env.options = env.options.model_copy(update={"max_download_entries": 2})
        await env.download_dir(source_dir="/logs/x", target_dir=tmp_path / "few")
        assert [each.name for each in (tmp_path / "few").iterdir()] == [name]
        assert "more entries than max_download_entries" in caplog.text

    in_environment(make(tmp_path, network_policy=NO_NETWORK), test)


@SHORT
@pytest.mark.skipif(PROVIDER != "native", reason="only the native provider's sandboxes have a disk of their own")
@pytest.mark.parametrize("then", ["exit 0", "(sleep 1; dd if=/dev/zero of=/more bs=64k) & exit 0"])
def test_trial_full_disk(tmp_path: Path, then: str) -> None:
    """An attempt that fills its disk has the reward 0."""
    fill = "dd if=/dev/zero of=/big bs=1M; dd if=/dev/zero of=/small bs=1 count=100000"
    solve = {"environment/Dockerfile": DOCKERFILE, "solution/solve.sh": f"#!/bin/bash\n{fill}\n{then}\n"}
    assert reward(run_trial(tmp_path, make_task(tmp_path / "task", solve, 'network_mode = "no-network"'))) == 0


@pytest.mark.skipif(PROVIDER != "native", reason="only the native provider's sandboxes have a disk of their own")
def test_full_disk_filtered(tmp_path: Path) -> None:
    """Also if only some logs are copied, a reward that finds no space is 0, and one that is there stays."""

    async def test(env: BaseEnvironment) -> None:
        target = env.trial_paths.verifier_dir
        logs = {"source_dir": "/logs/verifier", "target_dir": target, "include": ["*.txt"]}
        await env.exec("mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt")
        await env.download_dir_filtered(**logs)
        assert (target / "reward.txt").read_text() == "1\n"
        (target / "reward.txt").unlink()
        await env.exec("rm /logs/verifier/reward.txt; dd if=/dev/zero of=/big bs=1M; dd if=/dev/zero of=/more bs=1")
        await env.download_dir_filtered(**logs)
        assert (target / "reward.txt").read_text() == "0\n"
        await env.exec("rm /big /more")
        (target / "reward.txt").unlink()
        await env.download_dir_filtered(**logs)
        assert not (target / "reward.txt").exists()

    config = {"docker_image": IMAGE, "workdir": "/tmp"}
    in_environment(make(tmp_path, config=config, network_policy=NO_NETWORK), test)


def test_services(tmp_path: Path) -> None:
    """Commands and files of each service, and the end of one."""

    async def test(env: BaseEnvironment) -> None:
        r = await env.service_exec("cat /www/data/word; echo $A; pwd", service="store")
        assert r.stdout == "stored\n\n/\n", r
        assert (await env.service_exec("pwd; echo $A")).stdout == "/app\nkept\n"
        await env.service_download_file("/www/data/word", tmp_path / "word", service="store")
        await env.service_download_dir("/www", tmp_path / "www", service="store")
        assert (tmp_path / "word").read_text() == (tmp_path / "www" / "data" / "word").read_text() == "stored\n"
        assert await env.service_is_dir("/www", service="store")
        with pytest.raises(ValueError, match="none is named 'other'"):
            await env.service_exec("true", service="other")
        await env.exec("echo left >/app/left; (while true; do date >>/app/log; sleep 0.1; done) & exit")
        await env.stop_service("main")
        with pytest.raises(RuntimeError, match="service 'main' was stopped"):
            await env.exec("true")
        await env.download_dir(source_dir="/app", target_dir=tmp_path / "first")
        await asyncio.sleep(0.5)
        await env.download_dir(source_dir="/app", target_dir=tmp_path / "second")
        assert (tmp_path / "first" / "log").read_text() == (tmp_path / "second" / "log").read_text() != ""
        assert (await env.service_exec("cat /www/data/word", service="store")).stdout == "stored\n"

    files = {"Dockerfile": DOCKERFILE, "docker-compose.yaml": COMPOSE}
    in_environment(make(tmp_path, files, persistent_env={"A": "kept", "GIVEN": "x"}), test)


def test_image_user(tmp_path: Path) -> None:
    """Root is usable in an image with another user, as Harbor needs it."""

    async def test(env: BaseEnvironment) -> None:
        assert (await env.exec("id -un; touch mine")).stdout == "daemon\n"
        assert (await env.exec("chown nobody mine; stat -c %U mine", user="root")).stdout == "nobody\n"
        await env.upload_file(source_path=tmp_path / "environment" / "Dockerfile", target_path="/app/given")
        assert (await env.exec("stat -c %U given; touch /logs/agent/log")).return_code == 0

    dockerfile = DOCKERFILE + "RUN chown daemon /app\nUSER daemon\n"
    mounts: Any = [{"type": "bind", "source": str(tmp_path), "target": "/logs/agent"}]
    in_environment(make(tmp_path, {"Dockerfile": dockerfile}, auto_mounts=mounts), test)


@pytest.mark.parametrize("policy", [None, NO_NETWORK])
@pytest.mark.parametrize(
    "files", [{"Dockerfile": DOCKERFILE}, {"Dockerfile": DOCKERFILE, "docker-compose.yaml": COMPOSE}]
)
def test_network(tmp_path: Path, policy: NetworkPolicy | None, files: dict[str, str]) -> None:
    """A task has a network by default, and reaches nothing but its services without one."""

    async def test(env: BaseEnvironment) -> None:
        reach = f"import socket; socket.create_connection({listener.getsockname()}, 2)"
        r = await env.exec(f'python3 -c "{reach}"')
        # The native provider's networks do not reach this machine.
        assert (r.return_code == 0) == (policy is None and PROVIDER != "native"), r.stderr
        devices = (await env.exec("ls /sys/class/net")).stdout.split()
        assert (len(devices) > 1) == (policy is None or (len(files) > 1 and PROVIDER != "native")), devices
        if len(files) > 1:
            assert (await env.exec(FETCH)).stdout == "stored\n\n"

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.connect(("192.0.2.1", 9))  # sends nothing
        host = outward.getsockname()[0]
    with socket.create_server((host, 0)) as listener:
        in_environment(make(tmp_path, files, network_policy=policy, persistent_env={"GIVEN": "x"}), test)


def refused(tmp_path: Path, match: str, **options: Any) -> None:
    with pytest.raises((FileNotFoundError, RuntimeError, ValueError), match=match):
        make(tmp_path, **options)


@SHORT
def test_network_refused(tmp_path: Path) -> None:
    """A policy that cannot be enforced is an error before anything starts."""
    hosts = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["example.org"])
    refused(tmp_path, "network_mode='allowlist' is not supported by fumehood", network_policy=hosts)
    phases = [NetworkPolicy()]
    refused(
        tmp_path,
        "cannot change network policy",
        network_policy=NO_NETWORK,
        phase_network_policies=[phases[0], NO_NETWORK],
    )
    refused(tmp_path, "remove this option", network_policy=NO_NETWORK, allow_unsafe=True)
    files, _, _ = KINDS["dockerfile"]
    task = make_task(tmp_path / "task", files, 'network_mode = "allowlist"\nallowed_hosts = ["example.org"]')
    with pytest.raises(ValueError, match="network_mode='allowlist' is not supported by fumehood"):
        run_trial(tmp_path, task)


def test_resources(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(env: BaseEnvironment) -> None:
        groups = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes || cat /sys/fs/cgroup/memory.max"
        assert (await env.exec(f"{groups} 2>/dev/null")).stdout == f"{300 << 20}\n"
        r = await env.exec("python3 -c 'bytearray(1 << 30)'")
        assert r.return_code == 137
        if PROVIDER == "native":
            files = "cpu.max pids.max cpu/cpu.cfs_quota_us pids/pids.max"
            found = (await env.exec(f"cd /sys/fs/cgroup; cat {files} 2>/dev/null; echo $A")).stdout
            assert found.replace(" 100000", "") == "50000\n99\n$kept\n"
            return
        name = env._sandbox.info.services[0].container
        found = ["docker", "inspect", "-f", "{{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} {{.Config.Env}}", name]
        assert output(found).startswith("500000000 99 [A=$kept ")

    config = {"cpus": 0.5, "memory_mb": 300, "storage_mb": 1000}
    in_environment(make(tmp_path, config=config, pids=99, persistent_env={"A": "$kept"}), test)
    assert "storage_mb=1000 is not enforced" in caplog.text
    assert "a command exceeded the memory limit of service main" in caplog.text
    refused(tmp_path, r"requires 1 GPU\(s\) but fumehood", config={"gpus": 1})
    refused(tmp_path, "not support memory resource requests", memory_enforcement_policy=ResourceMode.REQUEST)
    refused(tmp_path, "does not support Windows", config={"os": "windows"})
    refused(tmp_path / "empty", "has no environment definition", files={"other": ""})
    refused(tmp_path, "Unknown option 'nothing'", nothing=1)


def test_mounts(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "given").write_text("given")

    async def test(env: BaseEnvironment) -> None:
        assert (await env.exec("cat /data/given")).stdout == "given"
        assert (await env.exec("touch /data/more")).return_code != 0

    mount = {"type": "bind", "source": str(data), "target": "/data"}
    in_environment(make(tmp_path, mounts=[{**mount, "read_only": True}]), test)
    refused(tmp_path, "a writable path of this machine is not safe", mounts=[mount])
    refused(tmp_path, "type 'volume' is not supported", mounts=[{**mount, "type": "volume"}])
    refused(tmp_path, "does not support automatic host mounts", auto_mounting=True)


@SHORT
def test_offline_refused(tmp_path: Path) -> None:
    """A Compose file that gives a service a way out is refused at the start, however the file is written."""
    other = f"services: {{side: {{image: '{IMAGE}', network_mode: bridge}}}}"
    for text, key in [
        ("services: {main: {network_mode: bridge}}", "network_mode"),
        ("services: {main: {network_mode: '${MODE:-bridge}'}}", "network_mode"),
        ("services: {main: {}}\nx-fumehood: {egress: internet}", "x-fumehood.egress"),
        ("services: {main: {!!binary bmV0d29ya19tb2Rl: bridge}}", "quote it"),
        ("!!binary eC1mdW1laG9vZA==: {egress: internet}\nservices: {main: {}}", "quote it"),
        ("include: [other.yaml]\nservices: {main: {}}", "services.side.network_mode"),
        ("services: {main: {extends: {file: other.yaml, service: side}}}", "services.main.network_mode"),
    ]:
        files = {"Dockerfile": DOCKERFILE, "docker-compose.yaml": text, "other.yaml": other}
        env = make(tmp_path, files, network_policy=NO_NETWORK)
        with pytest.raises(SandboxBuildFailedError, match=re.escape(key)):
            in_environment(env, lambda env: env.exec("true"))


@SHORT
def test_links(tmp_path: Path) -> None:
    """No link of a task gives its sandbox files of this machine."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "Dockerfile").write_text(DOCKERFILE)
    (secret / "docker-compose.yaml").write_text("services: {}\n")
    (secret / "id").write_text("key")
    image = {"config": {"docker_image": IMAGE}}
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("environment", "../secret", {}),
        ("environment", "../secret", image),
        ("environment/Dockerfile", "../../secret/Dockerfile", {}),
        ("environment/docker-compose.yaml", str(secret / "docker-compose.yaml"), {}),
        ("environment/sub/id", str(secret / "id"), image),
    ]
    for number, (name, target, options) in enumerate(cases):
        task = tmp_path / f"task-{number}"
        link = task / name
        link.parent.mkdir(parents=True)
        link.symlink_to(secret if name == "environment" else target)
        with pytest.raises(ValueError, match=r"a link that leads out of the task, to .*secret"):
            construct(task, **options)
        construct(task, allow_read=[str(secret)], **options)
    inner = tmp_path / "inner"
    (inner / "shared").mkdir(parents=True)
    (inner / "task.toml").touch()
    (inner / "shared" / "Dockerfile").write_text(DOCKERFILE)
    (inner / "steps").mkdir()
    (inner / "steps" / "environment").symlink_to("../shared")
    construct(inner / "steps")


@SHORT
def test_start_refused(tmp_path: Path) -> None:
    """What a task may not have is refused with the option that allows it, and so is a build that fails."""
    for text, dockerfile, match in [
        ("services: {main: {privileged: true}}", DOCKERFILE, "--ek NAME=VALUE.* allow it: allow_unsafe"),
        ("services: {main: {volumes: ['/opt:/opt:ro']}}", DOCKERFILE, "allow_read|allow_unsafe"),
        ("services: {main: {}}", f"FROM {IMAGE}\nRUN exit 7\n", "7"),
    ]:
        env = make(tmp_path, {"Dockerfile": dockerfile, "docker-compose.yaml": text})
        with pytest.raises(SandboxBuildFailedError, match=match):
            in_environment(env, lambda env: env.exec("true"))


def test_start_shared(tmp_path: Path) -> None:
    """Environments of an event loop share a server, which ends with the last one. stop may be called again."""

    async def run() -> None:
        first, second = make(tmp_path), make(tmp_path)
        await asyncio.gather(first.start(False), second.start(True))
        assert (LOOPS.running().users, len(LOOPS.running().clients)) == (2, 1)
        await first.stop(delete=False)
        await first.stop(delete=True)
        assert (await second.exec("echo still")).stdout == "still\n"
        await second.stop(delete=True)
        assert not LOOPS.running().clients
        assert not containers(first.session_id) + containers(second.session_id)
        await second.start(False)
        assert (await second.exec("echo again")).stdout == "again\n"
        await second.stop(delete=True)

    asyncio.run(run())


PHASES = {
    "start": ({"environment/Dockerfile": f"FROM {IMAGE}\nRUN sleep 600.%s\n"}, ""),
    "agent": ({"solution/solve.sh": "#!/bin/bash\nsetsid sleep 600.%s & sleep 600.%s\n"}, ""),
    "verifier": ({"tests/test.sh": "#!/bin/bash\nsleep 600.%s\n"}, ""),
    "separate": (
        {
            "tests/test.sh": "#!/bin/bash\nsleep 600.%s\n",
            "tests/Dockerfile": f"FROM {IMAGE}\nCOPY test.sh /tests/test.sh\n",
        },
        SEPARATE,
    ),
}


@pytest.mark.parametrize("phase", [pytest.param("agent", marks=SHORT), "start", "verifier", "separate"])
def test_killed(tmp_path: Path, phase: str) -> None:
    """A run of Harbor that is killed leaves no container and no process."""
    number = str(uuid4().int)[:12]
    files, more = PHASES[phase]
    files = {"environment/Dockerfile": DOCKERFILE, **files}
    task = make_task(tmp_path / "task", {k: v.replace("%s", number) for k, v in files.items()}, "", more)
    harbor = Path(sys.executable).with_name("harbor")
    command = [str(harbor), "run", "-p", str(task), "--env", ENVIRONMENT, "-a", "oracle", "-o", str(tmp_path / "jobs")]

    def running() -> bool:
        found = ["pgrep", "-f", f"^sleep 600.{number}"]
        return subprocess.run(found, stdout=subprocess.DEVNULL, check=False).returncode == 0

    def built() -> bool:
        listed = ["docker", "ps", "-a", "--no-trunc", "--format", "{{.Command}}"]
        return number in output(listed)

    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, env=of_programs(), stdout=log, stderr=log, start_new_session=True) as process,
    ):
        try:
            assert asyncio.run(_within(60, lambda: running() or process.poll() is not None))
            assert process.poll() is None, (tmp_path / "log").read_text()
            sessions = {each.name for each in (tmp_path / "jobs").glob("*/*") if each.is_dir()}
            assert len(sessions) == 1
            process.send_signal(signal.SIGKILL)
            gone = asyncio.run(_within(10, lambda: not (running() or built() or containers(*sessions))))
            assert gone
        finally:
            process.kill()


async def _within(seconds: float, happens: Callable[[], bool]) -> bool:
    """Report whether something happens within some seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not happens():
        if loop.time() > end:
            return False
        await asyncio.sleep(0.1)
    return True


@SHORT
def test_examples(tmp_path: Path) -> None:
    """The example of the how-to runs as it is, on the test image."""
    (code,) = re.findall(r"^```bash\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert "python:3.12-slim" in code
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", "-e", "-c", code.replace("python:3.12-slim", IMAGE)],
        cwd=tmp_path,
        env={**of_programs(), "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Mean: 1.000" in found.stdout, found.stdout + found.stderr


def test_no_processes(tmp_path: Path) -> None:
    """After a fork bomb commands fail, and the trial goes on."""

    async def test(env: BaseEnvironment) -> None:
        await env.exec(f"setsid python3 -c '{BOMB}' >/dev/null 2>&1 &")
        while not (await env.exec("true")).return_code:
            pass
        results = [await env.exec("true") for _ in range(5)]
        assert {(r.return_code, "limit of 64 processes" in (r.stderr or "")) for r in results} == {(126, True)}

    in_environment(make(tmp_path, pids=64), test)


def test_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    FumehoodEnvironment.preflight({"pids": 5})
    with pytest.raises(ValueError, match="Unknown option 'nothing'"):
        FumehoodEnvironment.preflight({"nothing": 1})
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    if PROVIDER == "native":
        FumehoodEnvironment.preflight()
        return
    with pytest.raises(SystemExit, match=r"unix:///nowhere.*start the Docker daemon"):
        FumehoodEnvironment.preflight()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (
            "BaseEnvironment.stop = lambda self, delete, how: None",
            "the interface of harbor .* is not supported: .*delete, how",
        ),
        ("del base.SandboxBuildFailedError", "the interface of harbor .* is not supported: .*SandboxBuildFailedError"),
        ("sys.modules['harbor.environments.base'] = None", "fumehood.harbor: "),
    ],
)
def test_import(change: str, error: str) -> None:
    """Another interface of Harbor is one clear error."""
    code = f"import sys\nimport harbor.environments.base as base\nBaseEnvironment = base.BaseEnvironment\n{change}\n"
    found = subprocess.run(
        [sys.executable, "-c", code + "import fumehood.harbor"],
        env=of_programs(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(f"^ImportError: .*{error}", found.stderr, re.MULTILINE), found.stderr
