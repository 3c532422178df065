"""Evaluates eight samples that take long, for tests that end it: python slow.py TASK LOG_FOLDER.

It prints a line when the command of a sample runs, and when a sample is canceled.
"""

import sys

import anyio
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from fumehood.inspect import FumehoodConfig


def report(text: str) -> None:
    sys.__stdout__.write(f"{text}\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


@solver
def slow() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        try:
            process = await sandbox().exec_remote(["sleep", "600"])
            report("running")
            async for _ in process:
                pass
        except anyio.get_cancelled_exc_class():
            report("canceled")
            raise
        return state

    return solve


config = SandboxEnvironmentSpec("fumehood", FumehoodConfig(image="fumehood-test/python"))
task = Task(dataset=[Sample(input="wait", id=n) for n in range(8)], solver=slow(), sandbox=config, name=sys.argv[1])
eval(task, model=get_model("mockllm/model"), display="none", log_dir=sys.argv[2], max_sandboxes=8)
