"""Environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from .._model import Model


class ExecutionError(Exception):
    pass


class EnvironmentConfig(Model):
    env: dict[str, str] = field(default_factory=dict)
    include_os_env: bool = False


class SetupConfig(Model):
    commands: list[str] = field(default_factory=list)
    eval_commands: list[str] = field(default_factory=list)
    resume_commands: list[str] = field(default_factory=list)


class CommandConfig(Model):
    entry_file: str = "{entry_file}"
    command: str = "python"
    agent_command: str | None = None


class SnapshotConfig(Model):
    keep_globs: set[str] | None = None
    ignore_globs: set[str] = field(default_factory=lambda: {"*.pyc", "venv/*", ".venv/*", ".evaluation_tests/*"})
    compression: str = "gz"
    archive_save_dir: Path | None = None


class EnvironmentSpec(Model):
    type: str
    name: str
    environment: EnvironmentConfig = field(default_factory=EnvironmentConfig)
    setup: SetupConfig = field(default_factory=SetupConfig)
    commands: CommandConfig = field(default_factory=CommandConfig)
    snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)

    def get_full_env(self, other_env: Mapping[str, str]) -> dict[str, str]:
        host = dict(os.environ) if self.environment.include_os_env else {}
        return {**host, **self.environment.env, **other_env}

    def get_setup_commands(self, is_evaluation: bool = False) -> list[str]:
        return [*self.setup.commands, *(self.setup.eval_commands if is_evaluation else [])]

    def get_command(self, entry_file: str, *, is_agent_run: bool = False) -> str:
        agent = self.commands.agent_command if is_agent_run else None
        return f"{agent or self.commands.command} {self.commands.entry_file.format(entry_file=entry_file)}"
