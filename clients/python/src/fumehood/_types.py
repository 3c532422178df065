"""What requests and answers consist of: plain data, with the names of the server's JSON. Times are in seconds."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from ._errors import ProtocolError

JSON = dict[str, Any]
Outcome = Literal["exited", "signaled", "timed-out", "out-of-memory", "lost"]
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
class Usage:
    """Resources that a command used, and events in its container while it ran."""

    user: float = 0.0  # seconds of CPU time in user mode
    system: float = 0.0  # the same, in the kernel
    max_rss: int = 0  # bytes
    memory_peak: int = 0  # bytes, of the container since it started
    oom_kills: int = 0
    pids_limits: int = 0

    @classmethod
    def parse(cls, f: Fields) -> Usage:
        return cls(
            f.seconds("user_ms"),
            f.seconds("system_ms"),
            f.integer("max_rss"),
            f.integer("memory_peak"),
            f.integer("oom_kills"),
            f.integer("pids_limits"),
        )


@dataclass(frozen=True)
class Result:
    """How a command ended. A program's failure is a value, never an exception, unless check is called."""

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

    @classmethod
    def parse(cls, f: Fields) -> Result:
        return cls(
            f.text("outcome"),  # type: ignore[arg-type]  # an outcome of a later server is passed on
            f.integer("exit_code"),
            f.integer("signal"),
            Output.parse(f.object("stdout")),
            Output.parse(f.object("stderr")),
            f.time("started"),
            f.seconds("duration_ms"),
            f.text("reason"),
            f.flag("caused_inside"),
            Usage.parse(f.object("usage")),
            f.flag("leaked"),
        )


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
class Port:
    """A port of a service that is reachable from outside the sandbox. A host port of 0 in a request is any free one."""

    container: int
    host: int = 0
    protocol: str = "tcp"
    address: str = ""

    @classmethod
    def parse(cls, f: Fields) -> Port:
        return cls(f.integer("container"), f.integer("host"), f.text("protocol") or "tcp", f.text("address"))

    def encode(self) -> JSON:
        return without_zeros(host=self.host, container=self.container, protocol=self.protocol, address=self.address)


@dataclass(frozen=True)
class Mount:
    """A path of the server's machine to make visible in the sandbox. The server must allow it."""

    host: str
    container: str
    writable: bool = False

    def encode(self) -> JSON:
        return without_zeros(host=self.host, container=self.container, writable=self.writable)


@dataclass(frozen=True)
class Limits:
    """Limits of one service. 0 means the default, -1 no limit."""

    memory: int = 0  # bytes, including swap
    cpus: float = 0
    pids: int = 0

    def encode(self) -> JSON:
        return without_zeros(memory=self.memory, cpus=self.cpus, pids=self.pids)


@dataclass(frozen=True)
class Rlimits:
    """Limits of the kernel for each process of a command. 0 sets none."""

    cpu: int = 0  # whole seconds
    file_size: int = 0  # bytes
    open_files: int = 0
    processes: int = 0


@dataclass(frozen=True)
class Compose:
    """A Compose project: its text, or the paths of its files where the server allows them."""

    content: str = ""
    files: Sequence[str] = ()
    dockerfile: str = ""
    dir: str = ""
    profiles: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    service: str = ""
    egress: Literal["", "internet"] = ""
    prebuilt: bool = False
    ready_timeout: float = 0
    pull_timeout: float = 0
    build_timeout: float = 0

    def encode(self) -> JSON:
        return without_zeros(
            content=self.content,
            files=list(self.files),
            dockerfile=self.dockerfile,
            dir=self.dir,
            profiles=list(self.profiles),
            env=dict(self.env),
            service=self.service,
            egress=self.egress,
            prebuilt=self.prebuilt,
            ready_timeout_ms=millis(self.ready_timeout),
            pull_timeout_ms=millis(self.pull_timeout),
            build_timeout_ms=millis(self.build_timeout),
        )


@dataclass(frozen=True)
class ServiceInfo:
    """A service of a sandbox."""

    name: str
    container: str = ""
    image: str = ""
    user: str = ""
    dir: str = ""
    runtime: str = ""

    @classmethod
    def parse(cls, f: Fields) -> ServiceInfo:
        return cls(*(f.text(name) for name in ("name", "container", "image", "user", "dir", "runtime")))


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox. The default service comes first."""

    id: str
    name: str
    provider: str = ""
    services: tuple[ServiceInfo, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False
    unenforced: tuple[str, ...] = ()

    @classmethod
    def parse(cls, f: Fields) -> SandboxInfo:
        return cls(
            f.text("id") or f.text("name"),
            f.text("name"),
            f.text("provider"),
            tuple(ServiceInfo.parse(Fields(s)) for s in f.items("services")),
            f.mapping("labels"),
            f.flag("kept"),
            f.texts("unenforced"),
        )


@dataclass(frozen=True)
class ConnectInfo:
    """How a person connects to a running service."""

    container: str = ""
    shell: tuple[str, ...] = ()
    vscode: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()

    @classmethod
    def parse(cls, f: Fields) -> ConnectInfo:
        ports = tuple(Port.parse(Fields(p)) for p in f.items("ports"))
        return cls(f.text("container"), f.texts("shell"), f.texts("vscode"), ports)


@dataclass(frozen=True)
class FileInfo:
    """A file in a sandbox. path is set in a walk: relative to its root, "." for the root itself."""

    name: str
    kind: Literal["file", "directory", "symlink", "pipe", "socket", "device", "other"]
    size: int = 0  # bytes; 0 if not a regular file
    mode: int = 0  # permission, set-id and sticky bits
    modified: datetime | None = None
    target: str = ""  # of a symbolic link
    uid: int = -1
    gid: int = -1
    path: str = ""

    @property
    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.kind == "directory"

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return self.kind == "file"

    @classmethod
    def parse(cls, f: Fields) -> FileInfo:
        return cls(
            f.text("name"),
            f.text("type"),  # type: ignore[arg-type]
            f.integer("size"),
            f.integer("mode"),
            f.time("mod_time"),
            f.text("link_target"),
            f.integer("uid", -1),
            f.integer("gid", -1),
            f.text("path"),
        )


@dataclass(frozen=True)
class ProcessInfo:
    """A command that was started."""

    id: str
    args: tuple[str, ...] = ()
    started: datetime | None = None
    ended: bool = False

    @classmethod
    def parse(cls, f: Fields) -> ProcessInfo:
        return cls(f.text("id"), f.texts("args"), f.time("started"), f.flag("ended"))


def millis(seconds: float) -> float:
    """Return seconds as the milliseconds of the server's JSON."""
    return seconds * 1000


def without_zeros(**fields: Any) -> JSON:
    """Return the fields that are not zero, empty or None."""
    return {name: value for name, value in fields.items() if value not in (None, "", 0, False, [], {})}
