"""inspect_ai: its Docker provider and Fumehood's, in turn.

Usage: bench_inspect.py. With the name of a provider it runs one evaluation instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import tempfile
from collections import defaultdict
from time import perf_counter
from typing import Any

from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import ComposeConfig, SandboxEnvironmentSpec, sandbox
from inspect_ai.util._concurrency import init_concurrency
from inspect_ai.util._sandbox.docker import prereqs
from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment
from inspect_ai.util._subprocess import init_max_subprocesses
from table import head, row

from fumehood.inspect import FumehoodSandboxEnvironment

SERVICE = {"image": "fumehood-test/python", "command": "tail -f /dev/null", "init": True, "network_mode": "none"}
CONFIG = ComposeConfig(services={"default": SERVICE})
PROVIDERS: dict[str, Any] = {"docker": DockerSandboxEnvironment, "fumehood": FumehoodSandboxEnvironment}
SAMPLES, AT_ONCE, COMMANDS = 60, 8, 20
ROUNDS, EVALUATIONS = 10, 2


async def any_version() -> None:
    """Stand in for the check of the Docker provider, which refuses Engines before 24.0.6."""


@solver
def commands() -> Solver:
    """Run commands."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for _ in range(COMMANDS):
            result = await sandbox().exec(["true"])
            if not result.success:
                raise RuntimeError(result.stderr)
        return state

    return solve


def evaluation(provider: str) -> None:
    """Run an evaluation."""
    prereqs.validate_docker_engine = any_version
    dataset = [Sample("x") for _ in range(SAMPLES)]
    task = Task(dataset, solver=commands(), sandbox=SandboxEnvironmentSpec(provider, CONFIG))
    with tempfile.TemporaryDirectory() as logs:
        options = {"max_samples": AT_ONCE, "max_sandboxes": AT_ONCE, "log_dir": logs, "display": "none"}
        (log,) = evaluate(task, model="mockllm/model", **options)
        if log.status != "success" or log.results.completed_samples != SAMPLES:
            errors = {str(each.error.message)[:500] for each in log.samples or () if each.error}
            raise RuntimeError(f"{provider}: {log.status}: {log.error} {errors}")


def evaluations(rounds: int) -> None:
    """Measure evaluations, each in a process of its own: wall clock, and CPU time of its process tree."""
    wall, cpu = defaultdict(list), defaultdict(list)
    for _ in range(rounds):
        for provider in PROVIDERS:
            began = perf_counter()
            child = os.posix_spawn(sys.executable, [sys.executable, __file__, provider], os.environ)
            _, status, used = os.wait4(child, 0)
            if status:
                raise RuntimeError(f"the evaluation with {provider} failed")
            wall[provider].append(perf_counter() - began)
            cpu[provider].append(used.ru_utime + used.ru_stime)
    what = f"{SAMPLES} samples, {AT_ONCE} at a time, {COMMANDS} commands each"
    row(f"{what}: wall clock", wall["docker"], wall["fumehood"], "9x", "s")
    row(f"{what}: CPU of the process tree", cpu["docker"], cpu["fumehood"], "13x", "s")


async def calls(rounds: int) -> None:
    """Measure the calls of the providers."""
    init_concurrency()
    init_max_subprocesses(16)
    seen: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in PROVIDERS}

    async def measured(name: str, call: str, made: Any) -> Any:
        began = perf_counter()
        result = await made
        seen[name][call].append((perf_counter() - began) * 1000)
        return result

    for provider in PROVIDERS.values():
        await provider.task_init("bench", CONFIG)
    for number in range(rounds + 1):
        for name, provider in PROVIDERS.items():
            boxes = await measured(name, "sample_init", provider.sample_init("bench", CONFIG, {}))
            box = next(iter(boxes.values()))
            for _ in range(20):
                await measured(name, "exec", box.exec(["true"]))
            await measured(name, "sample_cleanup", provider.sample_cleanup("bench", CONFIG, boxes, False))
            if number == 0:
                seen[name].clear()  # warm-up
    for provider in PROVIDERS.values():
        with contextlib.redirect_stdout(io.StringIO()):
            await provider.task_cleanup("bench", CONFIG, True)
    aims = {"exec": "45x", "sample_init": "6x", "sample_cleanup": "4x"}
    for call, aim in aims.items():
        row(f"`{call}`", seen["docker"][call], seen["fumehood"][call], aim)


def main() -> None:
    """Measure."""
    if len(sys.argv) > 1:
        evaluation(sys.argv[1])
        return
    prereqs.validate_docker_engine = any_version
    head("inspect's Docker provider")
    asyncio.run(calls(ROUNDS))
    evaluations(EVALUATIONS)


if __name__ == "__main__":
    main()
