"""The journal of a sandbox: what was done in it, and how that ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ._errors import ConnectionLostError, FumehoodError, ProtocolError, from_json
from ._process import Lines
from ._types import JSON, Data, Outcome, Port, Seconds, Text, Usage


@dataclass(frozen=True)
class JournalEntry(Data):
    """An entry of a journal, and what all kinds of entries have in common. An unknown kind has no class of its own.

    number counts the entries of a journal from 1. Where numbers are missing at the beginning, entries were dropped.
    """

    number: int
    time: datetime | None = None
    kind: str = ""
    sandbox: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False  # a text or a list was shortened


@dataclass(frozen=True)
class JournalPhase(JournalEntry):
    """A phase of the sandbox has ended, such as "images", "start" or "close"."""

    phase: str = ""
    duration: Seconds = 0.0
    error: FumehoodError | None = None


@dataclass(frozen=True)
class JournalNetwork(JournalEntry):
    """What the sandbox can reach, and from where it can be reached."""

    network: str = ""
    egress: str = ""  # "none", "internet" or "unknown"
    subnets: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class JournalService(Data):
    """A service of a sandbox that has started."""

    name: str
    container: str = ""
    image: str = ""


@dataclass(frozen=True)
class JournalSandbox(JournalEntry):
    """The sandbox has started. Variables have names only."""

    provider: str = ""
    config_file: str = ""
    services: tuple[JournalService, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    kept: bool = False


@dataclass(frozen=True)
class JournalCommand(JournalEntry):
    """A command is about to start. Its JournalEnd has the same id."""

    id: int = 0
    service: str = ""
    user: Text = ""  # empty means the service's user
    dir: Text = ""
    args: tuple[Text, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    timeout: Seconds = 0.0
    cpu_time: Seconds = 0.0
    detached: bool = False
    via_engine: bool = False
    tty: bool = False


@dataclass(frozen=True)
class JournalEnd(JournalEntry):
    """How a command ended. error is set if that is not known, or if the command was not started."""

    id: int = 0
    service: str = ""
    outcome: Outcome | None = None
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    leaked: bool = False
    duration: Seconds = 0.0
    stdout_bytes: int = 0  # written by the command
    stderr_bytes: int = 0
    usage: Usage = field(default_factory=Usage)
    error: FumehoodError | None = None


@dataclass(frozen=True)
class JournalFile(JournalEntry):
    """A file operation, successful or not."""

    op: str = ""
    service: str = ""
    user: Text = ""
    path: Text = ""
    target: Text = ""
    bytes: int = 0  # of the content; of a folder, of its archive
    duration: Seconds = 0.0
    error: FumehoodError | None = None


@dataclass(frozen=True)
class JournalLost(JournalEntry):
    """Entries are missing here."""

    lines: int = 0


_KINDS: dict[str, type[JournalEntry]] = {
    "phase": JournalPhase,
    "network": JournalNetwork,
    "sandbox": JournalSandbox,
    "command": JournalCommand,
    "end": JournalEnd,
    "file": JournalFile,
    "lost": JournalLost,
}


def parse_entry(number: int, line: JSON) -> JournalEntry:
    """Return the entry of a line of a journal."""
    given: dict[str, Any] = {**line, "number": number}
    if "ms" in given:
        given["duration_ms"] = given.pop("ms")
    kind = given.get("kind")
    return _KINDS.get(kind if isinstance(kind, str) else "", JournalEntry).parse(given)


class AsyncJournal(Lines[JournalEntry]):
    """Iterates over the entries that a sandbox's journal has now."""

    _complete = False

    def parse(self, line: JSON) -> JournalEntry | None:
        """Return the entry of a line. The last line is none."""
        if line.get("type") == "error":
            raise from_json(line.get("error"))
        if line.get("type") == "end":
            self._complete = True
            return None
        number, entry = line.get("number"), line.get("entry")
        if not isinstance(number, int) or not isinstance(entry, dict):
            raise ProtocolError("journal: a line without an entry")
        return parse_entry(number, entry)

    async def fetch(self) -> JSON | None:
        """Return the next line, or None after the last one."""
        line = await super().fetch()
        if line is None and not self._complete:
            raise ConnectionLostError("journal: it ended before its last line")
        return line
