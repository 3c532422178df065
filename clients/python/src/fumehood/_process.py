"""Commands that run: their events, their input, their end."""

from __future__ import annotations

import abc
import contextlib
import time
import warnings
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ._calls import PATIENCE, Answer, Request, decode
from ._core import GONE, Core, Place
from ._errors import ConfigError, ConnectionLostError, ProtocolError, from_json
from ._files import content
from ._io import deadline_of
from ._types import JSON, Chunk, Decoders, End, Event, FileInfo, Line, ProcessInfo, Result
from ._values import Deadline, Duration, integer, whole

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")


class AsyncProcess:
    """A command that was started."""

    def __init__(self, sandbox: Place, info: ProcessInfo) -> None:
        self._core = sandbox.core
        self._at = sandbox.below("processes", info.id)
        self.info = info
        self.id = info.id  # the command's name in the server

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    async def wait(self, timeout: Duration | None = None) -> Result:
        """Wait for the command's end and return how it ended. After the timeout, in seconds, the command runs on."""
        return Result.parse(await self._core.json(self._at.request("GET", "result"), deadline_of(timeout)))

    def events(self, *, stdout: int = 0, stderr: int = 0) -> AsyncEvents:
        """Iterate over the command's output, from offsets in its streams on, and finally its end.

        While the iteration runs, the command waits for it rather than lose output. One that begins late gets what the
        result will keep, by default the last 10 MiB of each stream; Chunk.skipped counts what is missing. A connection
        that breaks is opened again where the iteration was. Leaving the iteration leaves the command.
        """
        return AsyncEvents(self, whole(stdout, "stdout"), whole(stderr, "stderr"))

    async def write(self, data: bytes | bytearray | memoryview | str) -> None:
        """Write to the command's standard input, which start has left open. After close_stdin it is a ConfigError."""
        request = self._at.request("POST", "stdin")
        request.body, request.content = content(data), "application/octet-stream"
        await self._core.call(request)

    async def close_stdin(self) -> None:
        """Close the command's standard input."""
        await self._core.call(self._at.request("DELETE", "stdin"))

    async def signal(self, signal: int) -> None:
        """Send a signal by its Linux number. It does nothing if the command has ended."""
        if not 1 <= integer(signal, "signal") <= 64:
            raise ConfigError(f"signal: {int(signal)} is not the number of a signal, from 1 to 64")
        await self._at.post("signal", {"signal": int(signal)})

    async def resize(self, rows: int, cols: int) -> None:
        """Set the size of the command's terminal in characters."""
        await self._at.post("resize", {"rows": integer(rows, "rows"), "cols": integer(cols, "cols")})

    async def kill(self) -> None:
        """Kill the command with all its descendants, and wait until they have ended."""
        await self._at.post("kill", {}, repeat=True)


class Lines(abc.ABC, Generic[T]):
    """Iterates over an answer, each line of which stands for an item. It is a context manager, too."""

    last: type[Any] | None = None  # the class of the last item; None if the last line has no class of its own
    resumes = False  # if its connection breaks, it is opened again
    _answer: Answer | None = None
    _later: Sequence[T] = ()  # items of lines that have been read
    _ended = False

    def __init__(self, core: Core, request: Request, deadline: Deadline | None = None) -> None:
        self._core = core
        self._request = request
        self._deadline = deadline

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        item = await self.next()
        if item is None:
            raise StopAsyncIteration
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @abc.abstractmethod
    def parse(self, line: JSON) -> T | None:
        """Return the item of a line, or None if it has none."""

    def request(self) -> Request:
        """Return the request of the lines that are still to come."""
        return self._request

    async def fetch(self) -> JSON | None:
        """Return the next line, or None after the last one."""
        failing = 0.0
        while True:
            try:
                if self._answer is None:
                    self._answer = await self._core.open(self.request(), self._deadline)
                line = await self._answer.line()
                if not line and self.last:
                    raise ConnectionLostError("stream: it ended before its last line")
                return decode(line) if line else None
            except ConnectionLostError:
                now = time.monotonic()
                failing = failing or now
                if not self.resumes or self._ended or now - failing > PATIENCE:
                    raise
                self._drop()
                await self._core.io.sleep(0.05)

    async def next(self) -> T | None:
        """Return the next item, or None after the last one."""
        try:
            while not self._ended:
                item: T | None
                if self._later:
                    item, *self._later = self._later
                elif (line := await self.fetch()) is None:
                    break
                elif line.get("type") == "error":
                    self._drop()
                    raise from_json(line.get("error"), own=self._core.server is not None)
                else:
                    item = self.parse(line)
                if self.last and isinstance(item, self.last):
                    self._ended = True
                    with contextlib.suppress(ConnectionLostError):  # its connection can be used again
                        await self._answer.read() if self._answer else None
                if item is not None:
                    return item
        except BaseException:
            await self.close()
            raise
        return None

    async def close(self) -> None:
        """End the iteration."""
        self._ended = True
        self._drop()

    def _drop(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()


class AsyncEvents(Lines[Event]):
    """Iterates over the events of a command."""

    last = End
    resumes = True

    def __init__(self, process: AsyncProcess, stdout: int = 0, stderr: int = 0) -> None:
        self._process = process
        self._offsets: dict[str, int] = {"stdout": stdout, "stderr": stderr}
        self._decoders = Decoders()
        super().__init__(process._core, self.request())

    def request(self) -> Request:
        """Return the request of the events that are still to come."""
        return self._process._at.request("GET", "events", **self._offsets)

    def parse(self, line: JSON) -> Event | None:
        """Return the event of a line. A heartbeat is none."""
        found = Line.parse(line)
        if found.type == "end":
            rest = [Chunk(of, b"", self._offsets[of], _text=text) for of, text in self._decoders.rest()]
            first, *self._later = [*rest, End(Result.parse(found.result))]
            return first
        if found.type != "output":
            return None
        if found.stream not in self._offsets:
            raise ProtocolError("event: an unknown stream")
        skipped = found.offset - self._offsets[found.stream]
        self._offsets[found.stream] = found.offset + len(found.data)
        text = self._decoders.decode(found.stream, found.data, skipped > 0)
        return Chunk(found.stream, found.data, found.offset, max(skipped, 0), _text=text)


class AsyncStream(AsyncEvents):
    """Runs a command and iterates over its events. Leaving it early kills the command."""

    _started: AsyncProcess | None = None

    def __init__(self, starting: Callable[[], Coroutine[Any, Any, AsyncProcess]]) -> None:
        self._starting = starting

    def __del__(self) -> None:
        process = self._started
        if process is not None and not self._ended and process._core.usable:
            message = f"unclosed stream of command {process.id}: it runs on"
            warnings.warn(message, ResourceWarning, stacklevel=2)

    async def fetch(self) -> JSON | None:
        """Return the next line. The first call starts the command."""
        if self._started is None:
            self._started = await self._starting()
            super().__init__(self._started)
        return await super().fetch()

    async def close(self) -> None:
        """Kill the command if it has not ended."""
        process, ended = self._started, self._ended
        await super().close()
        if process is not None and not ended:
            with contextlib.suppress(*GONE):
                await self._core.io.shielded(process.kill)


class AsyncWalk(Lines[FileInfo]):
    """Iterates over a tree of files."""

    def parse(self, line: JSON) -> FileInfo:
        """Return the file of a line."""
        info = FileInfo.parse(line)
        if info.error is not None and not info.path:
            raise info.error
        return info
