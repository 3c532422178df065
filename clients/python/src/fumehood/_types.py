"""What requests and answers consist of: plain data, with the names of the server's JSON. Times are in seconds."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._data import Data as Data
from ._data import Given, GivenLimit, GivenSeconds, GivenSize, GivenText, GivenTexts, GivenWhole, Shown, brief
from ._data import Seconds as Seconds
from ._data import Text as Text
from ._data import parse_all as parse_all
from ._data import plain as plain
from ._errors import FumehoodError
from ._values import JSON as JSON
from ._values import AnyText as AnyText
from ._values import Variables as Variables
from ._values import from_text as from_text
from ._values import millis as millis
from ._values import parse_bytes as parse_bytes
from ._values import parse_time as parse_time
from ._values import to_bytes as to_bytes
from ._values import to_path as to_path
from ._values import to_text as to_text
from ._values import to_utf8 as to_utf8
from ._values import to_variables as to_variables
from ._values import without_zeros as without_zeros

Outcome = Literal["exited", "signaled", "timed-out", "cpu-time-exceeded", "out-of-memory", "lost"]
FileKind = Literal["file", "directory", "symlink", "pipe", "socket", "device", "other"]
Bytes = bytes
StreamName = Literal["stdout", "stderr"]


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

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<{self.total} bytes{', of which the end is kept' * self.truncated}: {brief(self.data)}>"

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
class Written(Shown):
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
class End(Shown):
    """The end of a command, the last of its events."""

    result: Result


Event = Chunk | End


@dataclass(frozen=True)
class Port(Given):
    """A port of a service that is reachable from outside the sandbox. A host port of 0 in a request is any free one."""

    container: int
    host: int = 0
    protocol: str = "tcp"
    address: str = ""


@dataclass(frozen=True)
class Mount(Given):
    """A path of the server's machine to make visible in the sandbox. The server must allow it."""

    host: GivenText
    container: GivenText
    writable: bool = False


@dataclass(frozen=True)
class Limits(Given):
    """Limits of one service. 0 means the default, -1 no limit. Sizes may be texts, such as "512MiB" or "none"."""

    memory: GivenLimit = 0  # bytes, including swap
    cpus: float = 0
    pids: int = 0  # processes and threads; 48 or more
    disk: GivenLimit = 0  # bytes that are written; only the native provider enforces it


@dataclass(frozen=True)
class Rlimits(Given):
    """Limits of the kernel for each process of a command. 0 sets none. Texts may be given, such as "10s" and "1GiB"."""

    cpu: GivenWhole = 0  # whole seconds
    file_size: GivenSize = 0  # bytes
    open_files: int = 0
    processes: int = 0


@dataclass(frozen=True)
class Compose(Given):
    """A Compose project: its text, or the paths of its files where the server allows them."""

    content: str = ""
    files: GivenTexts = ()
    dockerfile: GivenText = ""
    dir: GivenText = ""
    profiles: GivenTexts = ()
    env: Mapping[str, str] = field(default_factory=dict)
    service: str = ""
    egress: str = ""  # "internet" gives its networks access
    offline: bool = False  # rejects the project if a service could reach something outside its networks
    allow_read: GivenTexts = ()  # paths outside its folder that it may read, and mount read-only
    allow_unsafe: bool = False  # allows, and logs, what breaks the isolation
    prebuilt: bool = False
    ready_timeout: GivenSeconds = 0
    pull_timeout: GivenSeconds = 0
    build_timeout: GivenSeconds = 0


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
    expires: datetime | None = None  # after this, a cleanup removes a kept sandbox
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
