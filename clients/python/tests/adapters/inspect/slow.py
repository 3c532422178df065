"""Evaluates eight samples that take long, for tests that end it: python slow.py TASK LOG_FOLDER."""

import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import get_model
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.util import SandboxEnvironmentSpec, sandbox

from fumehood.inspect import FumehoodConfig


@solver
def slow() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await sandbox().exec(["sleep", "600"])
        return state

    return solve


config = SandboxEnvironmentSpec("fumehood", FumehoodConfig(image="fumehood-test/python"))
task = Task(dataset=[Sample(input="wait", id=n) for n in range(8)], solver=slow(), sandbox=config, name=sys.argv[1])
eval(task, model=get_model("mockllm/model"), display="none", log_dir=sys.argv[2], max_sandboxes=8)
