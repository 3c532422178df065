"""What requests and answers consist of: plain data, with the names of the server's JSON. Times are in seconds."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ._errors import FumehoodError, ProtocolError, from_json

if TYPE_CHECKING:
    from typing_extensions import Self

JSON = dict[str, Any]
Outcome = Literal["exited", "signaled", "timed-out", "out-of-memory", "lost"]
FileKind = Literal["file", "directory", "symlink", "pipe", "socket", "device", "other"]
Cores = float
StreamName = Literal["stdout", "stderr"]

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


def parse_time(text: str) -> datetime | None:
    """Parse a time as Go writes it. None stands for no time."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    zone = "+00:00" if match[3] == "Z" else match[3]
    try:
        whole = datetime.fromisoformat(match[1] + zone)
    except ValueError:
        return None
    if whole.year == 1:
        return None  # Go's zero value
    return whole + timedelta(microseconds=int((match[2] or "0").ljust(9, "0")[:6]))


class Fields:
    """The fields of a JSON object from the server, by type. A field that is absent has the zero value."""

    __slots__ = ("_all",)

    def __init__(self, value: object) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ProtocolError("answer: not the JSON object that was expected")
        self._all: JSON = value

    @property
    def raw(self) -> JSON:
        """The object itself."""
        return self._all

    def _of(self, name: str, kind: type | tuple[type, ...], zero: Any) -> Any:
        value = self._all.get(name)
        if value is None:
            return zero
        if not isinstance(value, kind):
            raise ProtocolError(f"answer: the field {name} has another type than was expected")
        return value

    def text(self, name: str) -> str:
        return str(self._of(name, str, ""))

    def integer(self, name: str, zero: int = 0) -> int:
        return int(self._of(name, int, zero))

    def number(self, name: str) -> float:
        return float(self._of(name, (int, float), 0.0))

    def seconds(self, name: str) -> float:
        """Return a number of milliseconds in seconds."""
        return self.number(name) / 1000

    def flag(self, name: str) -> bool:
        return bool(self._of(name, bool, False))

    def time(self, name: str) -> datetime | None:
        return parse_time(self.text(name))

    def items(self, name: str) -> list[Any]:
        found: list[Any] = self._of(name, list, [])
        return found

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(str(item) for item in self.items(name))

    def object(self, name: str) -> Fields:
        return Fields(self._all.get(name))

    def mapping(self, name: str) -> dict[str, str]:
        found: JSON = self._of(name, dict, {})
        return {key: str(value) for key, value in found.items()}

    def has(self, name: str) -> bool:
        return self._all.get(name) is not None

    def data(self, name: str) -> bytes:
        try:
            return base64.b64decode(self.text(name), validate=True)
        except ValueError as e:
            raise ProtocolError(f"answer: the field {name} is not base64") from e


D = TypeVar("D", bound="Data")


class Data:
    """Plain data that the server's JSON describes with the same names.

    A float is a time in seconds, which JSON has in milliseconds, in a field with the suffix "_ms".
    """

    @classmethod
    def parse(cls, f: Fields) -> Self:
        """Return the value of a JSON object."""
        return cls(**{name: read(f, key) for name, key, read in _plan(cls)})

    def encode(self) -> JSON:
        """Return the value as a JSON object, without what is zero or empty."""
        found: JSON = {}
        for name, key, _ in _plan(type(self)):
            value = getattr(self, name)
            if value not in (None, "", 0, (), [], {}):
                found[key] = millis(value) if key != name else dict(value) if isinstance(value, Mapping) else value
        return found


Plan = list[tuple[str, str, Callable[[Fields, str], Any]]]
_plans: dict[str, Plan] = {}


def _plan(kind: type[Any]) -> Plan:
    """Return the fields of a dataclass: their names, their names in JSON, and how each is read."""
    plan = _plans.get(kind.__name__)
    if plan is None:
        plan = [(f.name, f"{f.name}_ms" if f.type == "float" else f.name, _reader(str(f.type))) for f in fields(kind)]
        _plans[kind.__name__] = plan
    return plan


