"""What the adapters of frameworks share: errors for a framework that is missing or has another interface, the note of
output that is missing, and the check of paths that data names.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from inspect import signature
from pathlib import Path
from typing import Any

from ._errors import LimitError, NotStartedError
from ._types import Output, Result


@contextlib.contextmanager
def importing(
    adapter: str, distribution: str, source: str = "", *, python: tuple[int, int] = (3, 10)
) -> Iterator[None]:
    """Explain an ImportError of an adapter, by the framework's distribution and its version.

    - source: where a framework comes from that is not installed from the package index.
    - python: the framework's oldest version of Python. An older one may reject the framework's syntax.
    """
    try:
        yield
    except (ImportError, SyntaxError) as e:
        if sys.version_info < python:
            need, have = (".".join(map(str, v[:2])) for v in (python, sys.version_info))
            raise ImportError(
                f"fumehood.{adapter}: {distribution} needs Python {need} or newer, and this is Python {have}"
            ) from e
        if isinstance(e, SyntaxError):
            raise
        version = ""
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = f" {metadata.version(distribution)}"
        if not version and isinstance(e, ModuleNotFoundError):
            advice = source or f"pip install '{_requirement(adapter, distribution)}'"
            text = f"{distribution} is not installed: {advice}"
        else:
            text = f"the interface of {distribution}{version} is not supported: {e}"
        raise ImportError(f"fumehood.{adapter}: {text}") from e


def outside(path: str | os.PathLike[str], folders: Iterable[str | os.PathLike[str]]) -> Path | None:
    """Return where a path leads, after links are resolved, if that is in none of some folders."""
    target = Path(path).resolve()
    return None if any(target.is_relative_to(Path(each).resolve()) for each in folders) else target


def _requirement(adapter: str, distribution: str) -> str:
    """The framework with the versions that the adapter supports, as far as this package is installed."""
    extra = adapter.replace("_", "-")
    with contextlib.suppress(metadata.PackageNotFoundError):
        for line in metadata.requires("fumehood") or ():
            requirement, _, marker = line.partition(";")
            if re.fullmatch(rf"""\s*extra\s*==\s*["']{extra}["']\s*""", marker):
                return requirement.strip()
    return distribution


@contextlib.contextmanager
def starting(op: str = "exec") -> Iterator[None]:
    """Raise a NotStartedError where programs of the sandbox, such as a fork bomb, leave no process for a command.

    Code in the sandbox has caused that, so frameworks get a failed command.
    """
    try:
        yield
    except LimitError as e:
        if e.op != op:  # a limit of the server
            raise
        raise NotStartedError(e.message, op=e.op, service=e.service, hint=e.hint) from e


def shell_code(error: NotStartedError) -> int:
    """Return the exit code with which a shell reports a program that does not start."""
    return 127 if isinstance(error, FileNotFoundError) else 126


def gone(result: Result) -> bool:
    """Report whether a command was lost with its sandbox, and not because code there killed its supervisor."""
    return result.outcome == "lost" and not result.caused_inside


def exit_code(result: Result) -> int:
    """Return a command's exit code. One whose supervisor was killed counts as killed, too."""
    return 137 if result.outcome == "lost" else result.exit_code


def missing(count: int, why: str = "more than is kept") -> str:
    """Return the line that stands where bytes of output are missing: frameworks have no other place to say so."""
    return f"\n[{count} bytes of output are missing: {why}]\n"


def told(output: Output) -> bytes:
    """Return output, with a line at its beginning if that was dropped."""
    lost = output.total - len(output.data)
    return missing(lost).lstrip().encode() + output.data if lost > 0 else output.data


def expect(function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Raise an ImportError if a function of the framework has other parameters than the adapter knows."""
    if (found := list(signature(function).parameters)) != list(parameters):
        raise ImportError(f"the parameters of {function.__qualname__} are {', '.join(found)}")
