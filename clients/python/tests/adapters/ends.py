"""The ends of commands that docs/frameworks.md lists.

There are sandboxes in which all commands end in one of these ways, and what causes the ends in a real one.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood import (
    BrokenError,
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
from tests.real import BOMB, WAITS, containers, kill, wait_for

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
    "code in the sandbox has ended it": BrokenError("the out-of-memory killer killed its first process"),
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
    assert found.pop("canceled") == "killed"
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


# What causes an end in a real sandbox. The first program of each is one that can be run without a shell, too.
SLEEP = "echo so far; sleep 600; : {}"
REAL = {
    "it exits with 3": ["sh", "-c", "exit 3"],
    "signal 15 ends it": ["sh", "-c", "kill -15 $$"],
    "the kernel kills it for memory": ["python3", "-c", "x = bytearray(1 << 30)"],
    "its program is missing": ["no-such-program"],
    "its program is not executable": ["/etc/passwd"],
    "its working directory is missing": ["true"],
    "no process is left for it": ["true"],
    "code in the sandbox kills its supervisor": ["sh", "-c", "kill -9 -1"],
    "time limit": ["sh", "-c", SLEEP],
    "output limit": ["sh", "-c", "head -c 70000000 /dev/zero | tr '\\0' x"],
    "lost": ["sh", "-c", SLEEP],
    "canceled": ["sh", "-c", SLEEP],
}
PIDS, MEMORY = 64, 256 << 20  # limits of the sandbox: processes and bytes


@dataclass
class Driver:
    """How a test runs commands with an adapter, in a sandbox whose working directory is /work.

    run takes arguments and a time limit in seconds, and returns an end in the words of the page, or raises what the
    adapter raises. Canceling it is the framework's cancellation.
    """

    framework: str
    sandbox: str  # its name
    run: Callable[[list[str], float | None], Awaitable[str]]

    async def check(self, end: str) -> None:
        """Cause an end, and fail if the adapter does not make of it what the page says."""
        token = f"{self.sandbox}-{os.urandom(4).hex()}"
        args = [each.replace("{}", token) for each in REAL[end]]
        running = asyncio.ensure_future(self._cause(end, args))
        if end in ("lost", "canceled"):
            await until(lambda: processes(token))
            if end == "canceled":
                running.cancel()
            else:
                kill(self.sandbox)
        try:
            # Without a process left, bash tries each fork again for half a minute.
            found = await asyncio.wait_for(asyncio.shield(running), 9 * WAITS)
        except asyncio.CancelledError:
            assert end == "canceled"
        except Exception as e:  # noqa: BLE001  # its class is what is tested
            assert is_error(e, documented(self.framework)[end]), repr(e)
        else:
            assert found == documented(self.framework)[end], end
        await until(lambda: not processes(token))

    async def _cause(self, end: str, args: list[str]) -> str:
        if end == "its working directory is missing":
            assert await self.run(["rm", "-r", "/work"], None) == "0"
        if end == "no process is left for it":
            await self.run(["sh", "-c", f"python3 -c '{BOMB}' </dev/null >/dev/null 2>&1 &"], None)
            for _ in range(1000):
                if await self.run(args, None) == "126":
                    break
        return await self.run(args, 1 if end == "time limit" else None)


def processes(token: str) -> list[str]:
    """Return the processes of this machine, also those in sandboxes, that have a text among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found


async def until(happens: Callable[[], object]) -> None:
    """Wait until something happens, and fail if it does not."""
    deadline = time.monotonic() + WAITS
    while not happens():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


def check_killed(program: str) -> None:
    """Check that a process which is killed while a command runs leaves no container.

    The program prints "started" and the sandbox's name once the command runs.
    """
    command, env = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        try:
            name = next(line.split()[1] for line in running.stdout if line.startswith("started "))  # after the log
            assert len(containers(name)) == 1
        finally:
            running.kill()
        killed = time.monotonic()
    assert wait_for(lambda: not containers(name))
    assert time.monotonic() - killed < 10
