"""Errors: one class for each error code, which also derives from Python's own error where one fits."""

from __future__ import annotations

import base64
import contextlib
import errno
from functools import partial
from typing import Any

_kinds: dict[str, type[FumehoodError]] = {}  # by code
_FIELDS = ("op", "service", "path", "hint", "flag")
PROCESSES_HINT = (
    "end what commands left behind with the sandbox's kill_all(), or run them with kill_rest=True; "
    "Limits(pids=...) of a new sandbox sets a higher limit"
)

# What hints call by the words of the command line and of JSON, and this package's words for it.
_WORDS = {
    "--allow-unsafe": "allow_unsafe=True",
    "--memory": "Limits(memory=...)",
    "--pids": "Limits(pids=...)",
    "--ulimit nproc=N": "Rlimits(processes=N)",
    "(-i)": "(stdin_open=True)",
    "journal=true": "journal=True",
}

# By flag of `fumehood serve`: what permits the same for a server that the client has started.
_PERMITS = {
    "allow-egress": "allow it with Client(allow_egress=True)",
    "allow-host-path": "allow it with Client(allow_host_paths=[...])",
    "allow-image": "choose the images with Client(allow_images=[...])",
    "allow-kept": "allow it with Client(allow_kept=True)",
    "allow-unsafe": "allow it with Client(allow_unsafe=True)",
    "idle": "allow a longer time with Client(idle=...)",
    "max-body": "allow more with Client(max_body=...)",
    "max-commands": "run fewer at a time, or allow more with Client(max_commands=...)",
    "max-memory": "allow more with Client(max_memory=...)",
    "max-sandboxes": "close some, or allow more with Client(max_sandboxes=...)",
    "max-upload": "send less, or allow more with Client(max_upload=...)",
}


class FumehoodError(Exception):
    """A failure of Fumehood, never of a program: how a program ended is in its Result.

    code is the class of the failure, op, service and path say what failed, hint what can be done, and status is the
    HTTP status if the server answered. flag is the flag of `fumehood serve` that permits what was refused, without its
    dashes.
    """

    _code = "infrastructure"
    _number: int | None = None

    def __init_subclass__(cls, code: str = "", number: int | None = None) -> None:
        """Set the code, which a class without one inherits, and the error number of an OSError."""
        cls._number = number
        if code:
            cls._code, _kinds[code] = code, cls

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        op: str = "",
        service: str = "",
        path: str = "",
        hint: str = "",
        flag: str = "",
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self._code
        self.op = op
        self.service = service
        self.path = path
        self.hint = hint
        self.flag = flag
        self.status = status
        error: BaseException = self
        if isinstance(error, OSError):
            error.errno, error.strerror, error.filename = self._number, message, path or None

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint and self.hint not in self.message else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("code", *_FIELDS, "status")}
        return partial(type(self), **fields), (self.message,)


class ConfigError(FumehoodError, ValueError, code="config"):
    """The request is invalid and will fail again: a bad option, an unknown image."""


class UnavailableError(FumehoodError, code="unavailable"):
    """The daemon does not answer, or what a sandbox needs has ended: its server, its container, a command."""


class BrokenError(UnavailableError, code="broken"):
    """Code in the sandbox made it unavailable, for example by using up the memory."""


class SandboxNotFoundError(FumehoodError, LookupError, code="sandbox-not-found"):
    """The client has no sandbox of that name, or no longer: it was removed."""


class ClosedError(FumehoodError, code="closed"):
    """The client, the sandbox or the session was closed by this program."""


class InfrastructureError(FumehoodError, code="infrastructure"):
    """Our side failed. The same call may succeed in a new sandbox."""


class ConnectionLostError(InfrastructureError, ConnectionError, number=errno.ECONNRESET):
    """The connection to the server broke, and the call could not be repeated."""


class ProtocolError(InfrastructureError):
    """The server's answer is malformed."""


class StaleError(InfrastructureError, code="stale"):
    """The lease or key belongs to a server that has ended. What it ran is unknown, and is never run again."""


