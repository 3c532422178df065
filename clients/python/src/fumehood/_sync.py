"""The blocking client: the classes of _async over blocking I/O. Threads may share one client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from ._async import AsyncClient, AsyncSandbox
from ._io import IO, finish
from ._process import AsyncProcess, Lines
from ._service import AsyncService
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
    """A blocking object over an asynchronous one, with which it shares everything but the I/O."""

    def __init__(self, over: A) -> None:
        self._async = over

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

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

    @property
    def info(self) -> ProcessInfo:
        """The command as it was when it was started or found."""
        return self._async.info

    @property
    def id(self) -> str:
        """The command's name in the server."""
        return self._async.id

    events = _direct(AsyncProcess.events, Events)
    wait = _blocking(AsyncProcess.wait)
    write = _blocking(AsyncProcess.write)
    close_stdin = _blocking(AsyncProcess.close_stdin)
    signal = _blocking(AsyncProcess.signal)
    resize = _blocking(AsyncProcess.resize)
    kill = _blocking(AsyncProcess.kill)


class Service(_Blocking[AsyncService]):
    __doc__ = AsyncService.__doc__

    @property
    def name(self) -> str:
        """The name of the service, or of the sandbox."""
        return self._async.name

    @property
    def service_info(self) -> ServiceInfo:
        """The service."""
        return self._async.service_info

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

    @property
    def info(self) -> SandboxInfo:
        """The sandbox."""
        return self._async.info

    __exit__ = _blocking(AsyncSandbox.__aexit__)
    service = _direct(AsyncSandbox.service, Service)
    close = _blocking(AsyncSandbox.close)
    logs = _blocking(AsyncSandbox.logs)


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
        self._async._use(IO())

    def __enter__(self) -> Self:
        self.connect()
        return self

    __exit__ = _blocking(AsyncClient.__aexit__)
    connect = _blocking(AsyncClient.connect)
    start = _wrapping(AsyncClient.start, Sandbox)
    prepare = _blocking(AsyncClient.prepare)
    sandboxes = _blocking(AsyncClient.sandboxes)
    get = _wrapping(AsyncClient.get, Sandbox)
    close = _blocking(AsyncClient.close)
