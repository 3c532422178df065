"""Plain data that the server's JSON describes: how it is read, written and shown."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from . import _values as values
from ._errors import ConfigError, FumehoodError, ProtocolError, from_json
from ._values import JSON, from_text, millis, parse_bytes, parse_time, to_text, without_zeros

if TYPE_CHECKING:
    from typing_extensions import Self

Text = Annotated[str, "text"]  # a name, path or argument; bytes that are not UTF-8 are as of os.fsdecode
Seconds = Annotated[float, "_ms"]  # in JSON milliseconds, in a field with this suffix

# Types of fields that callers give, see Given.
GivenText = Annotated[str | os.PathLike[str], "text"]
GivenTexts = Annotated[Sequence[str | os.PathLike[str]], "texts"]
GivenSize = Annotated[int | str, "size"]  # bytes, or a text such as "512MiB"
GivenLimit = Annotated[int | str, "limit"]  # the same, of which -1 and "none" are no limit
GivenSeconds = Annotated[float | str, "_ms"]  # seconds, or a text such as "1m30s"
GivenWhole = Annotated[int | str, "whole seconds"]

_WIDTH = 300  # characters of what repr returns
_PART = 40  # characters or bytes of a text in it


class Shown:
    """Has a short repr: one line, with the fields that have not their default values."""

    def __init_subclass__(cls) -> None:
        if "__repr__" not in vars(cls):  # so that the decorator of dataclasses adds none
            cls.__repr__ = Shown.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = []
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if each.repr and value != _default(each):
                shown.append(f"{each.name}={brief(value)}")
        line = f"{type(self).__name__}({', '.join(shown)})"
        return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 4]}...)"


def _default(of: Field[Any]) -> object:
    return of.default_factory() if of.default_factory is not MISSING else of.default


def brief(value: object) -> str:
    """Return a value's repr, shortened."""
    if isinstance(value, str | bytes):
        return repr(value) if len(value) <= _PART else f"{value[:_PART]!r}... ({len(value)})"
    if isinstance(value, tuple | list):
        more = [f"... ({len(value)})"] * (len(value) > 3)
        return f"[{', '.join([*map(brief, value[:3]), *more])}]"
    if isinstance(value, Mapping):
        pairs = [f"{brief(key)}: {brief(value[key])}" for key, _ in zip(value, range(3), strict=False)]
        return f"{{{', '.join(pairs)}{f', ... ({len(value)})' * (len(value) > 3)}}}"
    return repr(value)


class Data(Shown):
    """Plain data that the server's JSON describes with the same names, see _plan for the types of its fields."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the value of a JSON object. A field that is absent has the zero value."""
        if not isinstance(value, dict):
            raise ProtocolError("answer: not the JSON object that was expected")
        found: JSON = {}
        for name, key, kind, zero, convert in _plan(cls):
            item = value.get(key)
            if item is None:
                found[name] = zero()
            elif item.__class__ is kind or kind is object or (kind is float and item.__class__ is int):
                found[name] = convert(item) if convert else item
            else:
                raise ProtocolError(f"answer: the field {key} has another type than was expected")
        made = object.__new__(cls)
        vars(made).update(found)  # the constructor of a frozen dataclass sets each field by a call
        return made

    def encode(self) -> JSON:
        """Return the value as a JSON object, without what is zero or empty."""
        found: JSON = {}
        for name, key, _, _, convert in _plan(type(self)):
            value = getattr(self, name)
            if convert is from_text:
                value = to_text(value)
            elif convert is parse_bytes:
                value = base64.b64encode(value).decode()
            found[key] = value if key == name else millis(value)
        return without_zeros(**found)


class Given(Data):
    """Data of which callers construct values: the fields are checked, and sizes and durations converted."""

    def __post_init__(self) -> None:
        for name, check in _checks(type(self)):
            object.__setattr__(self, name, check(getattr(self, name), f"{type(self).__name__}.{name}"))


D = TypeVar("D", bound=Data)


def parse_all(kind: type[D], items: object) -> list[D]:
    """Return the values of a list of JSON objects, which may be absent."""
    if not isinstance(items, list | None):
        raise ProtocolError("answer: not the list that was expected")
    return [kind.parse(each) for each in items or ()]


