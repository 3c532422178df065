"""Ports of sandboxes: streams to them, and ports of this machine that lead to them.

All goes through the server and the sandbox's guest, so that the sandbox needs no network.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import warnings
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from functools import partial

from ._aio import AsyncioIO
from ._calls import Calls, Request
from ._core import Core, Place
from ._errors import ClosedError, ConfigError, ConnectionLostError, FumehoodError, InfrastructureError, UnavailableError
from ._files import content
from ._io import Connection, deadline_of
from ._launch import forks
from ._values import Deadline, Duration, integer, text

log = logging.getLogger("fumehood")

PROTOCOL = "fumehood-stream"  # in both directions frames: a size in _HEAD bytes, and data. One of no bytes is the end.
READ = 256 << 10  # bytes of a read, and the largest frame that is sent
MOST = 256  # connections of a forwarded port at a time; further ones wait
OPEN = 60.0  # seconds that the opening of a connection's stream may take
STOP = 5.0  # seconds that the end of a listener may take
_HEAD = 4


def _check_port(port: int, least: int, name: str) -> None:
    if not least <= integer(port, name) < 1 << 16:
        raise ConfigError(f"{name}: not a number from {least} to 65535: {port}")


def request_of(sandbox: Place, service: str, port: int) -> Request:
    """Return the request for a stream to a port."""
    _check_port(port, 1, "sandbox_port")
    request = sandbox.request("GET", f"ports/{port}", service=service)
    request.upgrade = PROTOCOL
    return request


async def open_stream(calls: Calls, request: Request, port: int, deadline: Deadline | None) -> AsyncPortStream:
    """Open a stream."""
    return AsyncPortStream((await calls.open(request, deadline)).upgraded(), calls, port)


class AsyncPortStream:
    """A connection to a port of a sandbox. As a context manager it is closed at the end.

    Reads and writes may run at the same time. The stream breaks, which is a ConnectionLostError, when the program
    resets the connection, when it or its sandbox is killed, and with its client.
    """

    def __init__(self, connection: Connection, calls: Calls, port: int) -> None:
        self._connection = connection
        self._calls = calls
        self._writing = threading.Lock()
        self._unread = b""
        self._at = 0  # position in it
        self._left = 0  # bytes left of the frame
        self._read_all = self._written_all = self._closed = False
        self.sandbox_port = port

    async def __aenter__(self) -> AsyncPortStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self, size: int = READ, *, timeout: Duration | None = None) -> bytes:
        """Return the next bytes that the program has sent, at most size, or none when it has ended its direction.

        After timeout seconds without any, the call fails and the stream goes on.
        """
        self._check_open()
        if integer(size, "size") < 1:
            raise ConfigError(f"port {self.sandbox_port}: the size of a read is not positive: {size}")
        deadline = deadline_of(timeout)
        while not self._read_all:
            here = len(self._unread) - self._at
            if self._left and here:
                end = self._at + min(self._left, here, size)
                piece, self._at = self._unread[self._at : end], end
                self._left -= len(piece)
                return piece
            if self._left or here < _HEAD:
                with self._open():
                    data = await self._connection.rest(READ, deadline)
                    if not data:
                        self._connection.close()
                        text = f"port {self.sandbox_port}: the stream broke before the program ended it"
                        raise ConnectionLostError(text)
                self._unread, self._at = self._unread[self._at :] + data, 0
                continue
            self._left = int.from_bytes(self._unread[self._at : self._at + _HEAD], "big")
            self._at += _HEAD
            self._read_all = not self._left
        return b""

    async def write(self, data: bytes | bytearray | memoryview | str) -> None:
        """Send all of data. The call waits while the program does not read. If it is interrupted, the stream breaks."""
        rest = memoryview(content(data))
        async with self._calls.io.holding(self._writing):
            if self._written_all:
                raise ConfigError(f"port {self.sandbox_port}: written to after close_write")
            while rest:
                await self._send(rest[:READ])
                rest = rest[READ:]

    async def close_write(self) -> None:
        """End the direction to the program, which can still send. It may be called again."""
        async with self._calls.io.holding(self._writing):
            if not self._written_all:
                await self._send(b"")
            self._written_all = True

    async def _send(self, data: bytes | memoryview) -> None:
        """Send a frame."""
        with self._open():
            try:
                await self._connection.send(len(data).to_bytes(_HEAD, "big") + data, None)
            except BaseException:
                self._connection.close()  # a part of the frame may have been sent
                raise

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Make a ClosedError of what fails because this program has closed the stream, before or meanwhile."""
        self._check_open()
        try:
            yield
        except ConnectionLostError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"port {self.sandbox_port}: closed")

    async def close(self) -> None:
        """Close the connection in both directions. It may be called again."""
        self._closed = True
        self._connection.close()


