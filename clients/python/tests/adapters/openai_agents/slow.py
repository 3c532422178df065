"""Runs an agent whose command takes long, for a test that ends it: python slow.py LABEL SECONDS."""

import asyncio
import sys

from agents import RunConfig, Runner, set_tracing_disabled
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.snapshot import NoopSnapshotSpec
from agents.testing import ScriptedModel, function_call

from fumehood.openai_agents import FumehoodSandboxClient, FumehoodSandboxClientOptions

set_tracing_disabled(True)
options = FumehoodSandboxClientOptions("fumehood-test/python", labels={"test": sys.argv[1]})
config = SandboxRunConfig(client=FumehoodSandboxClient(), options=options, snapshot=NoopSnapshotSpec())
command = {"cmd": f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}", "yield_time_ms": 30000}
agent = SandboxAgent(name="slow", model=ScriptedModel([[function_call("exec_command", command, call_id="1")]]))
asyncio.run(Runner.run(agent, "wait", run_config=RunConfig(sandbox=config)))
