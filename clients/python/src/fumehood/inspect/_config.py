"""What a sandbox consists of: inspect_ai's configurations as requests to the server."""

from __future__ import annotations

import json
import os
import re
import sysconfig
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from inspect_ai.util import ComposeConfig, is_dockerfile
from inspect_ai.util._sandbox.compose import COMPOSE_FILES, DOCKERFILE
from pydantic import BaseModel, ConfigDict, Field

from .. import Compose, ConfigError, Limits
from .._framework import outside

CONFIG_FILES = [*COMPOSE_FILES, DOCKERFILE]
GENERIC_IMAGE = "aisiuk/inspect-tool-support"  # of inspect's Docker provider

_METADATA = re.compile(r"SAMPLE_METADATA_\w+", re.ASCII)
_DEFAULTED = re.compile(r"(SAMPLE_METADATA_\w+):?[-+]", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)


class FumehoodConfig(BaseModel):
    """What a sandbox of Fumehood consists of, and what it is allowed.

    At most one of image, compose and dockerfile is set. Without any, a Compose file or a Dockerfile in the task's
    folder counts, then the image of inspect's Docker provider. Relative paths are in the task's folder.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str = ""
    compose: str = ""  # the path of a Compose file
    dockerfile: str = ""  # the path of a Dockerfile; its folder is the build context
    user: str = ""  # of commands and files, with an image; root is then available in any Engine
    cwd: str = ""  # the working directory, with an image
    egress: Literal["", "internet"] = ""  # "internet" gives its networks access, also to this machine
    allow_read: tuple[str, ...] = ()  # paths outside the project's folder that it may read and mount read-only
    allow_unsafe: bool = False  # allows, and logs, what breaks the isolation
    host_env: tuple[str, ...] = ()  # variables of this process that the Compose file may see
    memory: int | str = 0  # bytes or a size such as "512MiB", the most that a service may have; 0 means 2 GiB
    cpus: float = 0
    pids: int = 0
    keep: float = Field(default=0, ge=0)  # seconds that sandboxes outlive an evaluation with --no-sandbox-cleanup
    ready_timeout: float = Field(default=0, ge=0)  # seconds until all services are ready
    build_timeout: float = Field(default=0, ge=0)  # seconds of all builds
    pull_timeout: float = Field(default=0, ge=0)  # seconds of all pulls


@dataclass(frozen=True)
class Plan:
    """How a sandbox starts."""

    config: FumehoodConfig
    image: str = ""
    compose: Compose | None = None
    missing: frozenset[str] = frozenset()  # variables of samples in the names of its images that have no value
    variables: Mapping[str, str] = field(default_factory=dict)  # those that have one

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that the server needs."""
        given = {"--allow-unsafe": self.config.allow_unsafe, "--allow-kept": self.config.keep > 0}
        return tuple(flag for flag, needed in given.items() if needed)

    @property
    def key(self) -> str:
        """What its images depend on."""
        compose = self.compose and replace(self.compose, env=self.variables)
        return json.dumps([self.image, compose and compose.encode()])

    def start(self, images: Mapping[str, str] | None, labels: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of AsyncClient.start."""
        c = self.config
        options: dict[str, Any] = {"labels": labels, "limits": Limits(parse_size(c.memory), c.cpus, c.pids)}
        if c.keep > 0:
            options.update(keep=True, ttl=c.keep)
        if self.compose is not None:
            return {**options, "compose": self.compose, "images": images}
        network = "bridge" if c.egress else ""
        # Engines older than 24 give root no capabilities in a container of another user: its commands get the user.
        user = "root" if c.user else ""
        options.update(image=self.image, user=user, cwd=c.cwd, network=network, allow_unsafe=c.allow_unsafe)
        return options


def plan(
    config: BaseModel | str | None,
    metadata: Mapping[str, Any] | None,
    prebuilt: bool = False,
    folders: Collection[str] | None = None,
) -> Plan:
    """Plan the sandbox of a configuration. Without metadata, their variables are those of this process.

    folders are those of the tasks, by default the working directory. A file outside of them may be named by a
    FumehoodConfig only: inspect's configurations can be those of samples that came as data.
    """
    own = config if isinstance(config, FumehoodConfig) else FumehoodConfig()
    if not isinstance(config, (FumehoodConfig, ComposeConfig, str)) and config is not None:
        raise ConfigError(f"config: {type(config).__name__} is not a FumehoodConfig, a ComposeConfig or a path")
    given = [name for name in ("image", "compose", "dockerfile") if getattr(own, name)]
    if len(given) > 1:
        raise ConfigError(f"config: {' and '.join(given)} exclude each other")
    path = config if isinstance(config, str) else own.compose or own.dockerfile
    if path == "" and not own.image and not isinstance(config, ComposeConfig):
        path = next((name for name in CONFIG_FILES if Path(name).is_file()), "")
    path = os.path.abspath(path) if path else ""  # noqa: PTH100
    if path and not own.compose and not own.dockerfile:
        _check_place(path, [os.getcwd()] if folders is None else folders)  # noqa: PTH109
    image = own.image or GENERIC_IMAGE
    project = Compose(
        egress=own.egress,
        allow_read=[os.path.abspath(each) for each in own.allow_read],  # noqa: PTH100
        allow_unsafe=own.allow_unsafe,
        prebuilt=prebuilt,
        ready_timeout=own.ready_timeout,
        build_timeout=own.build_timeout,
        pull_timeout=own.pull_timeout,
    )
    if isinstance(config, ComposeConfig):
        text = json.dumps(config.model_dump(mode="json", by_alias=True, exclude_none=True))
        project = replace(project, content=text, dir=str(Path.cwd()))
    elif own.dockerfile or (not own.compose and is_dockerfile(path)):
        return Plan(own, compose=replace(project, dockerfile=path, dir=str(Path(path).parent)))
    elif path:
        text = _read(path)
        project = replace(project, files=[path])
    elif prebuilt:  # an image alone would be pulled
        service = {"image": image, "command": "tail -f /dev/null", "network_mode": "none"}
        return Plan(own, compose=replace(project, content=json.dumps({"services": {"default": service}})))
    else:
        return Plan(own, image=image)
    names, defaulted = set(_METADATA.findall(text)), set(_DEFAULTED.findall(text))
    values = {name: value for name, value in _variables(metadata).items() if name in names}
    unknown = {} if metadata is not None else dict.fromkeys(names - defaulted, "")  # those of samples to come
    host = {name: os.environ[name] for name in own.host_env if name in os.environ}
    of_images = _of_images(text)
    used = {name: value for name, value in values.items() if name in of_images}
    project = replace(project, env={**host, **unknown, **values})
    return Plan(own, compose=project, missing=of_images - used.keys() - defaulted, variables=used)


def _check_place(path: str, folders: Collection[str]) -> None:
    """Raise a ConfigError for a file outside of some folders, of installed packages and of FUMEHOOD_ALLOW_READ."""
    packages = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    allowed = [each for each in os.environ.get("FUMEHOOD_ALLOW_READ", "").split(os.pathsep) if each]
    if found := outside(path, [*folders, *packages, *allowed]):
        where = ", ".join(folders)
        hint = "name it in a FumehoodConfig, or its folder in the variable FUMEHOOD_ALLOW_READ"
        raise ConfigError(f"config: {found} is not in the task's folder: {where}", hint=hint)


def _variables(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the variables of a sample's metadata, named as by inspect's Docker provider."""
    if metadata is None:
        return {name: value for name, value in os.environ.items() if _METADATA.fullmatch(name)}
    return {f"SAMPLE_METADATA_{key.replace(' ', '_').upper()}": str(value) for key, value in metadata.items()}


def _of_images(text: str) -> frozenset[str]:
    """Return the variables of samples in the images and builds of a Compose file."""
    try:
        services = yaml.safe_load(text)["services"].values()
        images = json.dumps([[each.get("image"), each.get("build")] for each in services], default=str)
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return frozenset()  # the server says what is wrong with the file
    return frozenset(_METADATA.findall(images))


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"config: {e}") from e


def parse_size(size: int | str) -> int:
    """Return the bytes of a size such as 512MiB, of which the units are powers of 1024."""
    if isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size.strip())
    if not match:
        raise ConfigError(f"config: memory: {size!r} is not a size such as 512MiB")
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2].lower() or " "))


# What the server's messages say, and the field of FumehoodConfig that does the same.
FIELDS = {
    "--allow-read": "allow_read",
    "--allow-unsafe": "allow_unsafe",
    "those that are named": "host_env",
    "--egress": 'egress="internet"',
    "--memory": "memory",
}
ALLOW = "FumehoodConfig allows"
