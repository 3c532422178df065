"""I/O on the event loop of asyncio, and the choice of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

from ._errors import ConfigError
from ._io import IO, Stop, Work, expired, remaining

T = TypeVar("T")


class AsyncioIO(IO):
    """I/O on a running event loop of asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def _running(self) -> asyncio.AbstractEventLoop:
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError("client: used in another event loop", hint="create an AsyncClient in each loop")
        return self._loop

    async def ready(self, sock: socket.socket, writing: bool, deadline: float | None) -> None:
        loop, limit = self._running(), remaining(deadline)
        waiter: asyncio.Future[bool] = loop.create_future()
        watch, unwatch = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        watch(sock, _wake, waiter, True)
        timer = None if limit is None else loop.call_later(limit, _wake, waiter, False)
        try:
            if not await waiter:
                raise expired()
        finally:
            unwatch(sock)
            if timer:
                timer.cancel()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        return await self._running().run_in_executor(None, work)

    def _run(self, work: Work) -> asyncio.Task[None]:
        task = self._running().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def spawn(self, work: Work) -> Stop:
        task = self._run(work)

        async def stop() -> None:
            task.cancel()
            if task is not asyncio.current_task():
                await asyncio.wait({task}, timeout=1)

        return stop

    async def shielded(self, work: Work) -> None:
        await asyncio.shield(self._run(work))


def _wake(waiter: asyncio.Future[bool], ready: bool) -> None:
    if not waiter.done():
        waiter.set_result(ready)


def running_io() -> IO:
    """Return the I/O of the framework whose event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        try:
            from ._trio import TrioIO
        except ImportError as e:
            raise ConfigError("async client: no event loop of asyncio or trio runs here") from e
        return TrioIO()
    return AsyncioIO()
