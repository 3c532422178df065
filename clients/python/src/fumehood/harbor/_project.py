"""What a sandbox consists of: a task's environment as a Compose project."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harbor.constants import MAIN_SERVICE_NAME
from harbor.environments.definition import COMPOSE_FILE_NAME, DOCKERFILE_NAME, should_upload_environment_dir
from harbor.environments.options import EnvironmentOptions
from pydantic import Field

from .._framework import outside


class FumehoodOptions(EnvironmentOptions):
    """What a task is allowed, and limits that Harbor has no setting for: `--ek allow_read='["/data"]'`."""

    allow_read: tuple[str, ...] = Field(
        (), description="Paths outside environment/ that it may read, mount and link to."
    )
    allow_unsafe: bool = Field(False, description="Allow, and log, what breaks the isolation.")
    host_env: tuple[str, ...] = Field((), description="Variables of this process that its Compose files may see.")
    max_download_bytes: int = Field(
        0, ge=-1, description="The most bytes of one copy out, holes included. 0 means 10 GiB, -1 no limit."
    )
    max_download_entries: int = Field(
        0, ge=-1, description="The most files, directories and links of one copy out. 0 means 1000000, -1 no limit."
    )
    pids: int = Field(0, ge=0, description="The most processes of the main service. 0 means 1024.")


def write(path: Path, main: Mapping[str, Any]) -> str:
    """Write a Compose file with the settings of the main service that are set, and return its path.

    A $ in its texts is no variable.
    """
    given = {name: value for name, value in main.items() if value is not None}
    path.write_text(json.dumps({"services": {MAIN_SERVICE_NAME: given}}).replace("$", "$$"), "utf-8")
    return str(path)


def check_links(folder: Path, image: str | None, options: FumehoodOptions) -> None:
    """Raise a ValueError for a link by which an environment's folder, or a file of it, is outside of its task.

    It checks the folder, its Dockerfile and its Compose file and, if the folder is uploaded, everything in it. Links
    in a build's context are packed as links.
    """
    task = next((each for each in folder.parents if (each / "task.toml").is_file()), folder.parent)
    uploads = should_upload_environment_dir(folder, docker_image=image)
    inside = folder.rglob("*") if uploads else (folder / name for name in (DOCKERFILE_NAME, COMPOSE_FILE_NAME))
    for each in (folder, *inside):
        if target := outside(each, [task, *options.allow_read]):
            hint = "copy what it leads to into the task, or use --ek allow_read='[\"PATH\"]'"
            raise ValueError(f"{each}: a link that leads out of the task, to {target}: {hint}")


def check_offline(options: FumehoodOptions) -> None:
    """Raise a ValueError if options give a project a way out. Its files are checked by the server, when it starts."""
    if options.allow_unsafe:
        raise ValueError("network_mode='no-network' is not enforced with allow_unsafe: remove this option")


# What the server's advice names, and the option that does the same.
OPTIONS = {"--allow-read": "allow_read", "--allow-unsafe": "allow_unsafe", "--host-env": "host_env"}
ALLOW = "These options (--ek NAME=VALUE) allow"
