"""What the adapters of frameworks make of the end of a command, and their clients of event loops."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from ._aio import running_io
from ._client import AsyncClient, Client
from ._core import GONE as GONE
from ._errors import BrokenError, FumehoodError, LimitError, NotStartedError, TooLargeError, UnavailableError
from ._files import writing
from ._service import AsyncService
from ._types import Ended, Output, Result

E = TypeVar("E", bound=Ended)
T = TypeVar("T")

# The server of an adapter serves only this process, which may read what its user may. What a sandbox may read, and
# whether it reaches anything, is decided for each one by its settings.
FLAGS = ("--allow-egress", "--allow-host-path", "/", "--max-body", "1GiB")


def start_failure(error: FumehoodError, *own: type[FumehoodError], op: str = "exec") -> Result:
    """Return the result that a shell has for a program that does not start: 127 or 126, with the error on stderr.

    It is also that of a command for which code in the sandbox leaves no process, such as a fork bomb, or no sandbox: it
    must not get another try by that. Any other error of op is raised, and so is one of the classes in own.
    """
    limited = isinstance(error, LimitError) and error.op == op and not isinstance(error, TooLargeError)
    if isinstance(error, own) or not (limited or isinstance(error, (NotStartedError, BrokenError))):
        raise error
    text = f"{error}\n".encode()
    code = 127 if isinstance(error, FileNotFoundError) else 126
    return Result("exited", code, stderr=Output(text, len(text)))


def settle(result: E) -> E:
    """Return how a command ended. One whose supervisor code in the sandbox killed counts as killed, too.

    A command that was lost with its sandbox is an UnavailableError: nobody knows how it would have ended.
    """
    if result.outcome != "lost":
        return result
    if not result.caused_inside:
        raise UnavailableError(f"the sandbox ended while the command ran: {result.reason}", op="exec")
    return replace(result, exit_code=137)


async def ended(call: Awaitable[T], *own: type[FumehoodError]) -> T | Result:
    """Return how the command of a call ended, as all adapters have it, or the process that it started.

    A command that did not start has the result of start_failure, except for the classes of errors that the framework
    has its own for. What the framework makes of a time limit and of output that was cut is left to the adapter.
    """
    try:
        found: Any = await call
        if isinstance(found, Ended):
            found = settle(found)
    except FumehoodError as e:
        return start_failure(e, *own)
    return found  # type: ignore[no-any-return]


def ended_blocking(call: Callable[[], Result], *own: type[FumehoodError]) -> Result:
    """Return how the command of a call ended, as ended does for a coroutine."""
    try:
        return settle(call())
    except FumehoodError as e:
        return start_failure(e, *own)


@contextlib.contextmanager
def translate(framework: Callable[[str], Exception]) -> Iterator[None]:
    """Raise the errors of a sandbox that is gone as the framework's own."""
    try:
        yield
    except GONE as e:
        raise framework(f"fumehood: {e}") from e


def explain(error: FumehoodError, settings: Mapping[str, str], where: str) -> str:
    """Return an error's text, with the settings that allow what was refused.

    What the adapter's server refuses has a flag; its hint is for those who start the client themselves. What sandboxes
    may not have is named in the advice for the command line.
    """
    text = error.message if error.flag else str(error)
    names = [name for advice, name in settings.items() if advice in text or advice == f"--{error.flag}"]
    return f"{text}\n{where} it: {', '.join(names)}" if names else text


def missing(count: int, why: str = "they were read too late") -> str:
    """Return the line that stands where bytes of output are missing: frameworks have no other place to say so."""
    return f"\n[{count} bytes of output are missing: {why}]\n"


def mark_missing(output: Output) -> bytes:
    """Return output, with a line at its beginning if that was dropped."""
    lost = output.total - len(output.data)
    return missing(lost, "more than is kept").lstrip().encode() + output.data if lost > 0 else output.data


async def upload_file(to: AsyncService, source: Path, path: str, *, mode: int = 0) -> None:
    """Write a file from a path of this machine. A folder there is an IsADirectoryError."""
    with source.open("rb") as file:
        await to.upload(file, path, mode=mode)


async def download_file(of: AsyncService, path: str, target: Path, *, max_bytes: int = 0) -> None:
    """Read a file into a path of this machine, where it appears when it is complete.

    A folder that code in the sandbox has put in its place is an IsDirectoryError. AsyncService.download would copy it.
    """
    with writing(target) as file:
        await of.download(path, file, max_bytes=max_bytes)


class Clients:
    """The clients of one event loop, by the flags of their servers. users counts those who share them."""

    def __init__(self, flags: Sequence[str] = FLAGS) -> None:
        self.users = 0
        self.clients: dict[tuple[str, ...], AsyncClient] = {}
        self._flags = flags

    def client(self, *flags: str) -> AsyncClient:
        """Return the client whose server has some more flags. It starts the server when it is first used."""
        if flags not in self.clients:
            self.clients[flags] = AsyncClient(arguments=[*self._flags, *flags])
        return self.clients[flags]

    async def close(self) -> None:
        """End the servers, with all sandboxes that are not kept, also if the task is canceled meanwhile."""
        clients, self.clients = self.clients, {}

        async def end() -> None:
            for client in clients.values():
                await client.close()

        await running_io().shielded(end)


class Shared:
    """A client that all threads of this process share, with its server. Both end with the last user."""

    def __init__(self, flags: Sequence[str] = FLAGS) -> None:
        self._flags = flags
        self._users = 0
        self._client: Client | None = None
        self._lock = threading.RLock()  # a finalizer that releases may run where a thread acquires

    def acquire(self) -> Client:
        """Return the client. It starts the server when it is first used. Each call needs one of release."""
        with self._lock:
            self._users += 1
            self._client = self._client or Client(arguments=self._flags)
            return self._client

    def release(self) -> None:
        """End the client, with all its sandboxes, if nobody else uses it."""
        with self._lock:
            self._users -= 1
            client, self._client = (None, self._client) if self._users else (self._client, None)
        if client is not None:
            client.close()


class Loops(Generic[T]):
    """A value for each event loop of asyncio or trio, which is made when it is first needed."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[Any, T] = WeakKeyDictionary()

    def running(self) -> T:
        """Return the value of the event loop that runs here, and drop those of loops that have ended.

        Clients refer to their loop of asyncio, so that they would stay. Their servers end when they are dropped.
        """
        for loop in [each for each in self._values if getattr(each, "is_closed", bool)()]:
            del self._values[loop]
        loop = running_loop()
        if loop not in self._values:
            self._values[loop] = self._make()
        return self._values[loop]


def running_loop() -> Any:
    """Return the event loop of asyncio that runs here, or what trio knows its own by."""
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    import trio

    return trio.lowlevel.current_trio_token()
