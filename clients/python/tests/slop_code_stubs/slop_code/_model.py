"""Models with the part of pydantic's interface that SlopCodeBench's models have."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

if typing.TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Model:
    """Frozen, created from keywords, and strict about unknown keys."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def model_validate(cls, data: dict[str, Any]) -> Self:
        """Return the model of a mapping, as a file has it."""
        hints = typing.get_type_hints(cls)
        if unknown := set(data) - set(hints):
            raise ValueError(f"extra keys: {', '.join(sorted(unknown))}")
        return cls(**{key: _convert(hints[key], value) for key, value in data.items()})


def _convert(hint: Any, value: Any) -> Any:
    kind, inner = typing.get_origin(hint), typing.get_args(hint)
    if kind is typing.Literal:
        if value not in inner:
            raise ValueError(f"wanted one of {inner}, found {value!r}")
        return value
    if kind in (types.UnionType, typing.Union):
        return None if value is None and type(None) in inner else _convert(inner[0], value)
    if kind is set:
        return set(value)
    if isinstance(hint, type) and issubclass(hint, Model):
        return hint.model_validate(value)
    return value
