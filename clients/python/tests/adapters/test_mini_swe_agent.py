"""Agents of mini-swe-agent in sandboxes of Fumehood."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import tests  # noqa: F401

os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_GLOBAL_CONFIG_DIR"] = tempfile.mkdtemp()  # in the folder that is removed at the end

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.environments.docker import DockerEnvironment
from minisweagent.exceptions import Submitted
from minisweagent.models.test_models import DeterministicModel, make_output
from pydantic import ValidationError

from fumehood import ConfigError, Result, UnavailableError, mini_swe_agent
from fumehood.mini_swe_agent import FumehoodEnvironment, FumehoodEnvironmentConfig
from tests.adapters.ends import (
    ENDS,
    MEMORY,
    PIDS,
    REAL,
    BlockingEnding,
    Driver,
    check_killed,
    documented,
    is_error,
    processes,
)
from tests.real import BINARY, IMAGE, PROVIDER, kill, wait_for

HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "mini_swe_agent.md"
CLASS = "fumehood.mini_swe_agent.FumehoodEnvironment"
SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """Keep one server for all tests."""
    mini_swe_agent._shared.acquire()
    yield
    mini_swe_agent._shared.release()


@pytest.fixture
def environment() -> Iterator[FumehoodEnvironment]:
    with made(cwd="/tmp") as environment:
        yield environment


def made(**config: Any) -> FumehoodEnvironment:
    found: FumehoodEnvironment = get_environment({"environment_class": CLASS, "image": IMAGE, **config})
    return found


def run(environment: FumehoodEnvironment, command: str, **options: Any) -> tuple[str, int]:
    found = environment.execute({"command": command}, **options)
    assert found["exception_info"] == ""
    return found["output"], found["returncode"]


def agent(environment: Any, *commands: str, **config: Any) -> DefaultAgent:
    """Return an agent whose model runs commands."""
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    templates = {"system_template": "{{system}} {{machine}}", "instance_template": "{{task}}", "cost_limit": 0}
    return DefaultAgent(model, environment, **templates, **config)


def test_agent(environment: FumehoodEnvironment, tmp_path: Path) -> None:
    """An agent writes, runs and edits files, sees a timeout and a failure, and submits."""
    trajectory = tmp_path / "trajectory.json"
    steps = agent(
        environment,
        "printf 'import sys\\nprint(6*9, file=sys.stderr, flush=True)\\nprint(1)\\n' >main.py",
        "python3 main.py",
        "sed -i s/9/7/ main.py; python3 main.py; no-such-program",
        f"{SUBMIT}; exit 1",
        f"{SUBMIT}; python3 main.py 2>&1",
        output_path=trajectory,
    )
    result = steps.run("do it")
    assert result == {"exit_status": "Submitted", "submission": "42\n1\n"}
    seen = [message["content"] for message in steps.messages[2:] if message["role"] == "user"]
    assert "<returncode>0</returncode>\n<output>\n54\n1\n" in seen[1]
    assert "<returncode>127</returncode>\n<output>\n42\n1\n" in seen[2]
    assert "<returncode>1</returncode>" in seen[3]
    saved = json.loads(trajectory.read_text())
    config = saved["info"]["config"]
    assert config["environment"] == environment.config.model_dump(mode="json")
    assert config["environment_type"] == CLASS
    assert saved["messages"][0]["content"] == f"Linux {os.uname().machine}"


def test_lost(environment: FumehoodEnvironment) -> None:
    """A sandbox that is gone ends the run of an agent, and is no output."""
    assert environment.sandbox
    kill(environment.sandbox.name)
    steps = agent(environment, "true", SUBMIT)
    with pytest.raises(UnavailableError):
        steps.run("do it")
    assert steps.messages[-1]["extra"]["exit_status"] == "UnavailableError"
    assert [message["role"] for message in steps.messages] == ["system", "user", "assistant", "exit"]


def test_execute(environment: FumehoodEnvironment) -> None:
    for command, output, code in [
        ("echo out; echo err >&2; echo again", "out\nerr\nagain\n", 0),
        ("pwd; exit 124", "/tmp\n", 124),
        ("cat; echo end", "end\n", 0),
        ("sleep 971 & echo started", "started\n", 0),
        ("printf '\\303\\251\\377'", "é\ufffd", 0),
        ("kill -9 $$", "", 137),
    ]:
        assert run(environment, command) == (output, code), command
    text, code = run(environment, "if")
    assert code == 2
    assert "syntax error" in text
    assert run(environment, "pwd", cwd="/usr") == ("/usr\n", 0)
    text, code = run(environment, "true", cwd="/nowhere")
    assert (code, "/nowhere" in text) == (127, True)
    with pytest.raises(ConfigError):
        environment.execute({"command": "echo a\0b"})
    assert environment.execute({})["returncode"] == 0  # as with Docker, no command is an empty one


def test_timeout(environment: FumehoodEnvironment) -> None:
    assert environment.sandbox
    token = environment.sandbox.name
    sleep = f"setsid sh -c 'sleep 972; : {token}' & sleep 972; : {token}"
    found = environment.execute({"command": f"echo before; {sleep}"}, timeout=1)
    said = "Command timed out after 1 seconds and was killed"
    assert found == {
        "output": "before\n",
        "returncode": -1,
        "exception_info": f"An error occurred while executing the command: {said}",
        "extra": {"exception_type": "TimeoutExpired", "exception": said},
    }
    assert wait_for(lambda: not processes(token))
    with pytest.raises(ValidationError, match="timeout"):
        FumehoodEnvironmentConfig(image=IMAGE, timeout=0)


def test_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "given")
    monkeypatch.setenv("BOTH", "forwarded")
    config: dict[str, Any] = {"env": {"BOTH": "env"}, "forward_env": ["GIVEN", "BOTH", "UNSET"], "memory": 512 << 20}
    with made(interpreter=["python3", "-c"], timeout=1, **config) as environment:
        show = "import os; print(os.environ['GIVEN'], os.environ['BOTH'])"
        assert run(environment, show, timeout=30) == ("given env\n", 0)
        assert environment.execute({"command": "import time; time.sleep(600)"})["returncode"] == -1
        assert run(environment, "x = bytearray(1 << 30)", timeout=30) == ("", 137)
        found = environment.get_template_vars(task="x")
        assert (found["task"], found["image"], found["system"]) == ("x", IMAGE, "Linux")
        assert found["node"] != os.uname().nodename
    with made(interpreter=["no-such-shell"]) as environment:
        assert environment.execute({"command": "true"})["returncode"] == 127
    with pytest.raises(UnavailableError, match="cleaned up"):
        environment.execute({"command": "true"})
    environment.cleanup()
    with pytest.raises(ValidationError, match="run_args"):
        made(run_args=["--privileged"])
    with pytest.raises(ConfigError):
        made(cpus=-2)


def test_same_as_docker(environment: FumehoodEnvironment) -> None:
    """Commands have the outputs and exit codes of mini-swe-agent's own Docker environment."""
    if PROVIDER == "native":
        pytest.skip("compared on the Docker Engine")
    own = DockerEnvironment(image=IMAGE, cwd="/tmp")
    try:
        for command in [
            "echo a; sleep 1; echo b >&2",  # Docker may swap the streams otherwise
            "exit 7",
            "kill -9 $$",
            "no-such-program",
            "/etc/passwd",
            "pwd; id -u",
            "if",
        ]:
            assert environment.execute({"command": command}) == own.execute({"command": command}), command
        for each in (environment, own):
            with pytest.raises(Submitted) as submitted:
                each.execute({"command": f"echo; {SUBMIT}; echo; echo patch"})
            assert submitted.value.messages[0]["extra"]["submission"] == "\npatch\n"
            assert submitted.value.messages[0]["role"] == "exit"
        mine, theirs = (each.execute({"command": "echo before; sleep 3"}, timeout=1) for each in (environment, own))
        assert {key: type(value) for key, value in mine.items()} == {key: type(value) for key, value in theirs.items()}
        assert (mine["output"], mine["returncode"]) == (theirs["output"], theirs["returncode"])
    finally:
        subprocess.run(["docker", "rm", "-f", own.container_id], check=True, capture_output=True)
        own.container_id = None


