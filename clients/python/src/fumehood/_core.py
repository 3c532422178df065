"""The client's core: calls that run once, and the lease that holds what they start."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from . import _errors as errors
from ._calls import PAUSE, Answer, Calls, Request, Value, encode, segment
from ._io import IO, Address
from ._launch import Server, forks
from ._types import JSON
from ._values import Deadline

if TYPE_CHECKING:
    from ._forward import Listener

log = logging.getLogger("fumehood")

# The errors of what does not exist, or no longer does, also because the client was closed.
GONE = (errors.UnavailableError, errors.SandboxNotFoundError, errors.ClosedError, errors.StaleError)

CANCEL = 5.0  # seconds that the cancellation of a call may take


class Hold:
    """Holds a lease by an open connection, until it is told to end or the lease is gone.

    It runs in the background, and refers to nothing of the client: one that is dropped can be collected.
    """

    def __init__(self, calls: Calls, lease: str) -> None:
        self.lease = lease  # "" when it is gone, or to end
        self._calls = calls
        self._answer: Answer | None = None
        self.stop = calls.io.spawn(self._run)

    async def _run(self) -> None:
        try:
            await self._keep()
        finally:
            self.release()
            self._calls.close_idle()

    async def _keep(self) -> None:
        lease = self.lease
        while self.lease:
            try:
                self._answer = await self._calls.open(Request("GET", f"/v1/leases/{segment(lease)}/hold"))
                while self.lease and await self._answer.read():
                    pass
            except (errors.ConnectionLostError, errors.ProtocolError) as e:
                log.debug("holding the lease: %s", e)
            except errors.FumehoodError as e:
                if self.lease:
                    log.warning("the lease is gone, and with it its sandboxes: %s", e)
                    self.lease = ""  # the next sandbox opens another
            if self.lease:
                await self._calls.io.sleep(PAUSE)

    def release(self) -> None:
        """Close the connection."""
        self.lease = ""
        if self._answer is not None:
            self._answer.close()


class Core(Calls):
    """What one client does. It may be used by many threads, or by the tasks of one event loop."""

    def __init__(self, io: IO, address: Address, token: str = "", server: Server | None = None) -> None:
        self._keys, self._counter = secrets.token_hex(8), itertools.count(1)
        self._opening = threading.Lock()
        self._hold: Hold | None = None
        self._warned = False
        self.unclosed: set[str] = set()  # paths of sandboxes and sessions that were started and not closed
        self.listeners: set[Listener] = set()  # which forward ports
        super().__init__(io, address, token, server)

    @property
    def usable(self) -> bool:
        """Whether the client is open, and of this process."""
        return not self._closed and self._forks == forks.count

    def __del__(self) -> None:
        if not self.usable:
            return
        self._closed = True
        message = f"unclosed client of {self.address}: its sandboxes are removed"
        warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
        if self.server is not None:
            self.server.abandon()
        self.io.soon(self._release)

    def _release(self) -> None:
        """Close all connections, so that the server ends the lease, and ports of this machine."""
        for listener in tuple(self.listeners):
            listener.end()
        if self._hold is not None:
            self._hold.release()
        self.close_idle()

    def warn_of_provider(self, started: JSON) -> None:
        """Warn once if the server runs sandboxes without the Docker Engine, because that refuses its user."""
        reason = started.get("provider_reason")
        if not isinstance(reason, str) or not reason or self._warned:
            return
        self._warned = True
        advice = 'choose it with Client(provider="native"), or let the user use the Docker Engine'
        message = f"{reason}: sandboxes run with the native provider ({advice})"
        frame: FrameType | None = sys._getframe()
        level = 1
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fumehood":
            frame, level = frame.f_back, level + 1
        warnings.warn(message, RuntimeWarning, stacklevel=level)

    async def keyed(self, request: Request, deadline: Deadline | None = None) -> JSON:
        """Send a request that runs once, however often it is sent. If the caller gives up, it is canceled."""
        request.lease = request.lease or await self.lease(deadline)
        request.key = self.key(request.lease)
        try:
            return await self.json(request, deadline)
        except BaseException as e:
            if not isinstance(e, errors.FumehoodError) or isinstance(e, errors.RequestTimeoutError):
                await self.io.shielded(lambda: self._cancel(request))
            elif e.status:  # the server's answer has arrived
                self._received.append(request.key)
            raise

    def key(self, lease: str) -> str:
        """Return a new key."""
        return f"{lease}-{self._keys}-{next(self._counter):x}"

    async def _cancel(self, request: Request) -> None:
        """Cancel what a request started, if anything."""
        try:
            cancel = Request("DELETE", f"/v1/leases/{segment(request.lease)}/keys/{segment(request.key)}", repeat=True)
            await self.call(cancel, Deadline(CANCEL))
            self._received.append(request.key)
        except errors.FumehoodError as e:
            log.debug("canceling %s %s: %s", request.method, request.path, e)

    @property
    def _lease(self) -> str:
        return self._hold.lease if self._hold is not None else ""

    async def lease(self, deadline: Deadline | None = None) -> str:
        """Return the lease under which sandboxes are created and commands run. The first call opens it."""
        lease = self._lease  # another thread may change it
        if lease:
            return lease
        async with self.io.holding(self._opening):
            lease = self._lease
            if lease:
                return lease
            self.check()
            opened = str((await self.json(Request("POST", "/v1/leases", body=b"{}", repeat=True), deadline)).get("id"))
            self._hold = Hold(Calls(self.io, self.address, self._token, self.server), opened)
            return opened

    async def close(self) -> None:
        """End the lease, which removes its sandboxes, close the connections, and stop a server of our own."""
        if self._closed:
            return
        if self._forks != forks.count:
            self._closed = True
            return
        lease = self._lease
        if self._hold is not None:
            self._hold.lease = ""
        try:
            await self.unlisten()
            if lease:
                await self.call(Request("DELETE", f"/v1/leases/{segment(lease)}"))  # it ends by itself otherwise
        except errors.FumehoodError as e:
            log.debug("ending the lease: %s", e)
        finally:
            self._closed = True
            await self.io.shielded(self._stop)

    async def unlisten(self, path: str = "") -> None:
        """Close the ports of this machine that are forwarded: all, or those of a sandbox by its path."""
        for listener in tuple(self.listeners):
            if not path or listener.sandbox == path:
                await self.io.thread(listener.close)
                self.listeners.discard(listener)

    async def _stop(self) -> None:
        self._release()
        if self._hold is not None:
            await self._hold.stop()
        await self.io.sleep(0)  # an event loop closes connections in its next round
        if self.server is not None:
            await self.io.thread(self.server.stop)


class Handle:
    """A sandbox or a session that a caller holds, by its name in messages. All its places share it."""

    closed = False

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass(frozen=True)
class Place:
    """What requests are about: the path that they have in common, their lease and query."""

    core: Core
    lease: str
    path: str
    query: Mapping[str, Value] = field(default_factory=dict)
    handle: Handle | None = None  # after its end, no request is made

    def below(self, kind: str, name: str, handle: Handle | None = None) -> Place:
        """Return the place of something in this one, which may be a handle of its own."""
        return Place(self.core, self.lease, f"{self.path}/{kind}/{segment(name)}", handle=handle or self.handle)

    def request(self, method: str, what: str = "", body: JSON | None = None, /, **query: Value) -> Request:
        """Return a request. A DELETE may be repeated."""
        if self.handle is not None and self.handle.closed:
            raise errors.ClosedError(f"{self.handle.name}: closed")
        path = f"{self.path}/{what}" if what else self.path
        data = None if body is None else encode(body)
        return Request(method, path, {**self.query, **query}, body=data, lease=self.lease, repeat=method == "DELETE")

    async def get(self, what: str = "", **query: Value) -> JSON:
        """Return the JSON object of a GET."""
        return await self.core.json(self.request("GET", what, **query))

    async def post(self, what: str, body: JSON, repeat: bool = False) -> bytes:
        """Send a POST."""
        request = self.request("POST", what, body)
        request.repeat = repeat
        return await self.core.call(request)

    async def run(self, what: str, body: JSON, deadline: Deadline | None = None) -> JSON:
        """Send a POST that runs once, and return the JSON object of its answer."""
        return await self.core.keyed(self.request("POST", what, body), deadline)

    def warn(self, what: str) -> None:
        """Warn about a handle that is dropped, if what was started here is still open and outlives it.

        The warning does not refer to the handle, whose client could not end while the warning is kept.
        """
        if self.path in self.core.unclosed and self.core.usable:
            message = f"unclosed {what}: it stays until its client is closed"
            warnings.warn(message, ResourceWarning, stacklevel=3)

    async def remove(self, **query: Value) -> None:
        """Remove what is here, if it still is."""
        with contextlib.suppress(*GONE):
            await self.core.call(self.request("DELETE", **query))
        self.core.unclosed.discard(self.path)
        await self.core.unlisten(self.path)

    async def end(self) -> None:
        """Remove what a handle is for. After that, no request is made for it."""
        await self.remove()
        if self.handle is not None:
            self.handle.closed = True