class Listener:
    """Listens on a port of this machine and opens a stream for each connection, in a thread with an event loop.

    It refers to nothing of the client, so that one that is dropped can be collected.
    """

    def __init__(self, core: Core, sandbox: str, request: Request, port: int, host: str, local: int) -> None:
        self.sandbox = sandbox  # the path of the sandbox
        self.error: FumehoodError | None = None  # why the last connection that failed got no stream
        self._server = (core.address, core._token, core.server)
        self._request = request
        self._port = port
        self._forks = forks.count
        self._socket = _listen(host, local)
        forks.hold(self._socket)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        self._began = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="fumehood-forward", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as e:
            self._socket.close()
            raise InfrastructureError(f"forward: {e}") from e
        self._began.wait()
        if self._loop is None:
            raise InfrastructureError("forward: no event loop could be started", hint="see the log of fumehood")

    @property
    def running(self) -> bool:
        """Whether it listens, in this process."""
        return self._forks == forks.count and self._thread.is_alive()

    def _run(self) -> None:
        try:
            with self._socket, contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._accept(), debug=False)
        except Exception:  # whatever it is: the thread has no caller
            log.exception("port %d of a sandbox is no longer forwarded", self._port)
        finally:
            self._began.set()

    async def _accept(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        self._began.set()
        io, slots = AsyncioIO(), asyncio.Semaphore(MOST)
        calls = Calls(io, *self._server)
        try:
            while True:
                await slots.acquire()
                local = await self._next(io)
                io.spawn(partial(self._serve, local, calls, slots))
        finally:
            calls.end()

    async def _next(self, io: AsyncioIO) -> Connection:
        """Return the next connection."""
        while True:
            await io.ready(self._socket, False, None)
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, ConnectionError):  # it has gone
                continue
            except OSError as e:
                log.warning("port %d of a sandbox: no connection can be accepted: %s", self._port, e)
                await io.sleep(0.1)  # descriptors may become free
                continue
            accepted.setblocking(False)
            return Connection(io, accepted)

    async def _serve(self, local: Connection, calls: Calls, slots: asyncio.Semaphore) -> None:
        """Pass on one connection."""
        try:
            await self._pass(local, calls)
        except FumehoodError as e:
            log.debug("port %d of a sandbox: a connection broke: %s", self._port, e)
        finally:
            local.reset()  # which does nothing after both directions have ended
            slots.release()

    async def _pass(self, local: Connection, calls: Calls) -> None:
        try:
            stream = await open_stream(calls, self._request, self._port, deadline_of(OPEN))
        except FumehoodError as e:
            self.error = e
            # That no program listens yet is usual.
            level = logging.DEBUG if isinstance(e, UnavailableError) else logging.WARNING
            log.log(level, "port %d of a sandbox: a connection is closed: %s", self._port, e)
            return
        async with stream:
            await _both(_to_program(local, stream), _from_program(stream, local))
            local.close()

    def end(self) -> None:
        """Begin to end."""
        if self.running and self._loop and self._task:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._task.cancel)

    def close(self) -> None:
        """End, with all connections, and wait for it."""
        self.end()
        if self._forks == forks.count:
            self._thread.join(STOP)


async def _both(*directions: Awaitable[None]) -> None:
    """Wait for both directions. If one fails, the other one ends."""
    tasks = [asyncio.ensure_future(each) for each in directions]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _to_program(local: Connection, stream: AsyncPortStream) -> None:
    while data := await local.receive(READ, None):
        await stream.write(data)
    await stream.close_write()


async def _from_program(stream: AsyncPortStream, local: Connection) -> None:
    while data := await stream.read():
        await local.send(data, None)
    local.end_sending()


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens, without blocking, at an address of this machine."""
    if not host:
        raise ConfigError("forward: no host", hint="0.0.0.0 stands for all addresses of this machine")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.create_server(address[:2], family=family, backlog=MOST)
    except (OSError, OverflowError, UnicodeError) as e:
        raise ConfigError(f"forward: cannot listen on port {port} of {host!r}: {e}") from e
    listening.setblocking(False)
    return listening


class AsyncForward:
    """A port of this machine that leads to a port of a sandbox, while it is entered as a context manager.

    str() of it is "host:port", and url is "http://host:port". Every program of this machine can connect there. A
    connection that gets no stream, because no program in the sandbox listens yet or because the sandbox is gone, is
    reset. error says why, for the last one.
    """

    _listener: Listener | None = None

    def __init__(self, sandbox: Place, service: str, sandbox_port: int, host: str, port: int) -> None:
        _check_port(port, 0, "port")
        self._sandbox = sandbox
        self._request = request_of(sandbox, service, sandbox_port)
        self.sandbox_port = sandbox_port
        self.host = text(host, "host")  # when it is entered, the address
        self.port = port  # when it is entered, the one that was free in the place of 0

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The text "http://host:port"; a ConfigError before the context manager is entered."""
        if self._listener is None:
            raise ConfigError("forward: there is no address yet", hint="use it as: with sandbox.forward(8000) as web")
        return f"http://{self}"

    @property
    def error(self) -> FumehoodError | None:
        """Why the last connection that failed got no stream."""
        return self._listener.error if self._listener else None

    async def __aenter__(self) -> AsyncForward:
        core = self._sandbox.core
        if self._listener is not None:
            raise ConfigError("forward: entered again", hint="call forward again")
        await self._check()
        make = partial(Listener, core, self._sandbox.path, self._request, self.sandbox_port, self.host, self.port)
        self._listener = await core.io.made(make, Listener.close)
        core.listeners.add(self._listener)
        self.host, self.port = self._listener.address
        return self

    async def _check(self) -> None:
        """Fail if the sandbox is gone, or its provider has no streams: the server checks that first."""
        try:
            await self._sandbox.core.call(replace(self._request, upgrade=""))
        except ConfigError as e:
            if e.status != 426:
                raise

    async def __aexit__(self, *_: object) -> None:
        await self._sandbox.core.io.shielded(self.close)

    async def close(self) -> None:
        """Close the port with all its connections. It may be called again."""
        core, listener = self._sandbox.core, self._listener
        if listener is not None:
            core.listeners.discard(listener)
            await core.io.thread(listener.close)

    def __del__(self) -> None:
        if self._listener is not None and self._listener.running:
            warnings.warn(f"unclosed forward of port {self.sandbox_port}", ResourceWarning, stacklevel=2, source=self)
            self._sandbox.core.listeners.discard(self._listener)
            self._listener.end()
