"""The I/O of the clients: connections, clocks, background work, for blocking code, asyncio and trio.

The rest of the package is written once, as coroutines over IO. Where the I/O blocks, such a coroutine never waits:
finish runs it to its end like a function.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ._errors import ConfigError, ConnectionLostError, FumehoodError, RequestTimeoutError
from ._http import Reader
from ._launch import forks
from ._values import Deadline, Duration, seconds

T = TypeVar("T")
U = TypeVar("U")

_TURN = 16  # operations without a wait, after which an event loop gets its turn


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose I/O blocks."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    finally:
        work.close()
    raise RuntimeError("a coroutine over blocking I/O has waited")


@dataclass(frozen=True)
class Address:
    """The address of a server: the path of a unix socket, or host and port."""

    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """The value of the header Host."""
        if self.path:
            return "localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else self.authority


def parse_address(url: str, tls: ssl.SSLContext | None = None) -> Address:
    """Parse unix:/path, http://host:port or https://host:port. The URL may hold nothing else."""
    if url.startswith("unix:"):
        path = url.removeprefix("unix:")
        path = path.removeprefix("//")
        if not path.startswith("/") or "\0" in path:
            raise ConfigError(f"server address: no absolute path in {url!r}")
        return Address(path=path)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise ConfigError("server address: invalid URL") from e
    if parts.username is not None or parts.password is not None:
        raise ConfigError("server address: a URL with a user or password", hint="give the token as token")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ConfigError(f"server address: not of the form unix:PATH, http://HOST:PORT or https://HOST:PORT: {url!r}")
    if parts.scheme == "http":
        return Address(host=parts.hostname, port=port or 80)
    return Address(host=parts.hostname, port=port or 443, tls=tls or ssl.create_default_context())


def deadline_of(timeout: Duration | None) -> Deadline | None:
    """Return when a timeout, which begins now, expires."""
    return None if timeout is None else Deadline(seconds(timeout, "timeout"))


