"""Values that callers give: their types are checked, and they are converted, before anything is sent.

A wrong type is a TypeError, a wrong value a ConfigError. Both name the argument.
"""

from __future__ import annotations

import base64
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from ._errors import ConfigError, ProtocolError

T = TypeVar("T")
JSON = dict[str, Any]
AnyText = str | bytes | os.PathLike[str] | os.PathLike[bytes]  # what os.fsencode accepts
StrPath = str | os.PathLike[str]
Variables = Mapping[str, AnyText] | Mapping[bytes, AnyText]
Size = int | str  # bytes, or a text such as "512MiB"
Duration = float | str  # seconds, or a text such as "1m30s"

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?(?:([kmgtp])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_PIECE = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_PIECES = re.compile(_PIECE)
_DURATION = re.compile(f"[+-]?(?:0|(?:{_PIECE})+)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_MAX = (1 << 63) - 1  # what the server's numbers hold: bytes, or nanoseconds
_LONGEST = 100  # characters of a size or duration


class Deadline(float):
    """A time of the monotonic clock, at which the timeout of a call expires."""

    timeout: float  # seconds

    def __new__(cls, timeout: float) -> Deadline:
        made = super().__new__(cls, time.monotonic() + timeout)
        made.timeout = timeout
        return made


def wrong(name: str, value: object, wanted: str) -> TypeError:
    """Return the error of an argument with a wrong type."""
    return TypeError(f"{name}: {wanted} is required, not {type(value).__name__}")


def short(value: object) -> str:
    """Return the beginning of a value's text, for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def text(value: object, name: str) -> str:
    """Return a text. Bytes and paths are none."""
    if isinstance(value, str):
        return value
    raise wrong(name, value, "a str")


def flag(value: object, name: str) -> bool:
    """Return a bool."""
    if isinstance(value, bool):
        return value
    raise wrong(name, value, "a bool")


def integer(value: object, name: str) -> int:
    """Return an int. A bool is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong(name, value, "an int")


def whole(value: object, name: str) -> int:
    """Return an int that is not negative."""
    found = integer(value, name)
    if found < 0:
        raise ConfigError(f"{name}: {short(value)} is negative")
    return found


def file_mode(value: object, name: str, most: int = 0o777) -> int:
    """Return the permissions of a file."""
    found = integer(value, name)
    if not 0 <= found <= most:
        raise ConfigError(
            f"{name}: {found} is not a file's mode: write one from 0 to {most:#o} in octal, such as 0o755"
        )
    return found


def number(value: object, name: str) -> float:
    """Return a finite number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong(name, value, "a number")
    if not math.isfinite(value):
        raise ConfigError(f"{name}: {value} is not a finite number")
    return value


def instance(value: T, kind: type[Any] | tuple[type[Any], ...], name: str) -> T:
    """Return a value of one of some types."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    raise wrong(name, value, " or ".join("None" if each is type(None) else each.__name__ for each in kinds))


def called(value: object, name: str) -> None:
    """Check a function that is called later, or None."""
    if value is not None and not callable(value):
        raise wrong(name, value, "a function")


def items(value: object, kind: type[Any] | tuple[type[Any], ...], name: str) -> list[Any]:
    """Return what is in a list or another iterable whose items have one of some types. A text is none."""
    if isinstance(value, str | bytes | os.PathLike | Mapping) or not isinstance(value, Iterable):
        raise wrong(name, value, "a list")
    return [instance(each, kind, f"{name}: in the list") for each in value]


def texts(value: object, name: str) -> list[str]:
    """Return a list of texts."""
    return items(value, str, name)


def mapping(value: object, name: str) -> dict[str, str]:
    """Return a mapping of texts to texts."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a mapping")
    return {text(key, f"{name}: a key"): text(each, f"{name}: the value of {key}") for key, each in value.items()}


def parse_size(given: str, name: str) -> int:
    """Parse a size as the command line does: a number and a unit of 1024, such as 512MiB, 512m or 1.5g."""
    match = _SIZE.fullmatch(given) if len(given) <= _LONGEST else None
    size = float(match[1]) * 1024 ** " kmgtp".index((match[2] or " ").lower()) if match else 0.0
    if not 1 <= size < _MAX:
        raise ConfigError(f"{name}: {short(given)} is not a size: write a number and a unit, such as 512MiB or 2g")
    return int(size)


def size(value: object, name: str, unlimited: bool = False) -> int:
    """Return a number of bytes. A size without a limit may be "none", which is -1."""
    if isinstance(value, str):
        return -1 if unlimited and value.lower() == "none" else parse_size(value, name)
    if isinstance(value, int) and not isinstance(value, bool):
        if not -1 <= value <= _MAX:
            raise ConfigError(f"{name}: {short(value)} is not a number of bytes")
        return value
    raise wrong(name, value, "a number of bytes or a text such as '512MiB'")


def limit(value: object, name: str) -> int:
    """Return a number of bytes, of which -1 and "none" are no limit."""
    return size(value, name, unlimited=True)


def parse_duration(given: str, name: str) -> float:
    """Parse a duration as the command line does: numbers and units, such as 90s, 1m30s or 1.5h. It is in seconds."""
    nanos: float = _MAX + 1
    if len(given) <= _LONGEST and _DURATION.fullmatch(given):
        nanos = sum(float(amount) * _UNITS[unit] for amount, unit in _PIECES.findall(given))
    if nanos > _MAX:
        raise ConfigError(
            f"{name}: {short(given)} is not a duration: write seconds, or a text such as '90s' or '1m30s'"
        )
    return -nanos / 1e9 if given.startswith("-") else nanos / 1e9


def seconds(value: object, name: str) -> float:
    """Return a duration in seconds, which may be negative."""
    if isinstance(value, str):
        return parse_duration(value, name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) <= _MAX / 1e9:  # not for NaN
            return value
        raise ConfigError(f"{name}: {short(value)} is not a duration")
    raise wrong(name, value, "a number of seconds or a text such as '1m30s'")


def duration(value: object, name: str) -> float:
    """Return a duration in seconds."""
    found = seconds(value, name)
    if found < 0:
        raise ConfigError(f"{name}: {short(value)} is negative")
    return found


def millis(seconds: float) -> float:
    """Return seconds as the milliseconds of the server's JSON."""
    return seconds * 1000


def parse_time(text: str) -> datetime | None:
    """Parse a time as Go writes it. None stands for no time."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    fraction = (match[2] or "")[:6].ljust(6, "0")
    try:
        time = datetime.fromisoformat(f"{match[1]}.{fraction}{zone}")
    except ValueError:
        return None
    return time if time.year > 1 else None  # the year 1 is Go's zero value


def parse_bytes(text: str) -> bytes:
    """Parse base64."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as e:
        raise ProtocolError("answer: invalid base64") from e


def from_text(value: object) -> str:
    """Return a text of the server's JSON. Bytes that are not UTF-8 become lone surrogates, as os.fsdecode has them."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and isinstance(value.get("base64"), str):
        return parse_bytes(value["base64"]).decode("utf-8", "surrogateescape")
    raise ProtocolError("answer: not the text that was expected")


def to_bytes(value: AnyText, name: str = "request") -> bytes:
    """Return the bytes of a text or path, as os.fsencode does, in any locale."""
    try:
        given = os.fspath(value)
    except TypeError:
        raise wrong(name, value, "a str, bytes or a path") from None
    try:
        return given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigError(f"{name}: a text has a lone surrogate that stands for no byte") from None


def to_path(value: AnyText, name: str = "path") -> str:
    """Return a text or path as a string, in which lone surrogates stand for bytes that are not UTF-8."""
    return to_bytes(value, name).decode("utf-8", "surrogateescape")


def to_text(value: AnyText, name: str = "request") -> str | dict[str, str]:
    """Return a text as the server's JSON: a string, or base64 if it is not UTF-8."""
    if value.__class__ is str and value.isascii():
        return value
    data = to_bytes(value, name)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def to_words(args: Sequence[AnyText]) -> list[str | dict[str, str]]:
    """Return a program and its arguments as the server's JSON."""
    if isinstance(args, list | tuple):
        if not args:
            raise ConfigError("args: no program", hint="the first item is the program")
        return [to_text(each, "args") for each in args]
    if isinstance(args, str | bytes | os.PathLike):
        raise TypeError(f'args: a list is required, not {type(args).__name__}: ["sh", "-c", TEXT] runs a shell')
    if not isinstance(args, Iterable) or isinstance(args, Mapping):
        raise wrong("args", args, "a list")
    return [to_text(each, "args") for each in args]


def to_variables(env: Variables | None, name: str = "env") -> dict[str, Any] | list[Any]:
    """Return a command's variables as the server's JSON: an object, or a list if a name is not UTF-8."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise wrong(name, env, "a mapping")
    values = {to_path(key, f"{name}: a name"): value for key, value in env.items()}
    if all(key.isascii() or isinstance(to_text(key), str) for key in values):
        return {key: to_text(value, f"{name}: the value of {key}") for key, value in values.items()}
    if any("=" in key for key in values):
        raise ConfigError(f"{name}: the name of a variable has an equals sign")
    return [to_text(to_bytes(key) + b"=" + to_bytes(value, f"{name}: a value")) for key, value in values.items()]


def to_utf8(value: AnyText, name: str) -> str:
    """Return a text that the server needs in UTF-8."""
    found = to_text(value, name)
    if isinstance(found, str):
        return found
    raise ConfigError(f"{name}: not UTF-8")


def absolute(path: StrPath | None, name: str) -> str:
    """Return an absolute path of the server's machine."""
    return str(Path(to_utf8(path, name)).absolute()) if path not in (None, "") else ""


def paths(value: object, name: str) -> list[str]:
    """Return a list of paths."""
    return [to_utf8(each, name) for each in items(value, (str, os.PathLike), name)]


def without_zeros(**given: Any) -> JSON:
    """Return the fields that are not zero, empty or None."""
    return {name: value for name, value in given.items() if value not in (None, "", b"", 0, (), [], {})}


Check = Callable[[Any, str], Any]


def checked(checks: Mapping[str, Check], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options after their checks. None of them may be unknown."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        check = checks.get(name)
        if check is None:
            unknown = ", ".join(sorted(set(options) - set(checks)))
            raise TypeError(f"unknown options: {unknown}; there are: {', '.join(sorted(checks))}")
        found[name] = check(value, name)
    return found
