"""Errors: one class for each error code, which also derives from Python's own error where one fits."""

from __future__ import annotations

import errno
from typing import Any


class FumehoodError(Exception):
    """A failure of Fumehood, never of a program: how a program ended is in its Result.

    code is the class of the failure as in JSON. op, service and path say what failed, hint what can be done, and
    status is the HTTP status if the server answered.
    """

    code = "infrastructure"
    _errno: int | None = None

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        op: str = "",
        service: str = "",
        path: str = "",
        hint: str = "",
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        if code:
            self.code = code
        self.op = op
        self.service = service
        self.path = path
        self.hint = hint
        self.status = status
        error: BaseException = self
        if isinstance(error, OSError):
            error.errno, error.strerror, error.filename = self._errno, message, path or None

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint and self.hint not in self.message else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = ("code", "op", "service", "path", "hint", "status")
        return _rebuild, (type(self), self.message, {name: getattr(self, name) for name in fields})


def _rebuild(kind: type[FumehoodError], message: str, fields: dict[str, Any]) -> FumehoodError:
    return kind(message, **fields)


class ConfigError(FumehoodError, ValueError):
    """The request is invalid and will fail again: a bad option, an unknown image."""

    code = "config"


class UnavailableError(FumehoodError):
    """The sandbox, the service or the daemon does not exist, or no longer does."""

    code = "unavailable"


class BrokenError(UnavailableError):
    """Code in the sandbox made it unavailable, for example by using up the memory."""

    code = "broken"


class InfrastructureError(FumehoodError):
    """Our side failed. The same call may succeed in a new sandbox."""


class ConnectionLostError(InfrastructureError, ConnectionError):
    """The connection to the server broke, and the call could not be repeated."""

    _errno = errno.ECONNRESET


class ProtocolError(InfrastructureError):
    """The server's answer is malformed."""


class StaleError(InfrastructureError):
    """The lease or key belongs to a server that has ended. What it ran is unknown, and is never run again."""

    code = "stale"


class LimitError(FumehoodError):
    """A limit was reached; the message states it."""

    code = "limit"


class CanceledError(FumehoodError):
    """The call was canceled, for example because its lease ended or its server stopped."""

    code = "canceled"


class RequestTimeoutError(CanceledError, TimeoutError):
    """The call's timeout expired. A command's own timeout is an outcome instead, see Result."""

    _errno = errno.ETIMEDOUT


class UnsupportedError(FumehoodError, NotImplementedError):
    """This provider, transport or platform cannot do what was requested."""

    code = "unsupported"


class NotStartedError(FumehoodError):
    """The program could not be started, so nothing ran."""

    code = "not-started"


class ProgramNotFoundError(NotStartedError, FileNotFoundError):
    """The service has no such program."""

    code = "program-not-found"
    _errno = errno.ENOENT


class NotExecutableError(NotStartedError, PermissionError):
    """The file exists but may not be executed, or is not a program."""

    code = "not-executable"
    _errno = errno.EACCES


class DirectoryNotFoundError(NotStartedError, FileNotFoundError):
    """The working directory does not exist or cannot be entered."""

    code = "directory-not-found"
    _errno = errno.ENOENT


class UserNotFoundError(NotStartedError):
    """The user or group is unknown in the service. File operations raise it too."""

    code = "user-not-found"


class NotFoundError(FumehoodError, FileNotFoundError):
    """No such file or directory in the sandbox."""

    code = "not-found"
    _errno = errno.ENOENT


class PermissionDeniedError(FumehoodError, PermissionError):
    """The user lacks the permission, or the server does not allow the request."""

    code = "permission-denied"
    _errno = errno.EACCES


class IsDirectoryError(FumehoodError, IsADirectoryError):
    """A file was expected, but the path is a directory."""

    code = "is-a-directory"
    _errno = errno.EISDIR


class NotDirectoryError(FumehoodError, NotADirectoryError):
    """A directory was expected, but the path is something else."""

    code = "not-a-directory"
    _errno = errno.ENOTDIR


class ExistsError(FumehoodError, FileExistsError):
    """The path already exists."""

    code = "already-exists"
    _errno = errno.EEXIST


class NotEmptyError(FumehoodError, OSError):
    """The directory is not empty."""

    code = "not-empty"
    _errno = errno.ENOTEMPTY


class TooLargeError(LimitError):
    """The file, the body or the output exceeds the limit stated in the message."""

    code = "too-large"


class NotRegularError(FumehoodError, OSError):
    """The path is a socket, a device or a pipe, which are never opened."""

    code = "not-a-regular-file"
    _errno = errno.EINVAL


class VersionError(ConfigError):
    """The client and the server have versions that do not fit."""


class ForkError(FumehoodError, RuntimeError):
    """A client was used in a child process after fork. Create a client there instead."""

    code = "config"


_BY_CODE: dict[str, type[FumehoodError]] = {
    kind.code: kind
    for kind in (
        ConfigError,
        UnavailableError,
        BrokenError,
        InfrastructureError,
        StaleError,
        LimitError,
        CanceledError,
        UnsupportedError,
        NotStartedError,
        ProgramNotFoundError,
        NotExecutableError,
        DirectoryNotFoundError,
        UserNotFoundError,
        NotFoundError,
        PermissionDeniedError,
        IsDirectoryError,
        NotDirectoryError,
        ExistsError,
        NotEmptyError,
        TooLargeError,
        NotRegularError,
    )
}


def from_json(body: object, status: int = 0) -> FumehoodError:
    """Return the error that a server's JSON describes. An unknown code becomes an InfrastructureError."""
    fields = body if isinstance(body, dict) else {}

    def text(name: str) -> str:
        value = fields.get(name)
        return value if isinstance(value, str) else ""

    code = text("code")
    kind = _BY_CODE.get(code, InfrastructureError)
    message = text("message") or f"the server answered with status {status}"
    return kind(
        message, code=code, op=text("op"), service=text("service"), path=text("path"), hint=text("hint"), status=status
    )
