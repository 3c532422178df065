"""Sandboxes and rollouts of NeMo Gym in sandboxes of Fumehood."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from nemo_gym import rollout_collection
from nemo_gym.base_resources_server import BaseResourcesServerConfig
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.global_config import TASK_INDEX_KEY_NAME
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.sandbox import (
    AsyncSandbox,
    Sandbox,
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers import base, registry
from nemo_gym.server_utils import GlobalAIOHTTPAsyncClientConfig, ServerClient, set_global_aiohttp_client
from omegaconf import OmegaConf
from responses_api_agents.mini_swe_agent_2.sandbox_environment import MiniSWESandboxEnvironment
from responses_api_agents.simple_agent.app import SimpleAgent, SimpleAgentConfig

import tests  # noqa: F401
from fumehood import (
    BrokenError,
    ConfigError,
    InfrastructureError,
    IsDirectoryError,
    LimitError,
    NotFoundError,
    ProgramNotFoundError,
    Result,
    UnavailableError,
)
from fumehood.nemo_gym import FAILURE_CLASS, FumehoodProvider, _loops, sample_fields
from tests.adapters.ends import (
    ENDS,
    MEMORY,
    PIDS,
    REAL,
    Driver,
    Ending,
    check_killed,
    documented,
    is_error,
    processes,
    until,
)
from tests.real import IMAGE, PROVIDER, WAITS, containers, kill, wait_for

PYTHON = Path(__file__).parents[2]
HOWTO = PYTHON.parents[1] / "docs" / "howto" / "nemo_gym.md"
OWN: Any = {"fumehood": {}}

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let NeMo Gym find the entry point that an installed package has."""
    group, text = registry.ENTRY_POINT_GROUP, (PYTHON / "pyproject.toml").read_text()
    found = re.search(rf'^\[project.entry-points."{re.escape(group)}"\]\n(\w+) = "(.*)"$', text, re.MULTILINE)
    assert found
    points = [metadata.EntryPoint(name=found[1], value=found[2], group=group)]
    monkeypatch.setattr(registry, "entry_points", lambda group: [each for each in points if each.group == group])
    monkeypatch.setattr(registry, "_ENTRY_POINT_LOADERS", None)


@asynccontextmanager
async def started(provider: Any = OWN, **spec: Any) -> AsyncIterator[AsyncSandbox]:
    async with AsyncSandbox(provider, SandboxSpec(**{"image": IMAGE, **spec})) as sandbox:
        yield await sandbox.start()


def remove(sandbox: str) -> None:
    """Remove a sandbox from outside, with what runs in it."""
    if PROVIDER == "native":
        kill(sandbox)
    else:
        subprocess.run(["docker", "rm", "-f", *containers(sandbox)], check=True, capture_output=True)


def name_of(sandbox: AsyncSandbox) -> str:
    assert sandbox._handle
    return str(sandbox._handle.sandbox_id)


