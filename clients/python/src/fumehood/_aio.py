"""I/O on the event loop of asyncio, and the choice of the event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TypeVar

from ._errors import ConfigError
from ._io import IO, Stop, Work, expired, remaining
from ._values import Deadline

T = TypeVar("T")


class AsyncioIO(IO):
    """I/O on a running event loop of asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._readers: dict[int, tuple[asyncio.Future[bool], int]] = {}  # who waits for a socket that is watched
        self._tasks: set[asyncio.Task[None]] = set()

    def _running(self) -> asyncio.AbstractEventLoop:
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError("client: used in another event loop", hint="create an AsyncClient in each loop")
        return self._loop

    async def ready(self, sock: socket.socket, writing: bool, deadline: Deadline | None) -> None:
        loop, limit, fd = self._running(), remaining(deadline), sock.fileno()
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if limit is None else loop.call_later(limit, _wake, waiter, False)
        if writing:
            loop.add_writer(fd, _wake, waiter, True)
        elif fd not in self._readers:
            loop.add_reader(fd, self._readable, fd)
        if not writing:
            self._readers[fd] = (waiter, 0)
        try:
            if not await waiter:
                raise expired(deadline)
        finally:
            if writing:
                loop.remove_writer(fd)
            if timer:
                timer.cancel()

    def _readable(self, fd: int) -> None:
        """Wake the task that waits for a socket. If none does, the socket is not watched any longer."""
        waiter, vain = self._readers[fd]
        if not waiter.done():
            waiter.set_result(True)
        elif vain < 2:  # the task that was woken has not run yet, or has read everything just now
            self._readers[fd] = (waiter, vain + 1)
        else:
            self._forget(fd)

    def forget(self, sock: socket.socket) -> None:
        if (fd := sock.fileno()) in self._readers:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        del self._readers[fd]
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        return await self._running().run_in_executor(None, work)

    def _run(self, work: Work) -> asyncio.Task[None]:
        task = self._running().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def soon(self, work: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:  # it is closed
            work()

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
