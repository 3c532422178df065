"""The blocking client: the classes of _async over blocking I/O. Threads may share one client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from ._async import AsyncClient, AsyncSandbox
from ._io import IO, finish
from ._process import AsyncProcess, Lines
from ._service import AsyncService
from ._session import AsyncCheckpoint, AsyncRuntime, AsyncSession, Change, SessionEvent
from ._types import Event, FileInfo, ProcessInfo, SandboxInfo, ServiceInfo

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")


def _wrapping(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], wrap: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """Return a method of an asynchronous class as a blocking one, with its parameters, and wrap its result."""

    @functools.wraps(method)
    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(finish(method(self._async, *args, **kwargs)))

    return blocking


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of an asynchronous class as a blocking one."""
    return _wrapping(method, lambda result: result)


def _direct(method: Callable[Concatenate[Any, P], T], wrap: Callable[[T], U]) -> Callable[Concatenate[Any, P], U]:
    """Return a method that does not wait, and wrap its result."""

    @functools.wraps(method)
    def direct(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(method(self._async, *args, **kwargs))

    return direct


class _Blocking(Generic[A]):
    """A blocking object over an asynchronous one, with which it shares everything but the I/O.

    The attributes that a class declares are those of the asynchronous object.
    """

    def __init__(self, over: A) -> None:
        self._async = over

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in vars(self._async):
                raise AttributeError(name)
            return getattr(self._async, name)

    def __enter__(self) -> Self:
        return self


class Iteration(_Blocking[Lines[T]], Generic[T]):
    """An iterator and context manager."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = finish(self._async.next())
        if item is None:
            raise StopIteration
        return item

    __exit__ = _blocking(Lines.__aexit__)
    close = _blocking(Lines.close)


class Events(Iteration[Event]):
    """Iterates over the events of a command."""


class Stream(Iteration[Event]):
    """Runs a command and iterates over its events. Leaving it early kills the command."""


class Walk(Iteration[FileInfo]):
    """Iterates over a tree of files."""


class Process(_Blocking[AsyncProcess]):
    """A command that was started."""

    info: ProcessInfo  # as it was when it was started or found
    id: str  # its name in the server

    events = _direct(AsyncProcess.events, Events)
    wait = _blocking(AsyncProcess.wait)
    write = _blocking(AsyncProcess.write)
    close_stdin = _blocking(AsyncProcess.close_stdin)
    signal = _blocking(AsyncProcess.signal)
    resize = _blocking(AsyncProcess.resize)
    kill = _blocking(AsyncProcess.kill)


class Service(_Blocking[AsyncService]):
    __doc__ = AsyncService.__doc__

    name: str  # of the service, or of the sandbox
    service_info: ServiceInfo

    stream = _direct(AsyncService.stream, Stream)
    as_user = _direct(AsyncService.as_user, lambda found: Service(found))
    walk = _direct(AsyncService.walk, Walk)
    run = _blocking(AsyncService.run)
    start = _wrapping(AsyncService.start, Process)
    processes = _wrapping(AsyncService.processes, lambda found: [Process(each) for each in found])
    read = _blocking(AsyncService.read)
    read_text = _blocking(AsyncService.read_text)
    write = _blocking(AsyncService.write)
    upload = _blocking(AsyncService.upload)
    download = _blocking(AsyncService.download)
    put_archive = _blocking(AsyncService.put_archive)
    get_archive = _blocking(AsyncService.get_archive)
    stat = _blocking(AsyncService.stat)
    listdir = _blocking(AsyncService.listdir)
    mkdir = _blocking(AsyncService.mkdir)
    remove = _blocking(AsyncService.remove)
    rename = _blocking(AsyncService.rename)
    chmod = _blocking(AsyncService.chmod)
    connection = _blocking(AsyncService.connection)


class Sandbox(Service):
    __doc__ = AsyncSandbox.__doc__
    _async: AsyncSandbox

    info: SandboxInfo

    __exit__ = _blocking(AsyncSandbox.__aexit__)
    service = _direct(AsyncSandbox.service, Service)
    close = _blocking(AsyncSandbox.close)
    renew = _blocking(AsyncSandbox.renew)
    logs = _blocking(AsyncSandbox.logs)


class Checkpoint(_Blocking[AsyncCheckpoint]):
    __doc__ = AsyncCheckpoint.__doc__
    number: int  # starts at 1
    snapshot: str
    archive: str
    changes: tuple[Change, ...]

    save = _blocking(AsyncCheckpoint.save)


class SessionStream(Iteration[SessionEvent]):
    """Runs a command of a session and iterates over its events. Leaving it early kills the command."""


class Runtime(_Blocking[AsyncRuntime]):
    __doc__ = AsyncRuntime.__doc__

    id: str  # its name in the server, also as a sandbox

    @property
    def service(self) -> Service:
        """The container, for files and further commands."""
        return Service(self._async.service)

    __exit__ = _blocking(AsyncRuntime.__aexit__)
    execute = _blocking(AsyncRuntime.execute)
    stream = _direct(AsyncRuntime.stream, SessionStream)
    poll = _blocking(AsyncRuntime.poll)
    kill = _blocking(AsyncRuntime.kill)
    cleanup = _blocking(AsyncRuntime.cleanup)


class Session(_Blocking[AsyncSession]):
    __doc__ = AsyncSession.__doc__

    id: str  # its name in the server
    workspace: str  # the path of the private copy on the server's machine

    __exit__ = _blocking(AsyncSession.__aexit__)
    spawn = _wrapping(AsyncSession.spawn, Runtime)
    exec = _blocking(AsyncSession.exec)
    checkpoint = _wrapping(AsyncSession.checkpoint, Checkpoint)
    reset = _blocking(AsyncSession.reset)
    read_files = _blocking(AsyncSession.read_files)
    resolve = _blocking(AsyncSession.resolve)
    close = _blocking(AsyncSession.close)


def _constructor(
    method: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the parameters of another."""
    return functools.wraps(method)


class Client(_Blocking[AsyncClient]):
    __doc__ = AsyncClient.__doc__

    @_constructor(AsyncClient.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(AsyncClient(*args, **kwargs))
        self._async._io = IO()

    def __enter__(self) -> Self:
        self.connect()
        return self

    __exit__ = _blocking(AsyncClient.__aexit__)
    connect = _blocking(AsyncClient.connect)
    start = _wrapping(AsyncClient.start, Sandbox)
    prepare = _blocking(AsyncClient.prepare)
    open_session = _wrapping(AsyncClient.open_session, Session)
    sandboxes = _blocking(AsyncClient.sandboxes)
    get = _wrapping(AsyncClient.get, Sandbox)
    close = _blocking(AsyncClient.close)