async def test_sandbox(tmp_path: Path) -> None:
    """All calls of a provider, by NeMo Gym's own API."""
    assert "fumehood" in registry.list_providers()
    metadata = {"team": "a b/c", "nemo/key": "1"}
    spec: Any = {"files": {"/work/sub/main.py": "print(6 * 7)"}, "workdir": "/work", "env": {"A": "spec", "B": "spec"}}
    async with started(**spec, metadata=metadata, resources={"memory_mib": 256, "cpu": 1}) as sandbox:
        assert await sandbox.status() is SandboxStatus.RUNNING
        raw = sandbox._handle.raw
        assert raw.sandbox.info.labels == {"team": "a b/c", "nemo_key": "1"}
        found = await sandbox.exec("pwd; python3 sub/main.py; echo $A $B; echo err >&2; exit 3", env={"B": "call"})
        assert found == SandboxExecResult("/work\n42\nspec call\n", "err\n", 3)
        assert (await sandbox.exec("echo $BASH_VERSION; pwd", cwd="/usr", user=0)).stdout.endswith("\n/usr\n")
        assert (await sandbox.exec("id -un", user="nobody")).stdout == "nobody\n"
        assert (await sandbox.exec("exec python3 -c 'x = bytearray(1 << 30)'")).return_code == 137
        source, target = tmp_path / "source", tmp_path / "new" / "target"
        source.write_bytes(bytes(range(256)) * 5000)
        await sandbox.upload(source, "/new/folder/file")
        await sandbox.download("/new/folder/file", target)
        assert target.read_bytes() == source.read_bytes()
        with pytest.raises(NotFoundError):
            await sandbox.download("/nowhere", tmp_path / "none")
        await sandbox.exec("mkfifo /pipe")
        with pytest.raises(OSError):
            await sandbox.download("/pipe", tmp_path / "none")
        with pytest.raises(IsDirectoryError):  # a folder where a file was expected
            await sandbox.download("/new/folder", tmp_path / "none")
        assert not (tmp_path / "none").exists()
        with pytest.raises(IsADirectoryError):
            await sandbox.upload(tmp_path, "/new/none")
        provider, handle, name = sandbox._provider, sandbox._handle, name_of(sandbox)
        assert handle
    assert containers(name) == []
    assert await provider.status(handle) is SandboxStatus.STOPPED
    await provider.close(handle)
    assert (await provider.exec(handle, "true")).error_type == "sandbox"
    assert _loops.running().users == 0
    assert _loops.running().clients == {}


def test_sandbox_blocking() -> None:
    """The blocking API has the same results."""
    with Sandbox(OWN, SandboxSpec(image=IMAGE, workdir="/work")) as sandbox:
        sandbox.start()
        assert sandbox.status() is SandboxStatus.RUNNING
        assert sandbox.exec("pwd; exit 4") == SandboxExecResult("/work\n", "", 4)
        assert sandbox.exec("sleep 600", timeout_s=0.5).error_type == "timeout"
        name = sandbox._async_sandbox._handle.sandbox_id
        assert len(containers(name)) == 1
        kill(name)
        assert wait_for(lambda: sandbox.status() is SandboxStatus.STOPPED)
        assert sandbox.exec("true").error_type == "sandbox"
    assert containers(name) == []


async def test_shared() -> None:
    """A sandbox that ends takes no other one with it, also where they have a provider in common."""
    provider = FumehoodProvider()
    async with started(provider) as first:
        async with started(provider) as second, started() as third:
            assert len({name_of(each) for each in (first, second, third)}) == 3
            assert len(_loops.running().clients) == 1
        assert (await first.exec("echo on")).stdout == "on\n"


CASES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"image": None}, "spec.image: required"),
    ({}, {"entrypoint": ["sleep"]}, "spec.entrypoint: not supported"),
    ({}, {"resources": {"gpu": 1}}, "spec.resources.gpu: not supported"),
    ({}, {"provider_options": {"volumes": ["/:/host"]}}, "provider options: unknown: volumes"),
    ({}, {"provider_options": {"network": "no-such-network"}}, "no-such-network"),
    ({}, {"metadata": {"a/b": "1", "a_b": "2"}}, "spec.metadata: keys are the same"),
    ({}, {"metadata": {"a": "x" * 5000}}, "limit of 4096"),
    ({}, {"image": "fumehood-test/no-such-image"}, "no-such-image"),
    ({"user": "nobody-knows"}, {}, "nobody-knows"),
]


@pytest.mark.parametrize(("options", "spec", "error"), CASES)
async def test_create_fails(options: dict[str, Any], spec: dict[str, Any], error: str) -> None:
    provider = FumehoodProvider(**options)
    with pytest.raises(SandboxCreateError, match=re.escape(error)):
        await provider.create(SandboxSpec(**{"image": IMAGE, **spec}))
    assert (_loops.running().users, _loops.running().clients) == (0, {})


