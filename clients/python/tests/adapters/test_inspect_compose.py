"""Compose files such as inspect_ai documents: each one starts, or is refused with the field that allows it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.util import ComposeConfig, ComposeService, SandboxEnvironment
from inspect_ai.util._sandbox.environment import set_sandbox_prebuilt

from fumehood.inspect import FumehoodConfig, FumehoodSandboxEnvironment
from tests.adapters.evals import PLAIN, started
from tests.real import IMAGE, PROVIDER

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

WAITS = f"image: {IMAGE}, init: true, command: tail -f /dev/null"

# The file, a command in its default service, and the command's output.
STARTED = {
    "build": (
        "services: {default: {build: ., init: true, command: tail -f /dev/null, cpus: 1.0, mem_limit: 0.5gb,"
        " network_mode: none}}",
        "cat /built; ls /sys/class/net | wc -l",
        "built\n1\n",
    ),
    "dockerfile": (
        "services: {default: {build: {context: ., dockerfile: Dockerfile}, command: tail -f /dev/null,"
        " working_dir: /usr, environment: [PROXY=http://localhost:8080, NO_PROXY=]}}",
        "pwd; echo $PROXY $NO_PROXY",
        "/usr\nhttp://localhost:8080\n",
    ),
    "local": (f"services: {{default: {{{WAITS}, x-local: true}}}}", "id -un", "root\n"),
    "tagged": (f"services: {{default: {{image: '{IMAGE}:latest', command: sleep infinity}}}}", "id -un", "root\n"),
    "two": (
        f"services: {{victim: {{{WAITS}, mem_limit: 1gb}}, default: {{{WAITS}, cpus: 1.0, hostname: attacker}}}}",
        "hostname; getent hosts victim | wc -l",
        "attacker\n1\n",
    ),
    "x-default": (
        f"services: {{one: {{{WAITS}}}, two: {{{WAITS}, hostname: second, x-default: true}}}}",
        "hostname",
        "second\n",
    ),
    "first": (f"services: {{one: {{{WAITS}, hostname: first}}, two: {{{WAITS}}}}}", "hostname", "first\n"),
    "volume": (
        f"services: {{default: {{{WAITS}, volumes: ['shared:/data'], depends_on: {{writer: {{condition:"
        f" service_completed_successfully}}}}}}, writer: {{image: {IMAGE}, command: touch /data/file, volumes:"
        " ['shared:/data']}}\nvolumes: {shared: }",
        "ls /data",
        "file\n",
    ),
    "healthy": (
        f"services: {{default: {{{WAITS}, depends_on: {{server: {{condition: service_healthy}}}}}}, server: {{image:"
        f" {IMAGE}, command: [python3, -m, http.server, '8000'], healthcheck: {{test: [CMD, python3, -c, 'import"
        ' urllib.request as u; u.urlopen("http://localhost:8000")\'], interval: 1s, retries: 20}}}',
        "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://server:8000\").status)'",
        "200\n",
    ),
    "internal": (
        f"services: {{default: {{{WAITS}}}}}\nnetworks: {{default: {{internal: true}}}}",
        "ls /sys/class/net | wc -l",
        "1\n" if PROVIDER == "native" else "2\n",  # its services share one loopback device
    ),
    "read-only mount": (
        f"services: {{default: {{{WAITS}, volumes: ['./remap.py:/remap.py:ro']}}}}",
        "cat /remap.py; test -w /remap.py || echo read-only",
        "pass\nread-only\n",
    ),
}

# The file, the field that the error names, and its value that allows it. OUT is a folder outside of the project's.
REFUSED: dict[str, tuple[str, str, Any]] = {
    "privileged": (f"services: {{default: {{{WAITS}, privileged: true}}}}", "allow_unsafe", True),
    "capability": (f"services: {{default: {{{WAITS}, cap_add: [SYS_ADMIN]}}}}", "allow_unsafe", True),
    "host network": (f"services: {{default: {{{WAITS}, network_mode: host}}}}", "allow_unsafe", True),
    "Docker socket": (
        f"services: {{default: {{{WAITS}, volumes: ['/var/run/docker.sock:/s']}}}}",
        "allow_unsafe",
        True,
    ),
    "writable mount": (f"services: {{default: {{{WAITS}, volumes: ['.:/data']}}}}", "allow_unsafe", True),
    "mount outside": (f"services: {{default: {{{WAITS}, volumes: ['OUT:/data:ro']}}}}", "allow_read", ["OUT"]),
    "secret outside": (
        f"services: {{default: {{{WAITS}, secrets: [s]}}}}\nsecrets: {{s: {{file: OUT/file}}}}",
        "allow_read",
        ["OUT"],
    ),
    "context outside": ("services: {default: {build: OUT, command: tail -f /dev/null}}", "allow_read", ["OUT"]),
    "env_file outside": (f"services: {{default: {{{WAITS}, env_file: OUT/file}}}}", "allow_read", ["OUT"]),
    "volume driver": (
        f"services: {{default: {{{WAITS}, volumes: ['vol:/v']}}}}\nvolumes: {{vol: {{driver_opts: {{type: none,"
        " o: bind, device: OUT}}}",
        "allow_unsafe",
        True,
    ),
    "network driver": (
        f"services: {{default: {{{WAITS}}}}}\nnetworks: {{default: {{driver: macvlan}}}}",
        "allow_unsafe",
        True,
    ),
    "image of this process": (
        "services: {default: {image: '${FUMEHOOD_TEST_IMAGE}', command: sleep infinity}}",
        "host_env",
        ["FUMEHOOD_TEST_IMAGE"],
    ),
}

# What the native provider does not support, whatever a configuration allows.
ENGINES_ONLY = {"privileged", "capability", "host network", "volume driver"} if PROVIDER == "native" else set()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter and return a task's folder with what its Compose file may name."""
    for name in ("task", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo built > /built\n")
        (tmp_path / name / "file").write_text("NAME=value\n")
    (tmp_path / "task" / "remap.py").write_text("pass\n")
    monkeypatch.chdir(tmp_path / "task")
    return tmp_path / "task"


@pytest.mark.parametrize("name", STARTED)
async def test_compose_started(folder: Path, name: str) -> None:
    file, command, output = STARTED[name]
    (folder / "compose.yaml").write_text(file)
    async with started(str(folder / "compose.yaml")) as environments:
        result = await next(iter(environments.values())).exec(["sh", "-c", command])
    assert (result.stdout, result.stderr) == (output, "")


async def accept(config: Any) -> None:
    """Load a configuration as inspect does before the samples."""
    await FumehoodSandboxEnvironment.task_init("startup", config)
    await FumehoodSandboxEnvironment.task_cleanup("shutdown", config, cleanup=True)


@pytest.mark.parametrize("name", REFUSED)
async def test_compose_refused(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, field, value = REFUSED[name]
    out = str(folder.parent / "out")
    path = folder / "compose.yaml"
    path.write_text(file.replace("OUT", out))
    monkeypatch.setenv("FUMEHOOD_TEST_IMAGE", IMAGE)
    with pytest.raises(PrerequisiteError) as caught:
        await accept(str(path))
    assert str(caught.value).splitlines()[-1] == f"FumehoodConfig allows it: {field}"
    values = [each.replace("OUT", out) for each in value] if isinstance(value, list) else value
    allowed = FumehoodConfig.model_validate({"compose": str(path), field: values})
    if name in ENGINES_ONLY:
        with pytest.raises(PrerequisiteError, match=r"the native provider .*use the docker provider"):
            await accept(allowed)
    else:
        await accept(allowed)


def inspected(thing: str | None) -> Any:
    """Return what the Engine knows of a container, an image or a network."""
    command = ["docker", "inspect", str(thing)]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[0]


async def group(environment: SandboxEnvironment, *files: str) -> str:
    """Return what the first of some files of the sandbox's control groups has."""
    script = f"cd /sys/fs/cgroup; cat {' '.join(files)} 2>/dev/null | head -n 1"
    return str((await environment.exec(["sh", "-c", script])).stdout)


async def memory_limit(environment: SandboxEnvironment) -> int:
    """Return the memory limit that a sandbox sees."""
    return int(await group(environment, "memory.max", "memory/memory.limit_in_bytes"))


async def test_compose_metadata(folder: Path) -> None:
    """A sample's metadata set an image and a limit, which have defaults."""
    image = f"${{SAMPLE_METADATA_IMAGE:-{IMAGE}}}"
    service = f"{{image: '{image}', command: sleep infinity, mem_limit: '${{SAMPLE_METADATA_MEMORY_LIMIT-0.5gb}}'}}"
    (folder / "compose.yaml").write_text(f"services: {{default: {service}}}")
    other: dict[str, str] = {"image": "fumehood-test/busybox", "memory limit": "64mb"}
    for metadata, name, memory in (({}, IMAGE, 512 << 20), (other, "fumehood-test/busybox", 64 << 20)):
        async with started(str(folder / "compose.yaml"), metadata) as environments:
            assert await memory_limit(environments["default"]) == memory
            if PROVIDER == "native":
                python = (await environments["default"].exec(["python3", "--version"])).success
                assert python == (name == IMAGE)
                continue
            found = inspected((await environments["default"].connection()).container)
        assert (found["Image"], found["HostConfig"]["Memory"]) == (inspected(name)["Id"], memory)


async def test_compose_ports(folder: Path) -> None:
    """Published ports get free ones of this machine, which inspect shows."""
    (folder / "compose.yaml").write_text(f"services: {{default: {{{WAITS}, ports: ['127.0.0.1::5900', '6080']}}}}")
    async with started(str(folder / "compose.yaml")) as environments:
        connection = await environments["default"].connection()
    assert {each.container_port for each in connection.ports} == {5900, 6080}
    assert {mapping.host_ip for each in connection.ports for mapping in each.mappings} == {"127.0.0.1"}


async def test_compose_config() -> None:
    """A ComposeConfig of a task's parameters has its limits, and no network."""
    service = ComposeService(
        image=IMAGE, init=True, command="tail -f /dev/null", mem_limit="512m", cpus=0.5, network_mode="none"
    )
    async with started(ComposeConfig(services={"default": service})) as environments:
        assert await memory_limit(environments["default"]) == 512 << 20
        if PROVIDER == "native":
            assert (await group(environments["default"], "cpu.max", "cpu/cpu.cfs_quota_us")).split()[0] == "50000"
            assert (await environments["default"].exec(["ls", "/sys/class/net"])).stdout == "lo\n"
            return
        connection = await environments["default"].connection()
        found = inspected(connection.container)["HostConfig"]
    assert (found["Memory"], found["NanoCpus"], found["NetworkMode"]) == (512 << 20, 500_000_000, "none")


async def test_compose_egress(folder: Path) -> None:
    """A network is internal, unless the configuration or the file wants a way out."""
    (folder / "compose.yaml").write_text(f"services: {{default: {{{WAITS}}}}}")
    (folder / "own.yaml").write_text(f"services: {{default: {{{WAITS}}}}}\nx-fumehood: {{egress: internet}}")
    for config, internal in (
        (FumehoodConfig(compose=str(folder / "compose.yaml")), True),
        (FumehoodConfig(compose=str(folder / "compose.yaml"), egress="internet"), False),
        (FumehoodConfig(compose=str(folder / "own.yaml")), False),
    ):
        async with started(config) as environments:
            if PROVIDER == "native":
                devices = (await environments["default"].exec(["ls", "/sys/class/net"])).stdout.split()
                assert (devices == ["lo"]) == internal
                continue
            connection = await environments["default"].connection()
            (network,) = inspected(connection.container)["NetworkSettings"]["Networks"]
            assert inspected(network)["Internal"] == internal


@contextmanager
def prebuilt() -> Iterator[None]:
    """Let inspect take images as prebuilt."""
    set_sandbox_prebuilt(True)
    try:
        yield
    finally:
        set_sandbox_prebuilt(False)


MISSING = [
    (FumehoodConfig(image="fumehood-test/none"), "fumehood-test/none (default)"),
    (
        "services: {default: {image: fumehood-test/none}, other: {build: .}}",
        "build of TASK (other); fumehood-test/none",
    ),
    ("services: {default: {image: fumehood-test/none, x-local: true}}", "fumehood-test/none (default)"),
]


@pytest.mark.parametrize(("config", "names"), MISSING, ids=["image", "build", "local"])
async def test_prebuilt_missing(folder: Path, config: Any, names: str) -> None:
    """The error names all images that are missing, before any sample."""
    if isinstance(config, str):
        (folder / "Dockerfile").write_text(f"FROM {IMAGE}\nRUN echo {folder} > /unique\n")
        (folder / "compose.yaml").write_text(config)
        config, names = str(folder / "compose.yaml"), names.replace("TASK", str(folder))
    with prebuilt(), pytest.raises(PrerequisiteError, match="missing: " + re.escape(names)):
        await accept(config)


async def test_prebuilt_present(folder: Path) -> None:
    """Images that are present start: those of names, and those that Fumehood has built from the same files."""
    (folder / "compose.yaml").write_text(
        f"services: {{default: {{build: ., command: sleep infinity}}, other: {{{WAITS}}}}}"
    )
    await accept(str(folder / "compose.yaml"))
    with prebuilt():
        for config in (PLAIN, str(folder / "compose.yaml")):
            async with started(config) as environments:
                assert (await environments["default"].exec(["true"])).success


async def test_prebuilt_variable(tmp_path: Path) -> None:
    """inspect's variable reaches the provider."""
    task = """
from inspect_ai import Task, task
from inspect_ai.util import SandboxEnvironmentSpec
from fumehood.inspect import FumehoodConfig

@task
def missing():
    return Task(sandbox=SandboxEnvironmentSpec("fumehood", FumehoodConfig(image="fumehood-test/none")))
"""
    (tmp_path / "task.py").write_text(task)
    command = [sys.executable, "-m", "inspect_ai", "eval", "task.py", "--model", "mockllm/model", "--display", "plain"]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "INSPECT_EVAL_SANDBOX_PREBUILT": "true"}
    found = await anyio.run_process(command, cwd=tmp_path, env=env, check=False)
    assert found.returncode != 0
    assert "missing: fumehood-test/none (default)" in (found.stdout + found.stderr).decode()
