"""The entry point by which inspect_ai finds the provider."""

from .._framework import expect, importing

_EXEC = ["self", "cmd", "input", "cwd", "env", "user", "timeout", "timeout_retry", "concurrency"]

with importing("inspect", "inspect_ai"):
    from inspect_ai.util import SandboxEnvironment
    from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy

    expect(SandboxEnvironment.exec, _EXEC)
    from ._config import FumehoodConfig as FumehoodConfig
    from ._environment import FumehoodSandboxEnvironment as FumehoodSandboxEnvironment
    from ._remote import route

route(SandboxEnvironmentProxy, FumehoodSandboxEnvironment)
