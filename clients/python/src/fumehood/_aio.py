"""I/O on the event loops of asyncio and of trio."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar, cast

from ._errors import ConfigError, ConnectionLostError
from ._io import IO, READ, Address, Connection, Stop, Work, expired, lost, remaining, unreachable

T = TypeVar("T")

_HELD = 1 << 20  # bytes that an asyncio connection holds before it stops reading


# asyncio


class _Stream(Connection, asyncio.Protocol):
    """A connection on asyncio: a protocol without the copies of asyncio's streams."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._error: BaseException | None = None
        self._full = False  # the transport's buffer is full
        self._readable: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None

    def fileno(self) -> int:
        sock = self._transport.get_extra_info("socket") if self._transport else None
        return sock.fileno() if sock else -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._held += len(data)
        if self._held >= _HELD and self._transport:
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._readable)
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        if exc is not None and self._transport and not self._transport.get_extra_info("sslcontext"):
            # A write failed. asyncio then drops what has arrived, such as why the server refuses the body.
            with contextlib.suppress(OSError):
                while data := os.read(self.fileno(), READ):
                    self._pieces.append(data)
        self._ended, self._error, self._transport = True, exc, None
        _wake(self._readable)
        _wake(self._writable)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writable)

    async def _wait(self, waiter: asyncio.Future[None], deadline: float | None) -> None:
        limit = remaining(deadline)
        if limit is None:
            await waiter
            return
        handle = self._loop.call_later(limit, _expire, waiter)
        try:
            await waiter
        finally:
            handle.cancel()

    async def send(self, data: bytes, deadline: float | None) -> None:
        if self._transport is None or self._transport.is_closing():
            raise lost(self._error or ConnectionError("closed"))
        self._transport.write(data)
        while self._full and self._transport is not None:
            self._writable = self._loop.create_future()
            try:
                await self._wait(self._writable, deadline)
            finally:
                self._writable = None
        if self._transport is None:
            raise lost(self._error or ConnectionError("closed"))

    async def receive(self, size: int, deadline: float | None) -> bytes:
        while not self._pieces:
            if self._error is not None:
                raise lost(self._error)
            if self._ended:
                return b""
            self._readable = self._loop.create_future()
            try:
                await self._wait(self._readable, deadline)
            finally:
                self._readable = None
        piece = self._pieces.popleft()
        if self._held >= _HELD > self._held - len(piece) and self._transport:
            self._transport.resume_reading()
        self._held -= len(piece)
        return piece

    def stale(self) -> bool:
        return self._ended or bool(self._pieces) or self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _expire(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(expired())


class AsyncioIO(IO):
    """I/O on a running event loop of asyncio."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, address: Address, deadline: float | None) -> Connection:
        loop = self._loop
        if asyncio.get_running_loop() is not loop:
            raise ConfigError("client: used in another event loop", hint="create an AsyncClient in each loop")

        def protocol() -> _Stream:
            return _Stream(loop)

        limit = remaining(deadline)
        opening: Coroutine[Any, Any, tuple[asyncio.Transport, _Stream]]
        if address.path:
            opening = loop.create_unix_connection(protocol, address.path)
        else:
            opening = loop.create_connection(protocol, address.host, address.port, ssl=address.tls)
        try:
            _, stream = await (opening if limit is None else asyncio.wait_for(opening, limit))
        except (TimeoutError, asyncio.TimeoutError):
            raise expired() from None
        except OSError as e:
            raise unreachable(address, e) from e
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, work)

    def lock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return asyncio.Lock()

    def _run(self, work: Work) -> asyncio.Task[None]:
        task = self._loop.create_task(work())
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


# trio, by anyio


def _anyio() -> Any:
    try:
        import anyio
    except ImportError as e:
        raise ConfigError("async client: not in asyncio's event loop", hint="trio needs the package anyio") from e
    return anyio


class _AnyStream(Connection):
    def __init__(self, anyio: Any, stream: Any) -> None:
        super().__init__()
        self._anyio = anyio
        self._stream = stream
        self._scopes: set[Any] = set()
        self._closed = False

    def fileno(self) -> int:
        raw = self._stream.extra(self._anyio.abc.SocketAttribute.raw_socket, None)
        return raw.fileno() if raw is not None else -1

    async def _within(self, work: Awaitable[T], deadline: float | None) -> T:
        limit = remaining(deadline)
        try:
            with self._anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    with self._anyio.fail_after(limit):
                        return await work
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            raise expired() from None
        except (self._anyio.BrokenResourceError, self._anyio.ClosedResourceError, OSError) as e:
            raise lost(e) from e
        raise ConnectionLostError("connection: closed")

    async def send(self, data: bytes, deadline: float | None) -> None:
        await self._within(self._stream.send(data), deadline)

    async def receive(self, size: int, deadline: float | None) -> bytes:
        try:
            data: bytes = await self._within(self._stream.receive(size), deadline)
        except self._anyio.EndOfStream:
            return b""
        return data

    def stale(self) -> bool:
        if self._closed or (fd := self.fileno()) < 0:
            return True
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for scope in self._scopes:
            scope.cancel()
        _system_task(self._anyio, lambda: _drop(self._anyio, self._stream))


async def _drop(anyio: Any, stream: Any) -> None:
    """Close a stream of anyio at once."""
    with contextlib.suppress(Exception):
        await anyio.aclose_forcefully(stream)


def _system_task(anyio: Any, work: Work) -> Stop:
    """Run work beside trio's tasks, which it must not fail."""
    import trio

    scope, done = trio.CancelScope(), trio.Event()

    async def run() -> None:
        try:
            with scope:
                await work()
        finally:
            done.set()

    async def stop() -> None:
        scope.cancel()
        with anyio.move_on_after(1, shield=True):
            await done.wait()

    trio.lowlevel.spawn_system_task(run)
    return stop


class TrioIO(IO):
    """I/O on trio, by anyio."""

    def __init__(self) -> None:
        self._anyio = _anyio()

    async def connect(self, address: Address, deadline: float | None) -> Connection:
        anyio = self._anyio
        try:
            with anyio.fail_after(remaining(deadline)):
                if address.path:
                    stream = await anyio.connect_unix(address.path)
                elif address.tls:
                    stream = await anyio.connect_tcp(
                        address.host, address.port, ssl_context=address.tls, tls_standard_compatible=False
                    )
                else:
                    stream = await anyio.connect_tcp(address.host, address.port)
        except TimeoutError:
            raise expired() from None
        except OSError as e:
            raise unreachable(address, e) from e
        return _AnyStream(anyio, stream)

    async def sleep(self, seconds: float) -> None:
        await self._anyio.sleep(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        result: T = await self._anyio.to_thread.run_sync(work)
        return result

    def lock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        lock: contextlib.AbstractAsyncContextManager[Any] = self._anyio.Lock()
        return lock

    def spawn(self, work: Work) -> Stop:
        return _system_task(self._anyio, work)

    async def shielded(self, work: Work) -> None:
        with self._anyio.CancelScope(shield=True):
            await work()


def running_io() -> IO:
    """Return the I/O of the framework whose event loop runs here."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return TrioIO()
    return AsyncioIO()
