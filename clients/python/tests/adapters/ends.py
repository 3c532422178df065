"""The ends of commands that docs/frameworks.md lists, and sandboxes in which all commands end in one of these ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fumehood import (
    DirectoryNotFoundError,
    End,
    FumehoodError,
    InfrastructureError,
    LimitError,
    NotExecutableError,
    Output,
    ProgramNotFoundError,
    Result,
    UserNotFoundError,
)

PAGE = Path(__file__).parents[4] / "docs" / "frameworks.md"

ENDS: dict[str, Result | FumehoodError] = {
    "it exits with 3": Result("exited", 3),
    "signal 15 ends it": Result("signaled", 143, 15),
    "the kernel kills it for memory": Result("out-of-memory", 137),
    "its program is missing": ProgramNotFoundError("missing"),
    "its program is not executable": NotExecutableError("not executable"),
    "its working directory is missing": DirectoryNotFoundError("missing"),
    "its user is unknown": UserNotFoundError("unknown"),
    "no process is left for it": LimitError("the sandbox has no process left"),
    "code in the sandbox kills its supervisor": Result("lost", -1, reason="killed", caused_inside=True),
    "time limit": Result("timed-out", -1, stdout=Output(b"so far\n", 7)),
    "output limit": Result("exited", 0, stdout=Output(b"end\n", 1 << 30)),
    "lost": Result("lost", -1, reason="it was removed"),
    "failure": InfrastructureError("the server has ended"),
}


def _tables() -> Iterator[tuple[list[str], list[list[str]]]]:
    """Return the head and the rows of each table of the page."""
    for table in re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text("utf-8"), re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines())
        yield head, rows


def documented(framework: str) -> dict[str, str]:
    """Return what the page says of each end in a framework: an exit code, an error or a text."""
    (_, codes), (_, own), (head, other) = _tables()
    found = {end: code for end, code in codes}  # noqa: C416
    found |= {end: result for module, end, result in own if module == f"`{framework}`"}
    (row,) = (row for row in other if row[0] == f"`{framework}`")
    found |= dict(zip(head[1:], row[1:], strict=True))
    assert set(found) == set(ENDS)
    return found


def is_error(error: Exception, cell: str) -> bool:
    """Report whether a cell of the page names the class of an error, or one that it derives from."""
    return any(f"`{kind.__name__}`" in cell for kind in type(error).__mro__)


def outcome(end: str, op: str = "exec") -> Result:
    """Return how a command ends, or raise the error of one that does not, from a call that is named op."""
    given = ENDS[end]
    if isinstance(given, FumehoodError):
        raise type(given)(given.message, op=op)
    return given


class Ending:
    """A sandbox with one service, in which all commands end in one way. The methods are those of AsyncSandbox."""

    def __init__(self, end: str) -> None:
        self._end = end

    def service(self, name: str) -> Any:
        return self

    def as_user(self, user: str) -> Any:
        return self

    async def run(self, args: list[str], **options: Any) -> Result:
        return outcome(self._end)

    async def start(self, args: list[str], **options: Any) -> Any:
        outcome(self._end)
        return self

    def events(self) -> Any:
        return self

    async def next(self) -> End:
        return End(outcome(self._end))


class BlockingEnding:
    """The same as Ending, with the methods of Sandbox."""

    def __init__(self, end: str) -> None:
        self._end = end

    def run(self, args: list[str], **options: Any) -> Result:
        return outcome(self._end)

    def start(self, args: list[str], **options: Any) -> Any:
        outcome(self._end)
        return self

    def wait(self) -> Result:
        return outcome(self._end)
