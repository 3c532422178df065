"""Environments of containers."""

from __future__ import annotations

import os
from dataclasses import field
from typing import Literal

from ..._model import Model
from ..models import EnvironmentSpec


class DockerConfig(Model):
    image: str
    binary: str = "docker"
    workdir: str = "/workspace"
    mount_workspace: bool = True
    extra_mounts: dict[str, str | dict[str, str]] = field(default_factory=dict)
    network: str | None = None
    user: str | None = None


class DockerEnvironmentSpec(EnvironmentSpec):
    type: Literal["docker"] = "docker"
    docker: DockerConfig

    def get_eval_user(self) -> str:
        return self.docker.user or "1000:1000"

    def get_actual_user(self) -> str:
        uid, gid = os.getenv("HUID"), os.getenv("HGID")
        return self.docker.user or (f"{uid}:{gid}" if uid and gid else "0:0")

    def effective_network_mode(self) -> str:
        return self.docker.network or "bridge"

    def get_base_image(self) -> str:
        return f"slop-code:{self.name}"
