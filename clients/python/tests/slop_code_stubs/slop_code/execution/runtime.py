"""Results, events and the registries of runtimes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from .._model import Model
from .models import EnvironmentSpec, ExecutionError

if TYPE_CHECKING:
    from .protocols import ExecRuntime, StreamingRuntime


class SolutionRuntimeError(ExecutionError):
    pass


class RuntimeResult(Model):
    exit_code: int
    stdout: str
    stderr: str
    setup_stdout: str
    setup_stderr: str
    elapsed: float
    timed_out: bool


class RuntimeEvent(Model):
    kind: Literal["stdout", "stderr", "finished"]
    text: str | None = None
    result: RuntimeResult | None = None


STREAMING_RUNTIME_REGISTRY: dict[str, Any] = {}
EXEC_RUNTIME_REGISTRY: dict[str, Any] = {}
_registered = False


def register_streaming_runtime(name: str) -> Callable[[type], type]:
    return lambda cls: _put(STREAMING_RUNTIME_REGISTRY, name, cls)


def register_exec_runtime(name: str) -> Callable[[type], type]:
    return lambda cls: _put(EXEC_RUNTIME_REGISTRY, name, cls)


def _put(registry: dict[str, Any], name: str, cls: type) -> type:
    registry[name] = cls
    return cls


def _ensure_runtimes_registered() -> None:
    """Register SlopCodeBench's own runtimes, once: here a name in the place of each."""
    global _registered
    if not _registered:
        for name in ("docker", "local"):
            STREAMING_RUNTIME_REGISTRY[name] = EXEC_RUNTIME_REGISTRY[name] = f"own {name}"
        _registered = True


def spawn_streaming_runtime(environment: EnvironmentSpec, **kwargs: Any) -> StreamingRuntime:
    _ensure_runtimes_registered()
    found: StreamingRuntime = STREAMING_RUNTIME_REGISTRY[environment.type].spawn(environment=environment, **kwargs)
    return found


def spawn_exec_runtime(environment: EnvironmentSpec, command: str, **kwargs: Any) -> ExecRuntime:
    _ensure_runtimes_registered()
    kind = EXEC_RUNTIME_REGISTRY[environment.type]
    found: ExecRuntime = kind.spawn(environment=environment, command=command, **kwargs)
    return found