@pytest.mark.parametrize("end", ENDS)
def test_ends(end: str) -> None:
    """Commands end as the page about frameworks says."""
    environment, cell = FumehoodEnvironment.__new__(FumehoodEnvironment), documented("mini_swe_agent")[end]
    environment.config, ending = FumehoodEnvironmentConfig(image="x"), mock.Mock(wraps=BlockingEnding(end))
    with mock.patch.object(environment, "cleanup"):  # the sandbox is none of a server
        environment.sandbox = ending
        try:
            found = environment.execute({"command": "command"})
        except Exception as e:  # noqa: BLE001  # its class is what is tested
            assert is_error(e, cell), e
        else:
            assert said(found) == cell
            assert found["output"] or isinstance(ENDS[end], Result)
        environment.sandbox = None


def said(found: dict[str, Any]) -> str:
    """Return an end in the words of the page."""
    assert bool(found["exception_info"]) == (found["returncode"] == -1)
    return "a line" if "bytes of output are missing" in found["output"] else str(found["returncode"])


@pytest.mark.parametrize("end", [end for end in REAL if end != "canceled"])
async def test_ends_real(end: str) -> None:
    with made(cwd="/tmp", memory=MEMORY, pids=PIDS) as environment:
        environment.execute({"command": "mkdir /work"})

        async def execute(args: list[str], timeout: float | None) -> str:
            action = {"command": shlex.join(args)}
            return said(await asyncio.to_thread(environment.execute, action, "/work", timeout=timeout or 600))

        assert environment.sandbox
        await Driver("mini_swe_agent", environment.sandbox.name, execute).check(end)


