"""The entry point by which inspect_ai finds the provider."""

from importlib import metadata
from inspect import signature

try:
    from inspect_ai.util import SandboxEnvironment
    from inspect_ai.util._sandbox.events import SandboxEnvironmentProxy
except ImportError as e:
    raise ImportError("fumehood.inspect: inspect_ai is not installed: pip install 'fumehood[inspect]'") from e

_EXEC = ["self", "cmd", "input", "cwd", "env", "user", "timeout", "timeout_retry", "concurrency"]

try:
    if list(signature(SandboxEnvironment.exec).parameters) != _EXEC:
        raise ImportError("the parameters of exec have changed")
    from ._config import FumehoodConfig as FumehoodConfig
    from ._environment import FumehoodSandboxEnvironment as FumehoodSandboxEnvironment
    from ._remote import route
except ImportError as e:
    version = metadata.version("inspect_ai")
    raise ImportError(f"fumehood.inspect: the interface of inspect_ai {version} is not supported: {e}") from e

route(SandboxEnvironmentProxy, FumehoodSandboxEnvironment)
