"""Checks of the adapters: errors for a framework that is missing or has another interface, and for paths of data."""

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


def expect(function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Raise an ImportError if a function of the framework has other parameters than the adapter knows."""
    if (found := list(signature(function).parameters)) != list(parameters):
        raise ImportError(f"the parameters of {function.__qualname__} are {', '.join(found)}")