def plain(value: Any) -> Any:
    """Return what stands in JSON for a value that JSON does not have."""
    if isinstance(value, Data):
        return value.encode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return values.to_utf8(value, "request: a path")
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    raise values.wrong("request", value, "a text, a number or a list")


# How a type is read: its type in JSON, its zero value, and how it is converted.
_Reader = tuple[type[Any], Callable[[], Any], Callable[[Any], Any] | None]
_MILLIS: _Reader = (float, float, lambda ms: ms / 1000)
_READERS: dict[Any, _Reader] = {
    str: (str, str, None),
    Any: (object, lambda: None, None),
    int: (int, int, None),
    bool: (bool, bool, None),
    float: (float, float, float),
    bytes: (str, bytes, parse_bytes),
    JSON: (dict, dict, None),
    Seconds: _MILLIS,
    GivenSeconds: _MILLIS,
    datetime: (str, lambda: None, parse_time),
    FumehoodError: (dict, lambda: None, from_json),
    Text: (object, str, from_text),
    GivenText: (str, str, None),
    GivenSize: (int, int, None),
    GivenLimit: (int, int, None),
    GivenWhole: (int, int, None),
    tuple[Text, ...]: (list, tuple, lambda items: tuple(map(from_text, items))),
    tuple[str, ...]: (list, tuple, lambda items: tuple(map(str, items))),
    GivenTexts: (list, tuple, lambda items: tuple(map(str, items))),
    Sequence[str]: (list, tuple, lambda items: tuple(map(str, items))),
    Mapping[str, str]: (dict, dict, lambda found: {key: str(value) for key, value in found.items()}),
}


_Plan = list[tuple[str, str, type[Any], Callable[[], Any], Callable[[Any], Any] | None]]
_plans: dict[type[Any], _Plan] = {}


def _plan(kind: type[Any]) -> _Plan:
    """Return how a dataclass is read: for each field its name, its name in JSON, and the reader of its type."""
    plan = _plans.get(kind)
    if plan is None:
        hints = get_type_hints(kind, include_extras=True)
        names = [f.name for f in fields(kind)]
        in_millis = (Seconds, GivenSeconds)
        plan = [(name, name + "_ms" * (hints[name] in in_millis), *_reader(hints[name])) for name in names]
        _plans[kind] = plan
    return plan


def _reader(hint: Any) -> _Reader:
    if hint in _READERS:
        return _READERS[hint]
    if get_origin(hint) is Literal:
        return _READERS[str]
    if get_origin(hint) is Mapping:
        kind, _, convert = _reader(get_args(hint)[1])
        return dict, dict, partial(_parse_values, kind, convert)
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return list, tuple, lambda items: tuple(parse_all(item, items))
    if type(None) in get_args(hint):
        kind, _, convert = _reader(get_args(hint)[0])
        return kind, lambda: None, convert
    none = hint.parse({})  # it cannot be changed
    return dict, lambda: none, hint.parse


def _parse_values(kind: type[Any], convert: Callable[[Any], Any] | None, found: JSON) -> JSON:
    """Return a JSON object whose values all have one type."""
    for key, value in found.items():
        if value.__class__ is not kind and not (kind is float and value.__class__ is int):
            raise ProtocolError(f"answer: the value of {key} has another type than was expected")
    return {key: convert(value) if convert else value for key, value in found.items()}


def _whole(value: Any, name: str) -> int:
    found = values.duration(value, name)
    if found != int(found):
        raise ConfigError(f"{name}: {values.short(value)} is not a number of whole seconds")
    return int(found)


_CHECKS: dict[Any, values.Check] = {
    str: values.text,
    int: values.integer,
    bool: values.flag,
    float: values.number,
    GivenText: values.to_utf8,
    GivenTexts: values.paths,
    GivenSize: values.size,
    GivenLimit: values.limit,
    GivenSeconds: values.duration,
    GivenWhole: _whole,
    Sequence[str]: values.texts,
    Mapping[str, str]: values.mapping,
}
_checked: dict[type[Any], list[tuple[str, values.Check]]] = {}


def _checks(kind: type[Any]) -> list[tuple[str, values.Check]]:
    """Return the checks of the fields of a dataclass."""
    found = _checked.get(kind)
    if found is None:
        hints = get_type_hints(kind, include_extras=True)
        found = _checked[kind] = [(f.name, _CHECKS[hints[f.name]]) for f in fields(kind)]
    return found
