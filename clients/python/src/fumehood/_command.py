"""Commands: their options, and what the server gets of them."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import BinaryIO, TypedDict

from ._errors import ConfigError
from ._files import read_all
from ._types import JSON, AnyText, Rlimits, Variables, millis, to_text, to_variables, without_zeros
from ._values import (
    Check,
    Duration,
    Size,
    checked,
    duration,
    flag,
    instance,
    integer,
    seconds,
    short,
    size,
    text,
    to_words,
)

Stdin = bytes | bytearray | memoryview | str | os.PathLike[str] | BinaryIO


class CommandOptions(TypedDict, total=False):
    """The options of a command, see AsyncService.run."""

    stdin: Stdin | None
    env: Variables | None
    cwd: AnyText
    user: str
    timeout: Duration | None
    cpu_time: Duration | None
    grace: Duration | None
    stdout_cap: Size
    stderr_cap: Size
    kill_rest: bool
    rlimits: Rlimits | None
    via_engine: bool
    tty: bool
    rows: int
    cols: int
    term: str


def time_limit(given: Duration | None, name: str = "timeout") -> float | None:
    """Return a limit of a command in milliseconds. None is none."""
    if given is None:
        return None
    found = seconds(given, name)
    if found <= 0:
        raise ConfigError(f"{name}: {short(given)} is not positive")
    return millis(found)


def _grace(given: Duration | None, name: str) -> float | None:
    """Return a time in milliseconds, which -1 stands for none of."""
    return None if given is None else millis(duration(given, name)) or -1


def _input(given: Stdin | None, name: str) -> str:
    return base64.b64encode(read_all(given, name)).decode()


_OPTIONS: Mapping[str, Check] = {
    "stdin": _input,
    "env": to_variables,
    "cwd": to_text,
    "user": text,
    "timeout": time_limit,
    "cpu_time": time_limit,
    "grace": _grace,
    "stdout_cap": size,
    "stderr_cap": size,
    "kill_rest": flag,
    "rlimits": lambda given, name: instance(given, (Rlimits, type(None)), name),
    "via_engine": flag,
    "tty": flag,
    "rows": integer,
    "cols": integer,
    "term": text,
}
_NAMES = {  # in JSON
    "cwd": "dir",
    "timeout": "timeout_ms",
    "cpu_time": "cpu_time_ms",
    "grace": "grace_ms",
    "stdin_open": "stdin_pipe",
}


def command_of(args: Sequence[AnyText], options: CommandOptions, **more: bool) -> JSON:
    """Return a command as the server's JSON."""
    words = to_words(args)
    if not options and not more:
        return {"args": words}
    if more.get("stdin_open") and options.get("stdin") is not None:
        raise ConfigError("stdin: it excludes stdin_open", hint="write it to the process")
    given = {**checked(_OPTIONS, options), **{name: flag(value, name) for name, value in more.items()}}
    return without_zeros(args=words, **{_NAMES.get(name, name): value for name, value in given.items()})
