"""I/O on the event loop of trio."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import TypeVar

import trio

from ._io import IO, Stop, Work, expired, remaining
from ._values import Deadline

T = TypeVar("T")


class TrioIO(IO):
    """I/O on trio."""

    async def ready(self, sock: socket.socket, writing: bool, deadline: Deadline | None) -> None:
        limit = remaining(deadline)
        with trio.move_on_after(math.inf if limit is None else limit) as scope:
            await (trio.lowlevel.wait_writable if writing else trio.lowlevel.wait_readable)(sock)
        if scope.cancelled_caught:
            raise expired(deadline)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work)

    def spawn(self, work: Work) -> Stop:
        scope, done = trio.CancelScope(), trio.Event()

        async def run() -> None:
            try:
                with scope:
                    await work()
            finally:
                done.set()

        async def stop() -> None:
            scope.cancel()
            with trio.CancelScope(deadline=trio.current_time() + 1, shield=True):
                await done.wait()

        trio.lowlevel.spawn_system_task(run)
        return stop

    async def shielded(self, work: Work) -> None:
        with trio.CancelScope(shield=True):
            await work()
