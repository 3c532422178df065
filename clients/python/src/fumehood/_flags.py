"""What a client's own server permits and limits: arguments of Client, as flags of `fumehood serve`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

from . import _values as values
from ._errors import ConfigError

Provider = Literal["auto", "docker", "native", "kubernetes", "workers", "local"]


def _provider(given: object, name: str) -> list[str]:
    found, known = values.text(given, name), get_args(Provider)
    if found not in known:
        raise ConfigError(f"{name}: {values.short(found)} is not one of {', '.join(known)}")
    return [found]


def _host_paths(given: object, name: str) -> list[str]:
    found = [str(Path(each).absolute()) for each in values.paths(given, name)]
    for each in found:
        if "\0" in each or not Path(each).exists():
            raise ConfigError(f"{name}: no such file or directory: {values.short(each)}")
    return found


def _count(given: object, name: str) -> list[str]:
    if (found := values.integer(given, name)) <= 0:
        raise ConfigError(f"{name}: {values.short(found)} is not positive")
    return [str(found)]


def _size(given: object, name: str) -> list[str]:
    return _count(values.size(given, name), name)


def _duration(given: object, name: str) -> list[str]:
    if (found := values.duration(given, name)) <= 0:
        raise ConfigError(f"{name}: {values.short(given)} is not positive")
    return [f"{round(found * 1e9)}ns"]


def _text(given: object, name: str) -> list[str]:
    return [values.text(given, name)]


def _path(given: object, name: str) -> list[str]:
    return [values.to_utf8(cast("values.StrPath", values.instance(given, (str, os.PathLike), name)), name)]


def _names(given: object, name: str) -> list[str]:
    found = values.texts(given, name)
    for each in found:
        if not each or "," in each:
            raise ConfigError(f"{name}: {values.short(each)} is empty or has a comma")
    return [",".join(found)] if found else []


def _cores(given: object, name: str) -> list[str]:
    return [str(values.number(given, name))]


# By argument: its flag, and the values of that.
FLAGS: Mapping[str, tuple[str, values.Check]] = {
    "provider": ("provider", _provider),
    "runtime": ("runtime", _text),
    "workers": ("workers", _names),
    "workers_token_file": ("workers-token-file", _path),
    "workers_ca": ("workers-ca", _path),
    "namespace": ("namespace", _text),
    "guest_image": ("guest-image", _text),
    "kube_context": ("kube-context", _text),
    "pull_secrets": ("pull-secrets", _names),
    "reserve_memory": ("reserve-memory", _size),
    "reserve_cpus": ("reserve-cpus", _cores),
    "pending": ("pending", _duration),
    "allow_egress": ("allow-egress", values.flag),
    "allow_host_paths": ("allow-host-path", _host_paths),
    "allow_images": ("allow-image", values.texts),
    "allow_kept": ("allow-kept", values.flag),
    "allow_unsafe": ("allow-unsafe", values.flag),
    "allow_unenforced_limits": ("allow-unenforced-limits", values.flag),
    "max_sandboxes": ("max-sandboxes", _count),
    "max_commands": ("max-commands", _count),
    "max_memory": ("max-memory", _size),
    "max_body": ("max-body", _size),
    "max_upload": ("max-upload", _size),
    "idle": ("idle", _duration),
}


_FLAG = re.compile(r"--([a-z-]+)")
_ARGUMENTS = {flag: argument for argument, (flag, _) in FLAGS.items()}


def with_arguments(text: str) -> str:
    """Return a message about flags with the arguments of Client in their places."""
    return _FLAG.sub(lambda found: _ARGUMENTS.get(found[1], found[0]), text)


def serve_flags(given: Mapping[str, Any]) -> list[str]:
    """Return the flags for arguments of Client. What is None, False or empty has none."""
    flags = []
    for name, value in given.items():
        if value is None:
            continue
        flag, check = FLAGS[name]
        found = check(value, name)
        flags += [f"--{flag}"] if found is True else [f"--{flag}={each}" for each in found or ()]
    return flags
