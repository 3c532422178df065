"""What requests and answers consist of: plain data, with the names of the server's JSON. Times are in seconds."""

from __future__ import annotations

import base64
import codecs
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ._errors import ConfigError, FumehoodError, ProtocolError, from_json

if TYPE_CHECKING:
    from typing_extensions import Self

JSON = dict[str, Any]
Outcome = Literal["exited", "signaled", "timed-out", "cpu-time-exceeded", "out-of-memory", "lost"]
FileKind = Literal["file", "directory", "symlink", "pipe", "socket", "device", "other"]
Bytes = bytes
StreamName = Literal["stdout", "stderr"]
Text = Annotated[str, "text"]  # a name, path or argument; bytes that are not UTF-8 are as of os.fsdecode
AnyText = str | bytes | os.PathLike[str] | os.PathLike[bytes]  # what os.fsencode accepts
Variables = Mapping[str, AnyText] | Mapping[bytes, AnyText]
Seconds = Annotated[float, "_ms"]  # in JSON milliseconds, in a field with this suffix

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


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


def to_bytes(value: AnyText) -> bytes:
    """Return the bytes of a text or path, as os.fsencode does, in any locale."""
    try:
        given = os.fspath(value)
    except TypeError:
        raise ConfigError(f"request: not a text, bytes or a path: {type(value).__name__}") from None
    try:
        return given if isinstance(given, bytes) else given.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigError("request: a text has a lone surrogate that stands for no byte") from None


def to_path(value: AnyText) -> str:
    """Return a text or path as a string, in which lone surrogates stand for bytes that are not UTF-8."""
    return to_bytes(value).decode("utf-8", "surrogateescape")


def to_text(value: AnyText) -> str | dict[str, str]:
    """Return a text as the server's JSON: a string, or base64 if it is not UTF-8."""
    if value.__class__ is str and value.isascii():
        return value
    data = to_bytes(value)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def to_variables(env: Variables | None) -> dict[str, Any] | list[Any]:
    """Return a command's variables as the server's JSON: an object, or a list if a name is not UTF-8."""
    values = {to_path(name): value for name, value in (env or {}).items()}
    if all(name.isascii() or isinstance(to_text(name), str) for name in values):
        return {name: to_text(value) for name, value in values.items()}
    if any("=" in name for name in values):
        raise ConfigError("command: the name of a variable has an equals sign")
    return [to_text(to_bytes(name) + b"=" + to_bytes(value)) for name, value in values.items()]


def to_utf8(value: AnyText, what: str) -> str:
    """Return a text that the server needs in UTF-8."""
    text = to_text(value)
    if isinstance(text, str):
        return text
    raise ConfigError(f"{what}: not UTF-8")


class Data:
    """Plain data that the server's JSON describes with the same names, see _plan for the types of its fields."""

    @classmethod
    def parse(cls, value: object) -> Self:
        """Return the value of a JSON object. A field that is absent has the zero value."""
        if not isinstance(value, dict):
            raise ProtocolError("answer: not the JSON object that was expected")
        values: JSON = {}
        for name, key, kind, zero, convert in _plan(cls):
            item = value.get(key)
            if item is None:
                values[name] = zero()
            elif item.__class__ is kind or kind is object or (kind is float and item.__class__ is int):
                values[name] = convert(item) if convert else item
            else:
                raise ProtocolError(f"answer: the field {key} has another type than was expected")
        found = object.__new__(cls)
        vars(found).update(values)  # the constructor of a frozen dataclass sets each field by a call
        return found

    def encode(self) -> JSON:
        """Return the value as a JSON object, without what is zero or empty."""
        values: JSON = {}
        for name, key, _, _, convert in _plan(type(self)):
            value = getattr(self, name)
            if convert is from_text:
                value = to_text(value)
            elif convert is parse_bytes:
                value = base64.b64encode(value).decode()
            values[key] = value if key == name else millis(value)
        return without_zeros(**values)


D = TypeVar("D", bound=Data)


def parse_all(kind: type[D], items: object) -> list[D]:
    """Return the values of a list of JSON objects, which may be absent."""
    if not isinstance(items, list | None):
        raise ProtocolError("answer: not the list that was expected")
    return [kind.parse(each) for each in items or ()]


