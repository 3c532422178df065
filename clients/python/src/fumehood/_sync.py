"""The blocking client: the classes of _async over blocking I/O. Threads may share one client."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from ._errors import FumehoodError
from ._forward import AsyncForward, AsyncPortStream
from ._io import finish
from ._journal import JournalEntry
from ._process import AsyncProcess, AsyncStream, Lines
from ._service import AsyncSandbox, AsyncService
from ._types import Event, FileInfo, ProcessInfo, SandboxInfo, ServiceInfo

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")


_ASYNC = re.compile(r"\bAsync(?=[A-Z])")


def blocking_text(text: str | None) -> str | None:
    """Return documentation of an asynchronous class, or an annotation, with the names of the blocking ones."""
    return re.sub(r"\b(\w+) \| \1\b", r"\1", _ASYNC.sub("", text)) if text else text


def described(method: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a blocking method the name, the documentation and the signature of an asynchronous one, for help()."""

    def plain(annotation: Any) -> Any:
        return blocking_text(annotation) if isinstance(annotation, str) else annotation

    def describe(blocking: Callable[P, T]) -> Callable[P, T]:
        functools.update_wrapper(blocking, method)
        del blocking.__wrapped__  # type: ignore[attr-defined]  # whose signature help() would show
        blocking.__name__ = method.__name__.replace("__a", "__", 1)  # __aexit__
        blocking.__doc__, blocking.__qualname__ = (
            blocking_text(method.__doc__),
            _ASYNC.sub("", method.__qualname__).replace("__a", "__", 1),
        )
        blocking.__annotations__ = {name: plain(each) for name, each in method.__annotations__.items()}
        shown = inspect.signature(method)
        parameters = [each.replace(annotation=plain(each.annotation)) for each in shown.parameters.values()]
        result = plain(shown.return_annotation)
        blocking.__signature__ = shown.replace(parameters=parameters, return_annotation=result)  # type: ignore[attr-defined]
        return blocking

    return describe


def constructor(
    method: Callable[Concatenate[Any, P], None],
) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give a constructor the parameters of another."""
    described_as: Any = described(method)
    return cast("Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]", described_as)


def wrapping(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], wrap: Callable[[T], U]
) -> Callable[Concatenate[Any, P], U]:
    """Return a method of an asynchronous class as a blocking one, with its parameters, and wrap its result."""

    @described(method)
    def blocking(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(finish(method(self._async, *args, **kwargs)))

    return blocking


def blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method of an asynchronous class as a blocking one."""
    return wrapping(method, lambda result: result)


def direct(method: Callable[Concatenate[Any, P], T], wrap: Callable[[T], U]) -> Callable[Concatenate[Any, P], U]:
    """Return a method that does not wait, and wrap its result."""

    @described(method)
    def direct(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> U:
        return wrap(method(self._async, *args, **kwargs))

    return direct


class Blocking(Generic[A]):
    """A blocking object over an asynchronous one, with which it shares everything but the I/O.

    The attributes that a class declares are those of the asynchronous object.
    """

    def __init__(self, over: A) -> None:
        self._async = over

    def __init_subclass__(cls) -> None:  # leaves out of help() what names the asynchronous class
        cls.__doc__ = blocking_text(cls.__doc__)
        if "__orig_bases__" in vars(cls) and not cls.__dict__.get("__parameters__"):
            del cls.__orig_bases__  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self._async).replace("Async", "", 1)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in vars(self._async):
                text = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(text, name=name, obj=self)
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

    close = blocking(AsyncStream.close)


class Journal(Iteration[JournalEntry]):
    """Iterates over the entries of a journal."""


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


class PortStream(Blocking[AsyncPortStream]):
    __doc__ = AsyncPortStream.__doc__

    sandbox_port: int  # the port in the sandbox

    __exit__ = blocking(AsyncPortStream.__aexit__)
    read = blocking(AsyncPortStream.read)
    write = blocking(AsyncPortStream.write)
    close_write = blocking(AsyncPortStream.close_write)
    close = blocking(AsyncPortStream.close)


class Forward(Blocking[AsyncForward]):
    __doc__ = AsyncForward.__doc__

    host: str  # the address of this machine
    port: int  # the port of this machine
    sandbox_port: int  # the port in the sandbox

    def __enter__(self) -> Self:
        finish(self._async.__aenter__())
        return self

    def __str__(self) -> str:
        return str(self._async)

    @property
    def url(self) -> str:
        """The text "http://host:port"; a ConfigError before the context manager is entered."""
        return self._async.url

    @property
    def error(self) -> FumehoodError | None:
        """Why the last connection that failed got no stream."""
        return self._async.error

    __exit__ = blocking(AsyncForward.__aexit__)
    close = blocking(AsyncForward.close)


class Service(Blocking[AsyncService]):
    __doc__ = AsyncService.__doc__

    name: str  # of the service, or of the sandbox
    service_info: ServiceInfo  # as it was when it was found

    run = blocking(AsyncService.run)
    stream = direct(AsyncService.stream, Stream)
    start = wrapping(AsyncService.start, Process)
    processes = wrapping(AsyncService.processes, lambda found: [Process(each) for each in found])
    kill_all = blocking(AsyncService.kill_all)
    as_user = direct(AsyncService.as_user, lambda found: Service(found))
    read = blocking(AsyncService.read)
    read_text = blocking(AsyncService.read_text)
    write = blocking(AsyncService.write)
    upload = blocking(AsyncService.upload)
    upload_dir = blocking(AsyncService.upload_dir)
    download = blocking(AsyncService.download)
    download_dir = blocking(AsyncService.download_dir)
    put_archive = blocking(AsyncService.put_archive)
    get_archive = blocking(AsyncService.get_archive)
    stat = blocking(AsyncService.stat)
    listdir = blocking(AsyncService.listdir)
    walk = direct(AsyncService.walk, Walk)
    mkdir = blocking(AsyncService.mkdir)
    remove = blocking(AsyncService.remove)
    rename = blocking(AsyncService.rename)
    chmod = blocking(AsyncService.chmod)
    forward = direct(AsyncService.forward, Forward)
    open_port = wrapping(AsyncService.open_port, PortStream)
    connection = blocking(AsyncService.connection)


class Sandbox(Service):
    __doc__ = AsyncSandbox.__doc__
    if TYPE_CHECKING:
        _async: AsyncSandbox

    info: SandboxInfo  # as it was when it was started or found

    __exit__ = blocking(AsyncSandbox.__aexit__)
    service = direct(AsyncSandbox.service, Service)
    disown = direct(AsyncSandbox.disown, lambda nothing: nothing)
    close = blocking(AsyncSandbox.close)
    journal = direct(AsyncSandbox.journal, Journal)
    renew = blocking(AsyncSandbox.renew)
    logs = blocking(AsyncSandbox.logs)
