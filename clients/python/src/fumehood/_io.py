"""The I/O of the clients: connections, clocks, background work, for blocking code, asyncio and trio.

The rest of the package is written once, as coroutines over IO. Where the I/O blocks, such a coroutine never waits:
finish runs it to its end like a function.
"""

from __future__ import annotations

import abc
import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ._errors import ConfigError, ConnectionLostError, RequestTimeoutError
from ._http import Reader
from ._launch import forks

T = TypeVar("T")

READ = 64 << 10  # bytes of an ordinary read
BULK = 1 << 20  # bytes of a read where a large body is on its way


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


def deadline_of(timeout: float | None) -> float | None:
    """Return when a timeout in seconds, which begins now, expires."""
    return None if timeout is None else time.monotonic() + timeout


def remaining(deadline: float | None) -> float | None:
    """Return the seconds until a deadline, or raise a RequestTimeoutError if it has passed."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise expired()
    return left


def expired() -> RequestTimeoutError:
    """Return the error of a call whose timeout has expired."""
    return RequestTimeoutError("the call's timeout expired")


def lost(error: BaseException) -> ConnectionLostError:
    """Return the error of a connection that broke."""
    return ConnectionLostError(f"connection: {error or type(error).__name__}")


class Connection(abc.ABC):
    """A connection to the server, with the reader of its responses."""

    def __init__(self) -> None:
        self.reader = Reader()
        forks.hold(self)

    @abc.abstractmethod
    def fileno(self) -> int:
        """Return the number of its descriptor, or -1."""

    @abc.abstractmethod
    async def send(self, data: bytes, deadline: float | None) -> None:
        """Send all of data."""

    @abc.abstractmethod
    async def receive(self, size: int, deadline: float | None) -> bytes:
        """Return the next bytes, or none at the connection's end."""

    @abc.abstractmethod
    def stale(self) -> bool:
        """Report whether an idle connection can no longer be used."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connection at once. A call that waits for it ends."""


Work = Callable[[], Coroutine[Any, Any, None]]
Stop = Callable[[], Coroutine[Any, Any, None]]  # cancels work if that is possible, and waits a moment for its end


class IO(abc.ABC):
    """What the rest of the package needs of the world."""

    @abc.abstractmethod
    async def connect(self, address: Address, deadline: float | None) -> Connection:
        """Connect to a server."""

    @abc.abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait."""

    @abc.abstractmethod
    async def thread(self, work: Callable[[], T]) -> T:
        """Run a function that blocks."""

    @abc.abstractmethod
    def lock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Return a lock."""

    @abc.abstractmethod
    def spawn(self, work: Work) -> Stop:
        """Run work in the background. It handles its errors itself."""

    @abc.abstractmethod
    async def shielded(self, work: Work) -> None:
        """Run work to its end even if the caller is canceled."""


# Blocking


class _Socket(Connection):
    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._timed = True

    def fileno(self) -> int:
        return self._sock.fileno()

    def _limit(self, deadline: float | None) -> None:
        if deadline is not None or self._timed:
            self._sock.settimeout(remaining(deadline))
            self._timed = deadline is not None

    async def send(self, data: bytes, deadline: float | None) -> None:
        try:
            self._limit(deadline)
            self._sock.sendall(data)
        except TimeoutError:
            raise expired() from None
        except (OSError, ValueError) as e:
            raise lost(e) from e

    async def receive(self, size: int, deadline: float | None) -> bytes:
        try:
            self._limit(deadline)
            return self._sock.recv(size)
        except TimeoutError:
            raise expired() from None
        except (OSError, ValueError) as e:
            raise lost(e) from e

    def stale(self) -> bool:
        try:
            poll = select.poll()
            poll.register(self._sock, select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


class _Lock:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class BlockingIO(IO):
    """I/O that blocks."""

    async def connect(self, address: Address, deadline: float | None) -> Connection:
        try:
            limit = remaining(deadline)
            if address.path:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    sock.settimeout(limit)
                    sock.connect(address.path)
                except BaseException:
                    sock.close()
                    raise
                return _Socket(sock)
            sock = socket.create_connection((address.host, address.port), limit)
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if address.tls:
                    sock = address.tls.wrap_socket(sock, server_hostname=address.host)
            except BaseException:
                sock.close()
                raise
            return _Socket(sock)
        except TimeoutError:
            raise expired() from None
        except OSError as e:
            raise unreachable(address, e) from e

    async def sleep(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    async def thread(self, work: Callable[[], T]) -> T:
        return work()

    def lock(self) -> contextlib.AbstractAsyncContextManager[Any]:
        return _Lock()

    def spawn(self, work: Work) -> Stop:
        thread = threading.Thread(target=lambda: finish(work()), name="fumehood", daemon=True)
        thread.start()

        async def stop() -> None:
            if thread is not threading.current_thread():
                thread.join(1)

        return stop

    async def shielded(self, work: Work) -> None:
        await work()


def unreachable(address: Address, error: OSError) -> ConnectionLostError:
    """Return the error of a server that cannot be connected to."""
    return ConnectionLostError(f"server {address}: {error.strerror or error}")
