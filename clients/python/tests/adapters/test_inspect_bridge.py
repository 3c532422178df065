"""Services of inspect_ai's own process that programs in sandboxes of Fumehood call."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from inspect_ai.agent import BridgedToolsSpec, sandbox_agent_bridge
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, tool
from inspect_ai.util import sandbox, sandbox_service

from fumehood.inspect import FumehoodConfig
from tests.adapters.evals import BACKENDS, COMPOSE, FOLDER, PLAIN, call, containers, evaluate, started, text
from tests.real import IMAGE

CALLS = """
import sys
sys.path.append("/var/tmp/sandbox-services/sums")
from sums import call_sums
print(call_sums("add", a=40, b=2))
try:
    call_sums("fail")
except Exception as e:
    print(e)
"""


@pytest.mark.anyio
@BACKENDS
async def test_sandbox_service(anyio_backend: str) -> None:
    """A program in the sandbox calls functions of this process, and gets their results and errors."""

    async def add(a: int, b: int) -> int:
        return a + b

    async def fail() -> None:
        raise ValueError("no sum")

    async with started(FumehoodConfig(image=IMAGE, user="nobody", cwd="/tmp")) as environments:
        ready, ended = anyio.Event(), anyio.Event()
        run = partial(sandbox_service, "sums", [add, fail], ended.is_set, environments["default"], started=ready)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await ready.wait()
            result = await environments["default"].exec(["python3", "-c", CALLS], timeout=20)
            ended.set()
    assert (result.stdout, result.stderr) == ("42\nError calling method fail: no sum\n", "")


@tool
def look_up() -> Tool:
    async def execute(text: str) -> str:
        """Look something up on the host.

        Args:
            text: What to look up.
        """
        return f"{text} is known to the host"

    return execute


@solver
def bridged(seen: dict[str, Any]) -> Solver:
    """Run the scripted agent in the sandbox. Its model is that of the evaluation."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        host = BridgedToolsSpec(name="host", tools=[look_up()])
        async with sandbox_agent_bridge(bridged_tools=[host]) as bridge:
            result = await sandbox().exec(["python3", "agent.py"], timeout=60)
        seen.update(result=result, messages=bridge.state.messages)
        listed = await sandbox().exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
        seen["processes"] = listed.stdout
        return state

    return solve


@pytest.mark.parametrize("config", [PLAIN, ("fumehood", COMPOSE)], ids=["image", "compose-user"])
def test_sandbox_agent_bridge(tmp_path: Path, config: Any) -> None:
    """An agent in a sandbox without a network talks to the evaluation's model, and calls a tool of the host."""
    outputs = [call("shell", command="cat given.txt"), call("mcp__host__look_up", text="a file"), text("It is known.")]
    files = {"agent.py": (FOLDER / "agent.py").read_text("utf-8"), "given.txt": "a file"}
    seen: dict[str, Any] = {}
    log = evaluate(tmp_path, config, bridged(seen), outputs, files=files, metadata={"image": IMAGE})
    assert log.status == "success", log.error
    assert (seen["result"].stdout, seen["result"].stderr) == ("It is known.", "")
    found = [m.text for m in seen["messages"] if m.role == "tool"]
    assert found == ["a file", "a file is known to the host"], json.dumps(found)
    assert "model_proxy" not in seen["processes"]
    assert not containers()