# How a type is read: its type in JSON, its zero value, and how it is converted.
_Reader = tuple[type[Any], Callable[[], Any], Callable[[Any], Any] | None]
_READERS: dict[Any, _Reader] = {
    str: (str, str, None),
    Any: (object, lambda: None, None),
    int: (int, int, None),
    bool: (bool, bool, None),
    float: (float, float, float),
    bytes: (str, bytes, parse_bytes),
    JSON: (dict, dict, None),
    Seconds: (float, float, lambda ms: ms / 1000),
    datetime: (str, lambda: None, parse_time),
    FumehoodError: (dict, lambda: None, from_json),
    Text: (object, str, from_text),
    tuple[Text, ...]: (list, tuple, lambda items: tuple(map(from_text, items))),
    tuple[str, ...]: (list, tuple, lambda items: tuple(map(str, items))),
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
        plan = [(name, name + "_ms" * (hints[name] == Seconds), *_reader(hints[name])) for name in names]
        _plans[kind] = plan
    return plan


def _reader(hint: Any) -> _Reader:
    if hint in _READERS:
        return _READERS[hint]
    if get_origin(hint) is Literal:
        return _READERS[str]
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        return list, tuple, lambda items: tuple(parse_all(item, items))
    if type(None) in get_args(hint):
        kind, _, convert = _reader(get_args(hint)[0])
        return kind, lambda: None, convert
    none = hint.parse({})  # it cannot be changed
    return dict, lambda: none, hint.parse


@dataclass(frozen=True)
class Output(Data):
    """The kept part of one stream: its end, up to the cap."""

    data: bytes = b""
    total: int = 0  # bytes that the program wrote

    @property
    def truncated(self) -> bool:
        """Whether the beginning was dropped because of the cap."""
        return self.total > len(self.data)

    @property
    def text(self) -> str:
        """The output as text. Invalid bytes become U+FFFD; a character that the cap cut in two is left out."""
        data = self.data
        if self.truncated:
            for _ in range(3):
                if not data or data[0] & 0xC0 != 0x80:
                    break
                data = data[1:]
        return data.decode("utf-8", "replace")

    def __bytes__(self) -> bytes:
        return self.data

    @classmethod
    def parse(cls, value: object) -> Output:
        if isinstance(value, dict) and "base64" not in value:
            text, total = value.get("text"), value.get("bytes")
            if text.__class__ is str and total.__class__ is int:
                return cls(text.encode("utf-8", "surrogatepass"), total)
        found = _Output.parse(value)
        return cls(found.base64 or found.text.encode("utf-8", "surrogatepass"), found.bytes)


@dataclass(frozen=True)
class _Output(Data):
    text: str
    base64: Bytes  # instead of text, if that is not UTF-8
    bytes: int


@dataclass(frozen=True)
class Usage(Data):
    """Resources that a command used, and events in its container while it ran."""

    user: Seconds = 0.0  # seconds of CPU time in user mode
    system: Seconds = 0.0  # the same, in the kernel
    max_rss: int = 0  # bytes
    memory_peak: int = 0  # bytes, of the container since it started
    oom_kills: int = 0
    pids_limits: int = 0


@dataclass(frozen=True)
class Ended(Data):
    """How a program ended. Its failure is a value, never an exception."""

    outcome: Outcome
    exit_code: int  # the program's own; 128+n for signal n; -1 if timed out, lost or above cpu_time
    signal: int = 0  # if the outcome is signaled
    reason: str = ""  # why the outcome is lost, that the caller killed it, or what the kernel killed for memory
    leaked: bool = False  # some of its processes may still run
    usage: Usage = field(default_factory=Usage)
    caused_inside: bool = False  # code in the sandbox caused the loss

    @property
    def success(self) -> bool:
        """Whether the program exited by itself with code 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether its timeout ended it, also if its outcome is "out-of-memory"."""
        return self.outcome == "timed-out" or (self.outcome == "out-of-memory" and self.exit_code == -1)


@dataclass(frozen=True)
class Result(Ended):
    """How a command ended."""

    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)  # empty with a terminal
    started: datetime | None = None
    duration: Seconds = 0.0