async def test_options() -> None:
    with pytest.raises(ConfigError, match="provider options: unknown: connection"):
        AsyncSandbox({"fumehood": {"connection": {}}})
    with pytest.raises(SandboxCreateError):
        async with started(ready_timeout_s=0.000001):
            pass
    options = {"pids": 77, "user": "nobody"}
    async with started({"fumehood": options}, provider_options={"pids": 55, "tmpfs": ["/scratch:size=1m"]}) as sandbox:
        found = await sandbox.exec("id -un; df --output=size /scratch | tail -1")
        assert (found.stdout or "").split() == ["nobody", "1024"]
    image = "fumehood-test/busybox"
    if PROVIDER == "docker":
        async with started(image=f"docker://{image}") as sandbox:
            assert (await sandbox.exec("echo $BASH_VERSION $0")).stdout == "/bin/sh\n"  # it has no bash


async def test_ttl() -> None:
    """A sandbox ends after its ttl, and a later command says so."""
    async with started(ttl_s=1) as sandbox:
        name = name_of(sandbox)
        await until(lambda: not containers(name))
        found = await sandbox.exec("true")
        assert (found.return_code, found.error_type) == (125, "sandbox")
        assert (found.stderr or "").endswith("(its ttl_s of 1 seconds has passed)")
        assert await sandbox.status() is SandboxStatus.STOPPED
    async with started(ttl_s=600) as sandbox:
        assert (await sandbox.exec("true")).return_code == 0
    assert not [task for task in asyncio.all_tasks() if "_expire" in repr(task) and not task.done()]


def said(found: SandboxExecResult) -> str:
    """Return an end in the words of the page."""
    assert (found.return_code == 125) == (found.error_type is not None)
    if found.error_type:
        return f"`{found.error_type}`"
    return "a line" if "bytes of output are missing" in (found.stdout or "") else str(found.return_code)


@pytest.mark.parametrize("end", ENDS)
async def test_ends(end: str) -> None:
    """Commands end as the page about frameworks says."""
    from fumehood.nemo_gym import _Raw

    ending: Any = Ending(end)
    handle, cell = SandboxHandle("x", "fumehood", _Raw(ending, None)), documented("nemo_gym")[end]
    try:
        found = await FumehoodProvider().exec(handle, "command", timeout_s=1)
    except Exception as e:  # noqa: BLE001  # its class is what is tested
        assert is_error(e, cell), e
    else:
        assert said(found) == cell
        assert found.stderr or isinstance(ENDS[end], Result)
        assert sample_fields(found)["mask_sample"] == (end in ("lost", "failure"))


@pytest.mark.parametrize("end", REAL)
async def test_ends_real(end: str) -> None:
    async with started(
        workdir="/work", resources={"memory_mib": MEMORY >> 20}, provider_options={"pids": PIDS}
    ) as sandbox:

        async def execute(args: list[str], timeout: float | None) -> str:
            return said(await sandbox.exec(shlex.join(args), timeout_s=timeout))

        await Driver("nemo_gym", name_of(sandbox), execute).check(end)


def test_sample_fields() -> None:
    """Infrastructure masks a sample, and what a program causes does not."""
    scored = {"mask_sample": False, "failure_kind": None, "failure_reason": None}
    for code in (0, 1, 125, 137):
        assert sample_fields(SandboxExecResult("", "", code)) == scored
    late = sample_fields(SandboxExecResult("", "killed", 125, "timeout"))
    assert late == {"mask_sample": False, "failure_kind": "timeout", "failure_reason": "killed"}
    for error in (BrokenError("x"), NotFoundError("x"), LimitError("x"), ProgramNotFoundError("x")):
        assert sample_fields(error) == {"mask_sample": False, "failure_kind": "program", "failure_reason": "x"}
    kind = "infrastructure"
    masked = {"mask_sample": True, "failure_kind": kind, "failure_reason": "x", FAILURE_CLASS: kind}
    others: list[Exception] = [
        SandboxCreateError("x"),
        UnavailableError("x"),
        InfrastructureError("x"),
        ConfigError("x"),
    ]
    for outcome in (SandboxExecResult(None, "x", 125, "sandbox"), *others, TimeoutError("x"), RuntimeError("x")):
        assert sample_fields(outcome) == masked
    assert FAILURE_CLASS == rollout_collection.NG_FAILURE_CLASS_KEY


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def serving(app: FastAPI, port: int) -> AsyncIterator[None]:
    server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", port, log_level="warning"))
    running = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield
    finally:
        server.should_exit = True
        await running


