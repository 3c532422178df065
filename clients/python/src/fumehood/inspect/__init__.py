"""Sandboxes for inspect_ai: `sandbox="fumehood"` in the place of "docker".

    Task(dataset, sandbox=("fumehood", "compose.yaml"))
    Task(dataset, sandbox=SandboxEnvironmentSpec("fumehood", FumehoodConfig(image="python:3.12-slim", memory="1GiB")))

inspect_ai finds the provider by an entry point. It is imported when a name of this package is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._config import FumehoodConfig as FumehoodConfig
    from ._environment import FumehoodSandboxEnvironment as FumehoodSandboxEnvironment

__all__ = ["FumehoodConfig", "FumehoodSandboxEnvironment"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _registry

    return getattr(_registry, name)
