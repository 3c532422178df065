"""What callers give to describe a sandbox or a session, as the server's JSON."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ._files import content
from ._types import JSON, Compose
from ._values import StrPath, Variables, absolute, instance, items, mapping, text, to_text, to_utf8
from .session import Asset, Input

Environment = Mapping[str, Any] | str | os.PathLike[str]  # a spec, its text in YAML or JSON, or the path of its file


def compose_of(given: Compose | str | None) -> Compose | None:
    """Return a Compose project that may be given as text."""
    return Compose(given) if isinstance(given, str) else instance(given, (Compose, str, type(None)), "compose")


def images_of(given: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the ids of images by service."""
    return None if given is None else mapping(given, "images")


def variables_of(given: Variables | None) -> dict[str, str]:
    """Return the variables of a sandbox, which must be UTF-8 unlike those of a command."""
    pairs = [] if given is None else [*instance(given, Mapping, "env").items()]
    return {to_utf8(key, "env: a name"): to_utf8(value, f"env: the value of {key!r}") for key, value in pairs}


def environment_of(given: Environment) -> JSON:
    """Return where an environment spec is, or its text."""
    if isinstance(given, os.PathLike):
        return {"file": absolute(given, "environment")}
    if not isinstance(given, str):
        try:
            return {"environment": json.dumps(dict(instance(given, Mapping, "environment")))}
        except TypeError as e:
            raise TypeError(f"environment: {e}") from None
    if "\n" not in given and given.endswith((".yaml", ".yml", ".json")):  # no spec ends like this in its only line
        return {"file": absolute(given, "environment")}
    return {"environment": given}


def assets_of(given: Mapping[str, Asset | StrPath] | None) -> dict[str, Asset]:
    """Return the assets of a session by name."""
    instance(given, (Mapping, type(None)), "assets")
    return {text(key, "assets: a name"): _asset(each) for key, each in (given or {}).items()}


def _asset(given: Asset | StrPath) -> Asset:
    if isinstance(given, (str, os.PathLike)):
        return Asset(given)
    return instance(given, (Asset, str, os.PathLike), "assets: a value")


def inputs_of(given: Sequence[Input]) -> list[JSON]:
    """Return the files that are written into a workspace first."""
    return [
        {"path": to_text(each.path), "content": base64.b64encode(content(each.content)).decode(), "mode": each.mode}
        for each in items(given, Input, "inputs")
    ]
