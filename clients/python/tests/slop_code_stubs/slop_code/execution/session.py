"""Sessions: a temporary copy of a folder, and the runtimes over it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from .assets import ResolvedStaticAsset
from .models import EnvironmentSpec
from .protocols import ExecRuntime, StreamingRuntime
from .runtime import spawn_exec_runtime, spawn_streaming_runtime


class Session:
    def __init__(
        self,
        spec: EnvironmentSpec,
        base_dir: Path | None,
        static_assets: dict[str, ResolvedStaticAsset] | None,
        is_agent_infer: bool,
    ) -> None:
        self.spec = spec
        self._shared = {"static_assets": static_assets, "is_evaluation": not is_agent_infer}
        self._base = base_dir
        self._runtimes: list[StreamingRuntime | ExecRuntime] = []

    @classmethod
    def from_environment_spec(
        cls,
        spec: EnvironmentSpec,
        base_dir: Path | None,
        static_assets: dict[str, ResolvedStaticAsset] | None = None,
        image_name: str | None = None,
        is_agent_infer: bool = False,
    ) -> Session:
        return cls(spec, base_dir, static_assets, is_agent_infer)

    def __enter__(self) -> Session:
        self._folder = tempfile.TemporaryDirectory()
        self.working_dir = Path(self._folder.name)
        if self._base:
            shutil.copytree(self._base, self.working_dir, dirs_exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for runtime in self._runtimes:
            runtime.cleanup()
        self._folder.cleanup()

    def spawn(self, **kwargs: Any) -> StreamingRuntime:
        options = {"working_dir": self.working_dir, **self._shared, **kwargs}
        runtime = spawn_streaming_runtime(self.spec, **options)
        self._runtimes.append(runtime)
        return runtime

    def exec(self, command: str, **kwargs: Any) -> ExecRuntime:
        options = {"working_dir": self.working_dir, **self._shared, **kwargs}
        runtime = spawn_exec_runtime(self.spec, command, **options)
        self._runtimes.append(runtime)
        return runtime
