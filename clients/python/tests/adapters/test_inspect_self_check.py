"""inspect_ai's own checks of a sandbox provider."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from inspect_ai.util import ComposeConfig, SandboxUserUnsupportedError
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

import tests  # noqa: F401
from fumehood.inspect import FumehoodConfig, FumehoodSandboxEnvironment
from tests.real import IMAGE, PROVIDER

pytestmark = pytest.mark.anyio


def compose(**options: Any) -> ComposeConfig:
    """Return a project of two services."""
    service = {"image": IMAGE, "command": "tail -f /dev/null", **options}
    return ComposeConfig.model_validate({"services": {"other": service, "default": service}})


CONFIGS = {
    "image-root": FumehoodConfig(image=IMAGE),
    "image-user": FumehoodConfig(image=IMAGE, user="nobody", cwd="/tmp"),
    "compose-root": compose(),
    "compose-user": compose(user="nobody", working_dir="/tmp"),
}
# Root may write to a file without write permission. inspect lists these for its Docker provider, too.
ROOT = {"test_write_text_file_without_permissions", "test_write_binary_file_without_permissions"}


def engine() -> tuple[int, ...]:
    """Return the version of the Docker Engine."""
    command = ["docker", "version", "--format", "{{.Server.Version}}"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def cases() -> Iterator[Any]:
    """Yield what the checks run on. An image and a Compose project are enough for CI."""
    for case in (*(f"asyncio-{name}" for name in CONFIGS), "trio-compose-user"):
        in_ci = case in ("asyncio-image-root", "trio-compose-user")
        yield pytest.param(case, marks=pytest.mark.short if in_ci else ())


@pytest.fixture(scope="module", params=cases())
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def anyio_backend(case: str) -> str:
    return case.partition("-")[0]


@pytest.fixture(scope="module")
async def started(case: str) -> AsyncIterator[FumehoodSandboxEnvironment]:
    config = CONFIGS[case.partition("-")[2]]
    provider = FumehoodSandboxEnvironment
    await provider.task_init("startup", config)
    environments = await provider.sample_init("self_check", config, {})
    yield environments["default"]
    await provider.sample_cleanup("self_check", config, environments, interrupted=False)
    await provider.task_cleanup("shutdown", config, cleanup=True)


@pytest.fixture
def sandbox_env(
    request: pytest.FixtureRequest, case: str, started: FumehoodSandboxEnvironment
) -> FumehoodSandboxEnvironment:
    if case.endswith("root") and request.node.originalname in ROOT:
        request.node.add_marker(pytest.mark.xfail(reason="root may write to a read-only file", strict=True))
    weak = PROVIDER != "native" and engine() < (24, 0)
    if case.endswith("compose-user") and request.node.originalname == "test_exec_as_user" and weak:
        why = "Engines older than 24.0 give root no capabilities in a service of another user"
        request.node.add_marker(pytest.mark.xfail(reason=why, raises=SandboxUserUnsupportedError, strict=True))
    return started