@dataclass(frozen=True)
class Written:
    """Output of a running program."""

    stream: StreamName
    data: bytes
    _text: str | None = field(default=None, kw_only=True, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The data as text. The texts of a stream, put together, are the program's text, wherever it was cut.

        So a character that the end of the data cuts in two is in the text of the stream's next output. Invalid bytes
        become U+FFFD. The last output of a stream can have text and no data: the U+FFFD of a character that never
        became whole.
        """
        return self.data.decode("utf-8", "replace") if self._text is None else self._text


class Decoders:
    """Decodes the output of a program, one stream at a time, into texts that can be put together."""

    def __init__(self) -> None:
        self._streams: dict[Any, codecs.IncrementalDecoder] = {}

    def decode(self, stream: Any, data: bytes, gap: bool = False) -> str:
        """Return the text of the next data of a stream. A gap is before it if output was skipped."""
        lost = self.end(stream) if gap else ""
        if stream not in self._streams:
            self._streams[stream] = codecs.getincrementaldecoder("utf-8")("replace")
        return lost + self._streams[stream].decode(data)

    def end(self, stream: Any) -> str:
        """Return the text of what is left of a stream: nothing, or U+FFFD for a part of a character."""
        decoder = self._streams.pop(stream, None)
        return decoder.decode(b"", True) if decoder else ""

    def rest(self) -> list[tuple[Any, str]]:
        """Return the streams that have ended within a character, each with the text for that part."""
        return [(stream, text) for stream in list(self._streams) if (text := self.end(stream))]


@dataclass(frozen=True)
class Chunk(Written):
    """Output of a running command. offset is its position in the stream; bytes before it may have been skipped."""

    offset: int = 0
    skipped: int = 0


@dataclass(frozen=True)
class End:
    """The end of a command, the last of its events."""

    result: Result


Event = Chunk | End


@dataclass(frozen=True)
class Port(Data):
    """A port of a service that is reachable from outside the sandbox. A host port of 0 in a request is any free one."""

    container: int
    host: int = 0
    protocol: str = "tcp"
    address: str = ""


@dataclass(frozen=True)
class Mount(Data):
    """A path of the server's machine to make visible in the sandbox. The server must allow it."""

    host: str
    container: str
    writable: bool = False


@dataclass(frozen=True)
class Limits(Data):
    """Limits of one service. 0 means the default, -1 no limit."""

    memory: int = 0  # bytes, including swap
    cpus: float = 0
    pids: int = 0
    disk: int = 0  # bytes that are written; only the native provider enforces it


@dataclass(frozen=True)
class Rlimits(Data):
    """Limits of the kernel for each process of a command. 0 sets none."""

    cpu: int = 0  # whole seconds
    file_size: int = 0  # bytes
    open_files: int = 0
    processes: int = 0


@dataclass(frozen=True)
class Compose(Data):
    """A Compose project: its text, or the paths of its files where the server allows them."""

    content: str = ""
    files: Sequence[str] = ()
    dockerfile: str = ""
    dir: str = ""
    profiles: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    service: str = ""
    egress: str = ""  # "internet" gives its networks access
    offline: bool = False  # rejects the project if a service could reach something outside its networks
    allow_read: Sequence[str] = ()  # paths outside its folder that it may read, and mount read-only
    allow_unsafe: bool = False  # allows, and logs, what breaks the isolation
    prebuilt: bool = False
    ready_timeout: Seconds = 0
    pull_timeout: Seconds = 0
    build_timeout: Seconds = 0


@dataclass(frozen=True)
class ServiceInfo(Data):
    """A service of a sandbox."""

    name: str
    container: str = ""
    image: str = ""
    user: str = ""
    dir: str = ""
    runtime: str = ""
    disk: int = 0  # the size of the writable layer in bytes; 0 is no limit
    disk_on: str = ""  # the file system that has it: "tmpfs" or "ext4"


@dataclass(frozen=True)
class SandboxInfo(Data):
    """A sandbox. The default service comes first."""

    id: str
    name: str
    provider: str = ""
    services: tuple[ServiceInfo, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False
    expires: datetime | None = None  # when a kept sandbox is removed
    unenforced: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConnectInfo(Data):
    """How a person connects to a running service."""

    container: str = ""
    shell: tuple[str, ...] = ()
    vscode: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class FileInfo(Data):
    """A file in a sandbox. path is set in a walk: relative to its root, "." for the root itself.

    Bytes of names that are not UTF-8 are lone surrogates, as those of os.listdir: os.fsencode returns them.
    """

    name: Text
    type: FileKind = "other"
    size: int = 0  # bytes; 0 if not a regular file
    mode: int = 0  # permission, set-id and sticky bits
    modified: datetime | None = None
    target: Text = ""  # of a symbolic link
    uid: int = 0
    gid: int = 0
    path: Text = ""
    error: FumehoodError | None = None  # in a walk: why it cannot be described or read

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.type == "directory"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.type == "file"


@dataclass(frozen=True)
class ProcessInfo(Data):
    """A command that was started."""

    id: str
    args: tuple[Text, ...] = ()
    started: datetime | None = None
    ended: bool = False


@dataclass(frozen=True)
class Line(Data):
    """A line of a stream of the server. type says what it holds."""

    type: str
    stream: StreamName = "stdout"
    data: bytes = b""
    offset: int = 0
    phase: Literal["setup", "command"] = "command"
    result: JSON = field(default_factory=dict)
    error: FumehoodError | None = None


@dataclass(frozen=True)
class Hello(Data):
    """What a server says about itself."""

    address: str = ""
    version: str = ""
    api: int = 0


@dataclass(frozen=True)
class Progress(Data):
    """A step in the pull or the build of an image."""

    image: str  # reference of the image, or name of the build
    status: str = ""
    layer: str = ""  # of a pull; empty for the image as a whole
    current: int = 0  # bytes of the layer
    total: int = 0  # bytes of the layer; 0 if unknown
    build: bool = False  # status is a step of a build that has begun


@dataclass(frozen=True)
class Prepared(Data):
    """The ids of images by service."""

    images: Mapping[str, str]


def millis(seconds: float) -> float:
    """Return seconds as the milliseconds of the server's JSON."""
    return seconds * 1000


def without_zeros(**given: Any) -> JSON:
    """Return the fields that are not zero, empty or None."""
    return {name: value for name, value in given.items() if value not in (None, "", b"", 0, (), [], {})}


def plain(value: Any) -> Any:
    """Return what stands in JSON for a value that JSON does not have."""
    if isinstance(value, Data):
        return value.encode()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, os.PathLike):
        return to_utf8(value, "request: a path")
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview)):
        return list(value)
    raise ConfigError(f"request: {type(value).__name__} in the place of a text, a number or a list")