def _reader(kind: str) -> Callable[[Fields, str], Any]:
    if kind in _READERS:
        return _READERS[kind]
    item = globals()[kind.removeprefix("tuple[").removesuffix(", ...]")]

    def read(f: Fields, key: str) -> Any:
        return item.parse(f.object(key))

    def read_all(f: Fields, key: str) -> Any:
        return tuple(item.parse(Fields(each)) for each in f.items(key))

    return read_all if kind.startswith("tuple[") else read


_READERS: dict[str, Callable[[Fields, str], Any]] = {
    "str": Fields.text,
    "Outcome": Fields.text,
    "FileKind": Fields.text,
    "int": Fields.integer,
    "bool": Fields.flag,
    "float": Fields.seconds,
    "Cores": Fields.number,
    "datetime | None": Fields.time,
    "FumehoodError | None": lambda f, key: from_json(f.object(key).raw) if f.has(key) else None,
    "tuple[str, ...]": Fields.texts,
    "Sequence[str]": Fields.texts,
    "Mapping[str, str]": Fields.mapping,
}


@dataclass(frozen=True)
class Output:
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
    def parse(cls, f: Fields) -> Output:
        data = f.data("base64") if f.has("base64") else f.text("text").encode("utf-8", "surrogatepass")
        return cls(data, f.integer("bytes"))


@dataclass(frozen=True)
class Usage(Data):
    """Resources that a command used, and events in its container while it ran."""

    user: float = 0.0  # seconds of CPU time in user mode
    system: float = 0.0  # the same, in the kernel
    max_rss: int = 0  # bytes
    memory_peak: int = 0  # bytes, of the container since it started
    oom_kills: int = 0
    pids_limits: int = 0


@dataclass(frozen=True)
class Result(Data):
    """How a command ended. A program's failure is a value, never an exception."""

    outcome: Outcome
    exit_code: int  # the program's own; 128+n for signal n; -1 if timed out or lost
    signal: int = 0  # if the outcome is signaled
    stdout: Output = field(default_factory=Output)
    stderr: Output = field(default_factory=Output)  # empty with a terminal
    started: datetime | None = None
    duration: float = 0.0
    reason: str = ""  # why the outcome is lost, or that the caller killed it
    caused_inside: bool = False  # code in the sandbox caused the loss
    usage: Usage = field(default_factory=Usage)
    leaked: bool = False  # some of its processes may still run

    @property
    def success(self) -> bool:
        """Whether the program exited by itself with code 0."""
        return self.outcome == "exited" and self.exit_code == 0

    @property
    def timed_out(self) -> bool:
        """Whether the command's timeout ended it."""
        return self.outcome == "timed-out"


@dataclass(frozen=True)
class Chunk:
    """Output of a running command. offset is its position in the stream; bytes before it may have been skipped."""

    stream: StreamName
    data: bytes
    offset: int = 0
    skipped: int = 0

    @property
    def text(self) -> str:
        """The data as text; a character may be cut in two by its ends."""
        return self.data.decode("utf-8", "replace")


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
    cpus: Cores = 0
    pids: int = 0


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
    prebuilt: bool = False
    ready_timeout: float = 0
    pull_timeout: float = 0
    build_timeout: float = 0


@dataclass(frozen=True)
class ServiceInfo(Data):
    """A service of a sandbox."""

    name: str
    container: str = ""
    image: str = ""
    user: str = ""
    dir: str = ""
    runtime: str = ""


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
    """A file in a sandbox. path is set in a walk: relative to its root, "." for the root itself."""

    name: str
    type: FileKind = "other"
    size: int = 0  # bytes; 0 if not a regular file
    mode: int = 0  # permission, set-id and sticky bits
    modified: datetime | None = None
    target: str = ""  # of a symbolic link
    uid: int = 0
    gid: int = 0
    path: str = ""
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
    args: tuple[str, ...] = ()
    started: datetime | None = None
    ended: bool = False


def millis(seconds: float) -> float:
    """Return seconds as the milliseconds of the server's JSON."""
    return seconds * 1000


def without_zeros(**given: Any) -> JSON:
    """Return the fields that are not zero, empty or None."""
    return {name: value for name, value in given.items() if value not in (None, "", 0, False, [], {})}
