"""Evaluations of inspect_ai in sandboxes of Fumehood, for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import TaskState
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

import tests  # noqa: F401
from fumehood.inspect import FumehoodConfig, FumehoodSandboxEnvironment
from tests.real import IMAGE, PROVIDER, native_sandboxes

FOLDER = Path(__file__).parent / "inspect"
HOWTO = Path(__file__).parents[4] / "docs" / "howto" / "inspect.md"
COMPOSE = str(FOLDER / "compose.yaml")
PLAIN = FumehoodConfig(image=IMAGE)
BACKENDS = pytest.mark.parametrize("anyio_backend", [pytest.param("asyncio", marks=pytest.mark.short), "trio"])


def containers() -> list[str]:
    """Return the containers of this test's tasks."""
    if PROVIDER == "native":
        return native_sandboxes()
    command = ["docker", "ps", "-aq", "--filter", f"label=fumehood.label.inspect_ai=t{os.getpid()}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def call(tool: str, **arguments: Any) -> ModelOutput:
    output = ModelOutput.for_tool_call("mockllm/model", tool, arguments)
    output.usage = ModelUsage()  # otherwise inspect downloads a tokenizer
    return output


def text(content: str) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", content)
    output.usage = ModelUsage()
    return output


@scorer(metrics=[mean()])
def finds(file: str) -> Scorer:
    """Score whether a file in the sandbox has the target's text."""

    async def score(state: TaskState, target: Target) -> Score:
        found = await sandbox().read_file(file)
        return Score(value=int(found == target.text), answer=found)

    return score


def evaluate(
    tmp_path: Path, config: Any, steps: Any, outputs: list[ModelOutput] | None = None, **sample: Any
) -> EvalLog:
    """Evaluate one sample and return the log."""
    task = Task(
        dataset=[Sample(input="do it", **sample)],
        solver=steps,
        scorer=finds("/tmp/answer") if "target" in sample else None,
        sandbox=SandboxEnvironmentSpec("fumehood", config) if not isinstance(config, tuple) else config,
        name=f"t{os.getpid()}",
    )
    model = get_model("mockllm/model", custom_outputs=outputs or [text("done")])
    (log,) = eval(task, model=model, display="none", log_dir=str(tmp_path), log_format="json")
    return log


@asynccontextmanager
async def started(config: Any, metadata: dict[str, Any] | None = None) -> AsyncIterator[dict[str, Any]]:
    """Start a sandbox as inspect does, and end it."""
    provider = FumehoodSandboxEnvironment
    await provider.task_init("startup", config)
    try:
        environments = await provider.sample_init(f"t{os.getpid()}", config, metadata or {})
        yield environments
        await provider.sample_cleanup(f"t{os.getpid()}", config, environments, interrupted=False)
    finally:
        await provider.task_cleanup("shutdown", config, cleanup=True)
