"""What the adapters of frameworks share: errors for a framework that is missing or has another interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from inspect import signature
from typing import Any


@contextlib.contextmanager
def importing(adapter: str, distribution: str) -> Iterator[None]:
    """Explain an ImportError of an adapter, by the framework's distribution and its version."""
    try:
        yield
    except ImportError as e:
        extra = adapter.replace("_", "-")
        try:
            version = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            text = f"{distribution} is not installed: pip install 'fumehood[{extra}]'"
        else:
            text = f"the interface of {distribution} {version} is not supported: {e}"
        raise ImportError(f"fumehood.{adapter}: {text}") from e


def expect(function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Raise an ImportError if a function of the framework has other parameters than the adapter knows."""
    if (found := list(signature(function).parameters)) != list(parameters):
        raise ImportError(f"the parameters of {function.__qualname__} are {', '.join(found)}")