class LimitError(FumehoodError, code="limit"):
    """A limit was reached; the message states it."""


class CanceledError(FumehoodError, code="canceled"):
    """The call was canceled, for example because its lease ended or its server stopped."""


class RequestTimeoutError(CanceledError, TimeoutError, number=errno.ETIMEDOUT):
    """The call's timeout expired. A command's own timeout is an outcome instead, see Result."""


class UnsupportedError(FumehoodError, NotImplementedError, code="unsupported"):
    """This provider, transport or platform cannot do what was requested."""


class NotStartedError(FumehoodError, code="not-started"):
    """The program could not be started, so nothing ran."""


class ProgramNotFoundError(NotStartedError, FileNotFoundError, code="program-not-found", number=errno.ENOENT):
    """The service has no such program."""


class NotExecutableError(NotStartedError, PermissionError, code="not-executable", number=errno.EACCES):
    """The file exists but may not be executed, or is not a program."""


class DirectoryNotFoundError(NotStartedError, FileNotFoundError, code="directory-not-found", number=errno.ENOENT):
    """The working directory does not exist or cannot be entered."""


class UserNotFoundError(NotStartedError, code="user-not-found"):
    """The user or group is unknown in the service. File operations raise it too."""


class NotFoundError(FumehoodError, FileNotFoundError, code="not-found", number=errno.ENOENT):
    """No such file or directory in the sandbox."""


class PermissionDeniedError(FumehoodError, PermissionError, code="permission-denied", number=errno.EACCES):
    """The user lacks the permission, or the server does not allow the request."""


class IsDirectoryError(FumehoodError, IsADirectoryError, code="is-a-directory", number=errno.EISDIR):
    """A file was expected, but the path is a directory."""


class NotDirectoryError(FumehoodError, NotADirectoryError, code="not-a-directory", number=errno.ENOTDIR):
    """A directory was expected, but the path is something else."""


class ExistsError(FumehoodError, FileExistsError, code="already-exists", number=errno.EEXIST):
    """The path already exists."""


class NotEmptyError(FumehoodError, OSError, code="not-empty", number=errno.ENOTEMPTY):
    """The directory is not empty."""


class TooLargeError(LimitError, code="too-large"):
    """The file, the body or the output exceeds the limit stated in the message."""


class NotRegularError(FumehoodError, OSError, code="not-a-regular-file", number=errno.EINVAL):
    """The path is a socket, a device or a pipe, which are never opened."""


class VersionError(ConfigError):
    """The client and the server have versions that do not fit."""


class ForkError(ConfigError, RuntimeError):
    """A client was used in a child process after fork. Create a client there instead."""


def from_json(body: object, status: int = 0, own: bool = False) -> FumehoodError:
    """Return the error that a server's JSON describes. An unknown code becomes an InfrastructureError.

    The hint of one of the client's own server names the argument of Client in the place of the server's flag.
    """
    given = body if isinstance(body, dict) else {}
    fields = {name: given[name] for name in _FIELDS if isinstance(given.get(name), str)}
    path = given.get("path")
    if isinstance(path, dict) and isinstance(path.get("base64"), str):  # it is not UTF-8
        with contextlib.suppress(ValueError):
            fields["path"] = base64.b64decode(path["base64"]).decode("utf-8", "surrogateescape")
    if own and fields.get("flag") in _PERMITS:
        fields["hint"] = _PERMITS[fields["flag"]]
    elif given.get("limit") == "processes":
        fields["hint"] = PROCESSES_HINT
    elif own and "hint" in fields:
        for theirs, ours in _WORDS.items():
            fields["hint"] = fields["hint"].replace(theirs, ours)
    code, message = given.get("class"), given.get("message")
    if not message or not isinstance(message, str):
        message = f"the server answered with status {status}"
    code = code if isinstance(code, str) else ""
    return _kinds.get(code, InfrastructureError)(message, code=code, status=status, **fields)