def remaining(deadline: Deadline | None) -> float | None:
    """Return the seconds until a deadline, or raise a RequestTimeoutError if it has passed."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise expired(deadline)
    return left


def expired(deadline: Deadline | None) -> RequestTimeoutError:
    """Return the error of a call whose deadline has passed."""
    after = f" of {deadline.timeout:g} s" if deadline is not None else ""
    return RequestTimeoutError(f"the call's timeout{after} expired")


class Connection(Reader):
    """A connection to the server. Its socket never blocks; its IO waits for it.

    One thread or task may receive while another one sends.
    """

    _closed = True  # until it has been made

    def __init__(self, io: IO, sock: socket.socket) -> None:
        super().__init__()
        self._io = io
        self._sock = sock
        self._operations = 0
        self._plain = not isinstance(sock, ssl.SSLSocket)
        self._calling = threading.Lock()  # OpenSSL is not used by two threads at once
        self._asked = False  # the answer to what was sent last has not begun to arrive
        self._waiting = [False, False]  # the call that receives, and the one that sends
        self._closed = False
        forks.hold(self)

    def fileno(self) -> int:
        """Return the number of its descriptor, or -1."""
        return self._sock.fileno()

    async def _complete(
        self, work: Callable[[U], T], given: U, writing: bool, deadline: Deadline | None, first: bool = False
    ) -> T:
        """Call work, and again when the socket is ready if it was not. With first, wait before the first call."""
        self._operations += 1
        if self._operations % _TURN == 0:
            await self._io.sleep(0)
        try:
            if first:
                await self._wait(writing, writing, deadline)
            while not self._closed:
                try:
                    if self._plain:
                        return work(given)
                    with self._calling:
                        return work(given)
                except BlockingIOError:
                    await self._wait(writing, writing, deadline)
                except ssl.SSLWantReadError:
                    await self._wait(writing, False, deadline)
                except ssl.SSLWantWriteError:
                    await self._wait(writing, True, deadline)
        except FumehoodError:
            raise
        except (OSError, ValueError) as e:
            raise ConnectionLostError(f"connection: {e or type(e).__name__}") from e
        raise ConnectionLostError("connection: closed")

    async def _wait(self, sending: bool, writing: bool, deadline: Deadline | None) -> None:
        self._waiting[sending] = True
        try:
            await self._io.ready(self._sock, writing, deadline)
        finally:
            self._waiting[sending] = False
            if self._closed and not any(self._waiting):
                self._end()

    async def send(self, data: bytes, deadline: Deadline | None) -> None:
        """Send all of data."""
        remaining(deadline)  # a call whose timeout has expired sends nothing
        self._asked = True
        sent = 0
        while sent < len(data):
            sent += await self._complete(self._sock.send, memoryview(data)[sent:], True, deadline)

    async def receive(self, size: int, deadline: Deadline | None) -> bytes:
        """Return the next bytes of the connection, or none at its end.

        An answer takes a while, so its first bytes are waited for before they are read. With TLS, they may have been
        read already.
        """
        first, self._asked = self._asked and self._plain, False
        return await self._complete(self._sock.recv, size, False, deadline, first)

    def stale(self) -> bool:
        """Report whether an idle connection can no longer be used."""
        try:
            return _poll(self._sock, select.POLLIN, 0)
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close the connection at once. A call that waits for it ends."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        if not any(self._waiting):  # else the call that waits closes it
            self._end()

    def end_sending(self) -> None:
        """Send the end of the data. The peer can still send."""
        with contextlib.suppress(OSError):  # it is broken, as the next call notices
            self._sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close the connection so that the peer gets an error and not the end of the data. No call may wait for it."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end()

    def __del__(self) -> None:
        if not self._closed:  # it was dropped with an answer that was not read to its end
            self._io.soon(self.close)

    def _end(self) -> None:
        self._io.forget(self._sock)
        self._sock.close()


def _poll(sock: socket.socket, events: int, limit: float | None) -> bool:
    """Wait for events of a socket for up to limit seconds. Report whether there was one."""
    poll = select.poll()
    poll.register(sock, events)
    return bool(poll.poll(None if limit is None else limit * 1000))


def _connect(address: Address, limit: float | None) -> socket.socket:
    """Return a socket that is connected to a server and does not block."""
    if address.path:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        sock = socket.create_connection((address.host, address.port), limit)
    try:
        sock.settimeout(limit)
        if address.path:
            sock.connect(address.path)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.tls:
            sock = address.tls.wrap_socket(sock, server_hostname=address.host)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


Work = Callable[[], Coroutine[Any, Any, None]]
Stop = Work  # cancels work if that is possible, and waits a moment for its end


class IO:
    """What the rest of the package needs of the world. This one blocks; those of event loops derive from it."""

    async def connect(self, address: Address, deadline: Deadline | None) -> Connection:
        """Connect to a server."""
        try:
            sock = await self.made(partial(_connect, address, remaining(deadline)), socket.socket.close)
            return Connection(self, sock)
        except FumehoodError:
            raise
        except TimeoutError:
            raise expired(deadline) from None
        except OSError as e:
            raise ConnectionLostError(f"server {address}: {e.strerror or e}") from e

    async def ready(self, sock: socket.socket, writing: bool, deadline: Deadline | None) -> None:
        """Wait until a socket can be read from or, with writing, written to."""
        if not _poll(sock, select.POLLOUT if writing else select.POLLIN, remaining(deadline)):
            raise expired(deadline)

    def forget(self, sock: socket.socket) -> None:
        """Watch a socket no longer, which is about to be closed."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds:
            threading.Event().wait(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        """Run a function that blocks."""
        return work()

    async def made(self, make: Callable[[], T], discard: Callable[[T], object]) -> T:
        """Return what a function makes that blocks. If nobody waits for it any more, it is discarded."""
        lock, made, wanted = threading.Lock(), list[T](), True

        def work() -> T:
            result = make()
            with lock:
                made.append(result)
                if not wanted:
                    discard(result)
            return result

        try:
            return await self.thread(work)
        except BaseException:
            with lock:
                wanted = False
                for result in made:
                    discard(result)
            raise

    @contextlib.asynccontextmanager
    async def holding(self, lock: threading.Lock) -> AsyncIterator[None]:
        """Hold a lock, for which threads or tasks wait."""
        while not lock.acquire(blocking=False):
            await self.sleep(0.002)
        try:
            yield
        finally:
            lock.release()

    def spawn(self, work: Work) -> Stop:
        """Run work in the background. It handles its errors itself."""
        thread = threading.Thread(target=lambda: finish(work()), name="fumehood", daemon=True)
        thread.start()

        async def stop() -> None:
            if thread is not threading.current_thread():
                thread.join(1)

        return stop

    def soon(self, work: Callable[[], object]) -> None:
        """Call a function that does not wait, in the event loop if it runs. Finalizers are called in any thread."""
        work()

    async def shielded(self, work: Work) -> None:
        """Run work to its end even if the caller is canceled."""
        await work()
