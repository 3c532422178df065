"""The interfaces of runtimes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .assets import ResolvedStaticAsset
from .models import EnvironmentSpec
from .runtime import RuntimeEvent, RuntimeResult


class StreamingRuntime(ABC):
    @classmethod
    @abstractmethod
    def spawn(
        cls,
        environment: EnvironmentSpec,
        working_dir: Path,
        static_assets: dict[str, ResolvedStaticAsset] | None = None,
        ports: dict[int, int] | None = None,
        mounts: dict[str, dict[str, str] | str] | None = None,
        env_vars: dict[str, str] | None = None,
        setup_command: str | None = None,
        *,
        is_evaluation: bool = False,
        disable_setup: bool = False,
        **runtime_kwargs: Any,
    ) -> StreamingRuntime: ...

    @abstractmethod
    def stream(self, command: str, env: dict[str, str], timeout: float | None) -> Iterator[RuntimeEvent]: ...

    @abstractmethod
    def poll(self) -> int | None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def cleanup(self) -> None: ...


class ExecRuntime(ABC):
    @classmethod
    @abstractmethod
    def spawn(
        cls,
        environment: EnvironmentSpec,
        working_dir: Path,
        command: str,
        static_assets: dict[str, ResolvedStaticAsset] | None = None,
        ports: dict[int, int] | None = None,
        mounts: dict[str, dict[str, str] | str] | None = None,
        env_vars: dict[str, str] | None = None,
        setup_command: str | None = None,
        *,
        is_evaluation: bool = False,
        disable_setup: bool = False,
        **runtime_kwargs: Any,
    ) -> ExecRuntime: ...

    @abstractmethod
    def execute(self, env: dict[str, str], stdin: str | list[str] | None, timeout: float | None) -> RuntimeResult: ...

    @abstractmethod
    def poll(self) -> int | None: ...

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def cleanup(self) -> None: ...
