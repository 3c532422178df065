"""The blocking client: the classes of _async over blocking I/O. Threads may share one client."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from ._io import finish
from ._process import AsyncProcess, Lines
from ._service import AsyncSandbox, AsyncService
from ._types import Event, FileInfo, ProcessInfo, SandboxInfo, ServiceInfo

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")


def wrapping(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], wrap: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """Return a method of an asynchronous class as a blocking one, with its parameters, and wrap its result."""

    @functools.wraps(method)
    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(finish(method(self._async, *args, **kwargs)))

    return blocking


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of an asynchronous class as a blocking one."""
    return wrapping(method, lambda result: result)


def direct(method: Callable[Concatenate[Any, P], T], wrap: Callable[[T], U]) -> Callable[Concatenate[Any, P], U]:
    """Return a method that does not wait, and wrap its result."""

    @functools.wraps(method)
    def direct(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(method(self._async, *args, **kwargs))

    return direct


class Blocking(Generic[A]):
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


class Iteration(Blocking[Lines[T]], Generic[T]):
    """An iterator and context manager."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = finish(self._async.next())
        if item is None:
            raise StopIteration
        return item

    __exit__ = blocking(Lines.__aexit__)
    close = blocking(Lines.close)


class Events(Iteration[Event]):
    """Iterates over the events of a command."""


class Stream(Iteration[Event]):
    """Runs a command and iterates over its events. Leaving it early kills the command."""


class Walk(Iteration[FileInfo]):
    """Iterates over a tree of files."""


class Process(Blocking[AsyncProcess]):
    """A command that was started."""

    info: ProcessInfo  # as it was when it was started or found
    id: str  # its name in the server

    events = direct(AsyncProcess.events, Events)
    wait = blocking(AsyncProcess.wait)
    write = blocking(AsyncProcess.write)
    close_stdin = blocking(AsyncProcess.close_stdin)
    signal = blocking(AsyncProcess.signal)
    resize = blocking(AsyncProcess.resize)
    kill = blocking(AsyncProcess.kill)


class Service(Blocking[AsyncService]):
    __doc__ = AsyncService.__doc__

    name: str  # of the service, or of the sandbox
    service_info: ServiceInfo

    stream = direct(AsyncService.stream, Stream)
    as_user = direct(AsyncService.as_user, lambda found: Service(found))
    walk = direct(AsyncService.walk, Walk)
    run = blocking(AsyncService.run)
    start = wrapping(AsyncService.start, Process)
    processes = wrapping(AsyncService.processes, lambda found: [Process(each) for each in found])
    read = blocking(AsyncService.read)
    read_text = blocking(AsyncService.read_text)
    write = blocking(AsyncService.write)
    upload = blocking(AsyncService.upload)
    download = blocking(AsyncService.download)
    put_archive = blocking(AsyncService.put_archive)
    get_archive = blocking(AsyncService.get_archive)
    stat = blocking(AsyncService.stat)
    listdir = blocking(AsyncService.listdir)
    mkdir = blocking(AsyncService.mkdir)
    remove = blocking(AsyncService.remove)
    rename = blocking(AsyncService.rename)
    chmod = blocking(AsyncService.chmod)
    connection = blocking(AsyncService.connection)


class Sandbox(Service):
    __doc__ = AsyncSandbox.__doc__
    _async: AsyncSandbox

    info: SandboxInfo

    __exit__ = blocking(AsyncSandbox.__aexit__)
    service = direct(AsyncSandbox.service, Service)
    disown = direct(AsyncSandbox.disown, lambda nothing: nothing)
    close = blocking(AsyncSandbox.close)
    renew = blocking(AsyncSandbox.renew)
    logs = blocking(AsyncSandbox.logs)
