"""Errors: one class for each error code, which also derives from Python's own error where one fits."""

from __future__ import annotations

import errno
from typing import Any


class FumehoodError(Exception):
    """A failure of Fumehood, never of a program: how a program ended is in its Result.

    code is the class of the failure as in JSON. op, service and path say what failed, hint what can be done, and
    status is the HTTP status if the server answered.
    """

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
        self.code = code or next((_CODES[kind] for kind in type(self).__mro__ if kind in _CODES), "infrastructure")
        self.op = op
        self.service = service
        self.path = path
        self.hint = hint
        self.status = status
        error: BaseException = self
        if isinstance(error, OSError):
            error.errno, error.strerror, error.filename = _ERRNOS.get(type(self)), message, path or None

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint and self.hint not in self.message else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = ("code", "op", "service", "path", "hint", "status")
        return _rebuild, (type(self), self.message, {name: getattr(self, name) for name in fields})


def _rebuild(kind: type[FumehoodError], message: str, fields: dict[str, Any]) -> FumehoodError:
    return kind(message, **fields)


class ConfigError(FumehoodError, ValueError):
    """The request is invalid and will fail again: a bad option, an unknown image."""


class UnavailableError(FumehoodError):
    """The sandbox, the service or the daemon does not exist, or no longer does."""


class BrokenError(UnavailableError):
    """Code in the sandbox made it unavailable, for example by using up the memory."""


class InfrastructureError(FumehoodError):
    """Our side failed. The same call may succeed in a new sandbox."""


class ConnectionLostError(InfrastructureError, ConnectionError):
    """The connection to the server broke, and the call could not be repeated."""


class ProtocolError(InfrastructureError):
    """The server's answer is malformed."""


class StaleError(InfrastructureError):
    """The lease or key belongs to a server that has ended. What it ran is unknown, and is never run again."""


class LimitError(FumehoodError):
    """A limit was reached; the message states it."""


class CanceledError(FumehoodError):
    """The call was canceled, for example because its lease ended or its server stopped."""


class RequestTimeoutError(CanceledError, TimeoutError):
    """The call's timeout expired. A command's own timeout is an outcome instead, see Result."""


class UnsupportedError(FumehoodError, NotImplementedError):
    """This provider, transport or platform cannot do what was requested."""


class NotStartedError(FumehoodError):
    """The program could not be started, so nothing ran."""


class ProgramNotFoundError(NotStartedError, FileNotFoundError):
    """The service has no such program."""


class NotExecutableError(NotStartedError, PermissionError):
    """The file exists but may not be executed, or is not a program."""


class DirectoryNotFoundError(NotStartedError, FileNotFoundError):
    """The working directory does not exist or cannot be entered."""


class UserNotFoundError(NotStartedError):
    """The user or group is unknown in the service. File operations raise it too."""


class NotFoundError(FumehoodError, FileNotFoundError):
    """No such file or directory in the sandbox."""


class PermissionDeniedError(FumehoodError, PermissionError):
    """The user lacks the permission, or the server does not allow the request."""


class IsDirectoryError(FumehoodError, IsADirectoryError):
    """A file was expected, but the path is a directory."""


class NotDirectoryError(FumehoodError, NotADirectoryError):
    """A directory was expected, but the path is something else."""


class ExistsError(FumehoodError, FileExistsError):
    """The path already exists."""


class NotEmptyError(FumehoodError, OSError):
    """The directory is not empty."""


class TooLargeError(LimitError):
    """The file, the body or the output exceeds the limit stated in the message."""


class NotRegularError(FumehoodError, OSError):
    """The path is a socket, a device or a pipe, which are never opened."""


class VersionError(ConfigError):
    """The client and the server have versions that do not fit."""


class ForkError(ConfigError, RuntimeError):
    """A client was used in a child process after fork. Create a client there instead."""


_BY_CODE: dict[str, type[FumehoodError]] = {
    "config": ConfigError,
    "unavailable": UnavailableError,
    "broken": BrokenError,
    "stale": StaleError,
    "limit": LimitError,
    "canceled": CanceledError,
    "unsupported": UnsupportedError,
    "not-started": NotStartedError,
    "program-not-found": ProgramNotFoundError,
    "not-executable": NotExecutableError,
    "directory-not-found": DirectoryNotFoundError,
    "user-not-found": UserNotFoundError,
    "not-found": NotFoundError,
    "permission-denied": PermissionDeniedError,
    "is-a-directory": IsDirectoryError,
    "not-a-directory": NotDirectoryError,
    "already-exists": ExistsError,
    "not-empty": NotEmptyError,
    "too-large": TooLargeError,
    "not-a-regular-file": NotRegularError,
    "infrastructure": InfrastructureError,
}
_CODES = {kind: code for code, kind in _BY_CODE.items()}
_ERRNOS: dict[type[FumehoodError], int] = {
    ConnectionLostError: errno.ECONNRESET,
    RequestTimeoutError: errno.ETIMEDOUT,
    ProgramNotFoundError: errno.ENOENT,
    NotExecutableError: errno.EACCES,
    DirectoryNotFoundError: errno.ENOENT,
    NotFoundError: errno.ENOENT,
    PermissionDeniedError: errno.EACCES,
    IsDirectoryError: errno.EISDIR,
    NotDirectoryError: errno.ENOTDIR,
    ExistsError: errno.EEXIST,
    NotEmptyError: errno.ENOTEMPTY,
    NotRegularError: errno.EINVAL,
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