def test_interrupted(environment: FumehoodEnvironment) -> None:
    """Ctrl-C ends the command, with all its descendants, and the environment goes on."""
    assert environment.sandbox
    token = environment.sandbox.name

    def interrupt() -> None:
        wait_for(lambda: len(processes(token)) >= 2)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        environment.execute({"command": f"setsid sh -c 'sleep 973; : {token}' & sleep 973; : {token}"}, timeout=600)
    thread.join()
    assert wait_for(lambda: not processes(token))
    assert run(environment, "echo on") == ("on\n", 0)


def test_large(environment: FumehoodEnvironment) -> None:
    """A submission may be large. Of more than 64 MiB the end is kept, after a line."""
    with pytest.raises(Submitted) as submitted:
        environment.execute({"command": f"{SUBMIT}; yes | head -c 20000000"})
    assert len(submitted.value.messages[0]["content"]) == 20_000_000
    text, code = run(environment, f"{SUBMIT}; head -c 70000000 /dev/zero | tr '\\0' x")
    assert code == 0
    assert re.match(r"\[\d+ bytes of output are missing: more than is kept\]\nx", text)


def test_threads() -> None:
    """Environments of several threads share a server, and each has its sandbox."""
    shared = mini_swe_agent._shared
    users, client = shared._users, shared._client

    def work(number: int) -> str:
        environment = made(cwd="/tmp")
        assert shared._client is client
        environment.execute({"command": f"echo {number} >file"})
        return str(agent(environment, f"{SUBMIT}; cat file").run("do it")["submission"])

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(8))) == [f"{number}\n" for number in range(8)]
    assert client
    assert wait_for(lambda: shared._users == users)  # those that are dropped have ended
    assert client.sandboxes() == []


KILLED = f"""
import threading, time
from fumehood.mini_swe_agent import FumehoodEnvironment

environment = FumehoodEnvironment(image="{IMAGE}", timeout=600)
run = lambda command: environment.execute({{"command": command}})["returncode"]
threading.Thread(target=run, args=["touch /started; sleep 974"], daemon=True).start()
while run("test -e /started"):
    time.sleep(0.02)
print("started", environment.sandbox.name, flush=True)
time.sleep(600)
"""


def test_killed() -> None:
    """A process that is killed while a command runs leaves no container."""
    check_killed(KILLED)


def test_command_line(tmp_path: Path) -> None:
    """The program mini runs an agent in a sandbox, by the name of the class."""
    outputs = [
        make_output("", [{"command": command}]) for command in ("echo 42 >/tmp/answer", f"{SUBMIT}; cat /tmp/answer")
    ]
    trajectory, config = tmp_path / "trajectory.json", tmp_path / "config.yaml"
    model = {"model_class": "minisweagent.models.test_models.DeterministicModel", "model_name": "x", "outputs": outputs}
    templates = {"system_template": "x", "instance_template": "{{task}}", "agent_class": "default"}
    config.write_text(json.dumps({"environment": {"image": IMAGE}, "model": model, "agent": templates}))
    program = "from minisweagent.run.mini import app; app()"
    options = ["--environment-class", CLASS, "-c", str(config), "-t", "do it", "-o", str(trajectory), "-l", "0"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MSWEA_CONFIGURED": "true", "FUMEHOOD_BINARY": BINARY}
    done = subprocess.run([sys.executable, "-c", program, *options], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(trajectory.read_text())["info"]["submission"] == "42\n"


def test_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed framework is one clear error."""

    def changed(self: Any, action: dict[str, Any], cwd: str = "", *, user: str = "") -> None: ...

    monkeypatch.delitem(sys.modules, "fumehood.mini_swe_agent")
    monkeypatch.setattr(DockerEnvironment, "execute", changed)
    version = metadata.version("mini-swe-agent")
    text = f"fumehood.mini_swe_agent: the interface of mini-swe-agent {version} is not supported: .*user"
    with pytest.raises(ImportError, match=text):
        importlib.import_module("fumehood.mini_swe_agent")

    def missing(distribution: str) -> str:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "minisweagent.environments.docker", None)
    with pytest.raises(ImportError, match=r"mini-swe-agent is not installed: pip install 'mini-swe-agent"):
        importlib.import_module("fumehood.mini_swe_agent")


def test_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """The examples of the how-to run as they are, on the test image."""
    block, mapping = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = block.replace("python:3.12-slim", IMAGE)
    assert code != block
    exec(compile(code, "mini_swe_agent.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert capsys.readouterr().out.endswith("Submitted 42\n\n")  # after the framework's log
    from minisweagent import environments
    from minisweagent.run.benchmarks.swebench import get_sb_environment

    with mock.patch.dict(environments._ENVIRONMENT_MAPPING):
        exec(compile(mapping, "mini_swe_agent.md", "exec", dont_inherit=True), {})
        with get_sb_environment({"environment": {"cwd": "/tmp"}}, {"instance_id": "x", "image_name": IMAGE}) as found:
            assert isinstance(found, FumehoodEnvironment)
            assert run(found, "pwd") == ("/tmp\n", 0)
