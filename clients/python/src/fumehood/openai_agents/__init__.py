"""Sandboxes for openai-agents: a sandbox client in the place of DockerSandboxClient.

client, options = FumehoodSandboxClient(), FumehoodSandboxClientOptions("python:3.12-slim")
await Runner.run(agent, "...", run_config=RunConfig(sandbox=SandboxRunConfig(client=client, options=options)))
"""

from .._framework import expect, importing

__all__ = ["FumehoodSandboxClient", "FumehoodSandboxClientOptions", "FumehoodSandboxSessionState"]

_PTY = ["self", "command", "timeout", "shell", "user", "tty", "yield_time_s", "max_output_tokens"]
_HOOKS = ("_after_start", "_ensure_backend_started", "_shutdown_backend", "_validate_remote_path_access")

with importing("openai_agents", "openai-agents"):
    from agents.sandbox.session import BaseSandboxClient, BaseSandboxSession

    expect(BaseSandboxClient.create, ["self", "snapshot", "manifest", "options"])
    expect(BaseSandboxSession.exec, ["self", "command", "timeout", "shell", "user"])
    expect(BaseSandboxSession.pty_exec_start, _PTY)
    if missing := [name for name in _HOOKS if not hasattr(BaseSandboxSession, name)]:
        raise ImportError(f"BaseSandboxSession has no {', '.join(missing)}")
    from ._client import FumehoodSandboxClient
    from ._session import FumehoodSandboxClientOptions, FumehoodSandboxSessionState
