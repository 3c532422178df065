"""Commands of exec_remote, which run without a program in the sandbox."""

from __future__ import annotations

import codecs
import contextlib
import itertools
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import anyio
from inspect_ai.util import (
    ExecCompleted,
    ExecOutput,
    ExecRemoteProcess,
    ExecStderr,
    ExecStdout,
    SandboxUnavailableError,
)

from .. import AsyncProcess, AsyncService, Chunk, Result
from .._adapter import GONE, missing, settle, translate

_numbers = itertools.count(1)


def available() -> AbstractContextManager[None]:
    """Raise the errors of a sandbox that is gone as the framework's own."""
    return translate(SandboxUnavailableError)


class RemoteProcess(ExecRemoteProcess):
    """A running command. Iterating over it yields its output and finally its end; a killed one has no end."""

    def __init__(self, process: AsyncProcess | None, stdin_open: bool) -> None:
        """Make the handle of a process. None stands for one that could not be started."""
        self._process = process
        self._stdin_open = stdin_open
        self._number = next(_numbers)
        self._events = process.events() if process else None
        self._queue: deque[ExecOutput] = deque()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._completed = process is None
        self._killed = False
        self._iterated = False

    @classmethod
    async def start(
        cls,
        service: AsyncService,
        cmd: list[str],
        stdin_open: bool,
        data: str | bytes | None,
        options: Mapping[str, Any],
    ) -> RemoteProcess:
        """Start a command."""
        if not stdin_open:
            options = {**options, "stdin": data}
        handle = cls(await service.start(cmd, stdin_open=stdin_open, **options), stdin_open)
        if stdin_open and data:
            await handle.write_stdin(data)
        return handle

    @classmethod
    def from_result(cls, result: Result) -> RemoteProcess:
        """Return a command that could not be started: as in a shell, it has written an error and ended."""
        handle = cls(None, False)
        handle._queue.extend((ExecStderr(result.stderr.text), ExecCompleted(result.exit_code)))
        return handle

    @property
    def pid(self) -> int:
        """A number that is unique among the commands of this process; it is not that of the kernel."""
        return self._number

    def __aiter__(self) -> RemoteProcess:
        if self._iterated:
            raise RuntimeError("ExecRemoteProcess can only be iterated once")
        self._iterated = True
        return self

    async def __anext__(self) -> ExecOutput:
        while not self._queue:
            if self._completed or self._killed or self._events is None:
                raise StopAsyncIteration
            try:
                await self._fetch()
            except anyio.get_cancelled_exc_class():
                with anyio.CancelScope(shield=True):
                    await self.kill()
                raise
        return self._queue.popleft()

    async def _fetch(self) -> None:
        """Queue what the next event consists of."""
        assert self._events
        with available():
            event = await self._events.next()
        if isinstance(event, Chunk):
            if event.skipped:
                self._add(event.stream, missing(event.skipped))
            self._add(event.stream, self._decoders[event.stream].decode(event.data))
            return
        for stream, decoder in self._decoders.items():
            self._add(stream, decoder.decode(b"", final=True))
        self._completed = True
        if event is None or self._killed:
            return
        with available():
            self._queue.append(ExecCompleted(settle(event.result).exit_code))

    def _add(self, stream: str, text: str) -> None:
        if text:
            self._queue.append(ExecStdout(text) if stream == "stdout" else ExecStderr(text))

    def _opened(self, call: str) -> AsyncProcess:
        if not self._stdin_open or self._process is None:
            raise RuntimeError(f"{call}() requires stdin_open=True in ExecRemoteStreamingOptions")
        return self._process

    async def write_stdin(self, data: str | bytes) -> None:
        """Write to the command's standard input."""
        process = self._opened("write_stdin")
        if self._completed or self._killed:
            raise RuntimeError("Cannot write to stdin: process has terminated")
        await process.write(data)

    async def close_stdin(self) -> None:
        """Close the command's standard input. It may be called again."""
        process = self._opened("close_stdin")
        if not (self._completed or self._killed):
            await process.close_stdin()

    async def kill(self) -> None:
        """Kill the command with all its descendants. It does nothing if the command has ended."""
        if self._process is None or self._completed or self._killed:
            return
        self._killed = True
        with contextlib.suppress(*GONE):  # with its sandbox
            await self._process.kill()


def route(proxy: Any, own: Any) -> None:
    """Let a proxy that inspect_ai puts before sandboxes use the exec_remote of sandboxes of a class.

    It has none itself, so that the sandbox's would never be called.
    """
    if "exec_remote" in vars(proxy):
        return
    inherited = proxy.exec_remote

    async def exec_remote(self: Any, *args: Any, **options: Any) -> Any:
        target = getattr(self, "_sandbox", None)
        return await (target.exec_remote if isinstance(target, own) else partial(inherited, self))(*args, **options)

    proxy.exec_remote = exec_remote
