"""What the adapters of frameworks share: errors for a framework that is missing or has another interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from inspect import signature
from typing import Any


@contextlib.contextmanager
def importing(adapter: str, distribution: str, source: str = "") -> Iterator[None]:
    """Explain an ImportError of an adapter, by the framework's distribution and its version.

    source is where a framework comes from that is not installed from the package index.
    """
    try:
        yield
    except ImportError as e:
        extra, version = adapter.replace("_", "-"), ""
        with contextlib.suppress(metadata.PackageNotFoundError):
            version = f" {metadata.version(distribution)}"
        if not version and isinstance(e, ModuleNotFoundError):
            text = f"{distribution} is not installed: " + (source or f"pip install 'fumehood[{extra}]'")
        else:
            text = f"the interface of {distribution}{version} is not supported: {e}"
        raise ImportError(f"fumehood.{adapter}: {text}") from e


def expect(function: Callable[..., Any], parameters: Sequence[str]) -> None:
    """Raise an ImportError if a function of the framework has other parameters than the adapter knows."""
    if (found := list(signature(function).parameters)) != list(parameters):
        raise ImportError(f"the parameters of {function.__qualname__} are {', '.join(found)}")