def answer(command: str) -> dict[str, Any]:
    """Return a model's answer: the text of a command."""
    content = [{"type": "output_text", "text": command, "annotations": []}]
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}
    rest: dict[str, Any] = {"parallel_tool_calls": False, "tool_choice": "none", "tools": []}
    return {"id": "r", "created_at": 0, "model": "scripted", "object": "response", "output": [message], **rest}


def example() -> Any:
    """Return the grader of the how-to."""
    _, grader = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = grader.replace("python:3.12-slim", IMAGE)
    assert code != grader
    module = type(sys)("howto_nemo_gym")
    sys.modules[module.__name__] = module  # where pydantic looks for the names in annotations
    exec(compile(code, "nemo_gym.md", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__["Grader"]


async def test_rollouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NeMo Gym's agent, collector and metrics: a lost sandbox is no reward, and each end of a program is one.

    The model's answer to a task is the task, which the grader of the how-to runs as a command.
    """
    token = f"from-outside-{os.getpid()}"
    tasks = {
        "passes": "true",
        "fails": "exit 1",
        "kills itself": "kill -9 $$",
        "is out of memory": "exec python3 -c 'x = bytearray(3 << 30)'",
        "kills its supervisor": "kill -9 -1",
        "is killed from outside": f"sleep 600; : {token} kill",
        "is removed from outside": f"sleep 600; : {token} remove",
    }
    ports = {name: free_port() for name in ("agent", "grader", "model")}
    kinds = {"agent": "responses_api_agents", "grader": "resources_servers", "model": "responses_api_models"}
    servers = {name: {kinds[name]: {name: {"host": "127.0.0.1", "port": port}}} for name, port in ports.items()}
    client = ServerClient(
        head_server_config=BaseServerConfig(host="127.0.0.1", port=1), global_config_dict=OmegaConf.create(servers)
    )
    common: dict[str, Any] = {"host": "127.0.0.1", "entrypoint": "app.py", "domain": "other"}
    resources = BaseResourcesServerConfig(name="grader", port=ports["grader"], **common)
    grader = example()(config=resources, server_client=client)
    agent_config = SimpleAgentConfig(
        name="agent",
        port=ports["agent"],
        host="127.0.0.1",
        entrypoint="app.py",
        resources_server={"type": "resources_servers", "name": "grader"},
        model_server={"type": "responses_api_models", "name": "model"},
    )
    agent = SimpleAgent(config=agent_config, server_client=client)
    model = FastAPI()

    @model.post("/v1/responses")
    async def respond(body: dict[str, Any]) -> dict[str, Any]:
        return answer(body["input"][0]["content"])

    inputs, outputs = tmp_path / "tasks.jsonl", tmp_path / "rollouts.jsonl"
    rows = [{"responses_create_params": {"input": command}} for command in tasks.values()]
    inputs.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    files = {"input_jsonl_fpath": str(inputs), "output_jsonl_fpath": str(outputs)}
    config = RolloutCollectionConfig(
        agent_name="agent", num_samples_in_parallel=1, upload_rollouts_to_wandb=False, **files
    )
    monkeypatch.setattr(RolloutCollectionHelper, "setup_server_client", lambda *_: client)
    set_global_aiohttp_client(GlobalAIOHTTPAsyncClientConfig())

    async def end(each: str, how: Callable[[str], None]) -> None:
        """Kill the sandbox in which a command runs. The collector decides when that is."""
        while not processes(f"{token} {each}"):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        (found,) = await _loops.running().client().sandboxes()
        how(found.name)

    async with (
        serving(agent.setup_webserver(), ports["agent"]),
        serving(model, ports["model"]),
        serving(grader.setup_webserver(), ports["grader"]),
    ):
        killing = [asyncio.create_task(end(*each)) for each in {"kill": kill, "remove": remove}.items()]
        await RolloutCollectionHelper().run_from_config(config)
        await asyncio.wait_for(asyncio.gather(*killing), WAITS)

    def read(path: Path) -> dict[str, dict[str, Any]]:
        """Return the results of a file by the names of their tasks."""
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return {list(tasks)[each[TASK_INDEX_KEY_NAME]]: each for each in found}

    scored, failures = read(outputs), read(tmp_path / "rollouts_failures.jsonl")
    assert {name: each["reward"] for name, each in scored.items()} == {
        "passes": 1.0,
        "fails": 0.0,
        "kills itself": 0.0,
        "is out of memory": 0.0,
        "kills its supervisor": 0.0,
    }
    assert not any(each["mask_sample"] for each in scored.values())
    assert set(failures) == {"is killed from outside", "is removed from outside"}
    for failed in failures.values():
        assert (failed["mask_sample"], failed["failure_kind"]) == (True, "infrastructure")
        assert "the sandbox ended while the command ran" in failed["failure_reason"]
    assert _loops.running().users == 0


def test_mini_swe_agent_2() -> None:
    """The environment of NeMo Gym's agent mini_swe_agent_2."""
    environment = MiniSWESandboxEnvironment(image=IMAGE, cwd="/work", provider=OWN, instance_id="x", env={"A": "1"})
    try:
        found = environment.execute({"command": "pwd; echo $A; exit 3"})
        assert found == {"output": "/work\n1\n", "returncode": 3, "exception_info": ""}
    finally:
        environment.cleanup()


async def test_canceled() -> None:
    """A canceled start leaves nothing, in whatever state it is."""
    for delay in (0, 0.01, 0.05, 0.1, 0.2):
        starting = asyncio.create_task(FumehoodProvider().create(SandboxSpec(image=IMAGE)))
        await asyncio.sleep(delay)
        starting.cancel()
        results: Any = await asyncio.gather(starting, return_exceptions=True)
        if isinstance(results[0], SandboxHandle):
            await FumehoodProvider().close(results[0])
        else:
            assert isinstance(results[0], asyncio.CancelledError)
        assert (_loops.running().users, _loops.running().clients) == (0, {})


KILLED = f"""
import asyncio
from nemo_gym.sandbox import SandboxSpec
from fumehood.nemo_gym import FumehoodProvider

async def main():
    provider = FumehoodProvider()
    handle = await provider.create(SandboxSpec(image="{IMAGE}"))
    running = asyncio.create_task(provider.exec(handle, "touch /started; sleep 975"))
    while (await provider.exec(handle, "test -e /started")).return_code:
        await asyncio.sleep(0.02)
    print("started", handle.sandbox_id, flush=True)
    await running

asyncio.run(main())
"""


def test_killed() -> None:
    """A process that is killed while a command runs leaves no container."""
    check_killed(KILLED)


def test_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or changed framework is one clear error."""

    async def changed(self: Any, handle: Any, command: list[str]) -> None: ...

    monkeypatch.delitem(sys.modules, "fumehood.nemo_gym")
    monkeypatch.setattr(base.SandboxProvider, "exec", changed)
    version = metadata.version("nemo-gym")
    text = f"fumehood.nemo_gym: the interface of nemo-gym {version} is not supported: the parameters of"
    with pytest.raises(ImportError, match=text):
        importlib.import_module("fumehood.nemo_gym")

    def missing(distribution: str) -> str:
        raise metadata.PackageNotFoundError(distribution)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setitem(sys.modules, "nemo_gym.sandbox.providers.base", None)
    with pytest.raises(ImportError, match=r"nemo-gym is not installed: pip install 'nemo-gym"):
        importlib.import_module("fumehood.nemo_gym")


def test_example(capsys: pytest.CaptureFixture[str]) -> None:
    """The example of the how-to runs as it is, on the test image."""
    block, _ = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    code = block.replace("python:3.12-slim", IMAGE)
    assert code != block
    exec(compile(code, "nemo_gym.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert capsys.readouterr().out == "0 42\nFalse\n"
