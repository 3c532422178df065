"""The standard tests of langchain-tests for sandboxes, for root and for another user of the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests  # type: ignore[import-not-found]

import tests  # noqa: F401
from fumehood import Client
from fumehood.deepagents import FumehoodSandbox
from tests.real import IMAGE

pytestmark = pytest.mark.anyio
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# What langchain-tests expects and deepagents itself no longer does, in code that a backend inherits.
ABSOLUTE = "deepagents 0.7 returns absolute paths of files, without directories"
CHANGED = {
    "test_glob": ABSOLUTE,
    "test_glob_basic_pattern": ABSOLUTE,
    "test_glob_hidden_files_explicitly": ABSOLUTE,
    "test_glob_with_character_class": ABSOLUTE,
    "test_glob_with_directories": ABSOLUTE,
    "test_glob_with_question_mark": ABSOLUTE,
    "test_write_existing_file_fails": "deepagents 0.7 replaces existing files",
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Standard(SandboxIntegrationTests):
    options: dict[str, Any]

    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[FumehoodSandbox]:
        with Client() as client:
            sandbox = client.start(IMAGE, env={"PATH": f"/tmp/bin:{PATH}"}, **self.options)
            # The tests run python, which python:3.12-slim has.
            sandbox.run(["sh", "-c", 'mkdir /tmp/bin; ln -s "$(command -v python3)" /tmp/bin/python'])
            yield FumehoodSandbox(sandbox)


for name, reason in CHANGED.items():
    expected = pytest.mark.xfail(reason=reason, strict=True)
    setattr(Standard, name, expected(getattr(SandboxIntegrationTests, name)))


class TestRoot(Standard):
    options = {}  # noqa: RUF012


class TestUser(Standard):
    options = {"user": "nobody", "cwd": "/tmp"}  # noqa: RUF012
