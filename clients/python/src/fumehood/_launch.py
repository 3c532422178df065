"""Finding a server: the bundled program, started with serve --stdio, or one that runs already."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from ._errors import ConfigError, InfrastructureError, RequestTimeoutError, from_json
from ._flags import with_arguments

Env = Mapping[str, str] | None
START = 30.0  # seconds that a server may take to start
STOP = 15.0  # seconds that a server may take to remove what it started
_MAX_LINE = 64 << 10
_LEVELS = {"DEBUG": logging.DEBUG, "INFO": logging.INFO, "WARN": logging.WARNING, "ERROR": logging.ERROR}

log = logging.getLogger("fumehood")
server_log = logging.getLogger("fumehood.server")


class _Forks:
    """Counts the forks that led to this process, and keeps the child from holding what belongs to its parent.

    A pipe or connection that a child of a fork holds as well would keep the server and its sandboxes alive after the
    parent's death. In the child each is replaced by /dev/null.
    """

    def __init__(self) -> None:
        self.count = 0
        self._held: weakref.WeakSet[Any] = weakref.WeakSet()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._in_child)

    def hold(self, held: Any) -> None:
        """Register an object with a method fileno."""
        self._held.add(held)

    def _in_child(self) -> None:
        self.count += 1
        held, self._held = list(self._held), weakref.WeakSet()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for each in held:
            with contextlib.suppress(OSError, ValueError):
                if (fd := each.fileno()) >= 0:
                    os.dup2(null, fd, inheritable=False)
        os.close(null)


forks = _Forks()


def find_binary() -> str:
    """Return the path of the program fumehood: $FUMEHOOD_BINARY, the wheel's own, or the one on the PATH."""
    if given := os.environ.get("FUMEHOOD_BINARY"):
        return given
    for path in _installed():
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("fumehood")
    if not found:
        raise ConfigError(
            "server: the program fumehood is not installed",
            hint="install a wheel for this platform, or name the program in FUMEHOOD_BINARY",
        )
    return found


def _installed() -> list[Path]:
    """Return where an installer puts the wheel's program."""
    name = "fumehood.exe" if sys.platform == "win32" else "fumehood"
    found: list[Path] = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        own = (f for f in metadata.files("fumehood") or () if f.name == name)
        found.extend(Path(str(f.locate())) for f in own if f.parent.name in ("bin", "scripts", "Scripts"))
    found.append(Path(sysconfig.get_path("scripts")) / name)
    found.append(Path(__file__).resolve().parent.parent / "bin" / name)  # pip install --target
    return found


class Server:
    """A server that this process has started. It ends, with all that it started, when its standard input closes."""

    _forks = -1  # until it has been started

    def __init__(self, binary: str, arguments: Sequence[str] = (), env: Env = None, timeout: float = START) -> None:
        wanted = server_log.getEffectiveLevel()
        level = "debug" if wanted <= logging.DEBUG else "info" if wanted <= logging.INFO else "warn"
        flags = ["--stdio", "--log-format", "json", "--log-level", level]
        command = [binary or find_binary(), "serve", *flags, *arguments]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, **(env or {})},
                start_new_session=True,  # the terminal's Ctrl-C is for this process, which ends the server
            )
        except OSError as e:
            raise ConfigError(f"server: cannot start {command[0]}: {e.strerror}") from e
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin: IO[bytes] = self._process.stdin
        self._lines: deque[str] = deque(maxlen=20)
        self._failures: deque[dict[str, Any]] = deque(maxlen=1)
        relay = (self._process, self._process.stderr, self._lines, self._failures)
        self._reader = threading.Thread(target=_relay, args=relay, name="fumehood-log", daemon=True)
        self._reader.start()
        forks.hold(self._stdin)
        self._forks = forks.count
        try:
            self.hello = self._read_hello(self._process.stdout, timeout)
        except BaseException:
            self._process.kill()
            self.stop(1)
            raise

    def _read_hello(self, stdout: IO[bytes], timeout: float) -> object:
        timer = threading.Timer(timeout, os.killpg, (self._process.pid, signal.SIGKILL))
        timer.daemon = True
        timer.start()
        with stdout:
            line = stdout.readline(_MAX_LINE)
        expired = timer.finished.is_set()
        timer.cancel()
        if expired:
            raise RequestTimeoutError("server: it did not start in time")
        try:
            return json.loads(line)
        except ValueError:
            if line.endswith(b"\n"):
                raise InfrastructureError("server: its first line is not JSON") from None
            words = self.last_words()
            if self._failures:  # it says why, such as an argument that it does not accept
                failure = self._failures[0]
                raise from_json({**failure, "message": with_arguments(f"server: {failure['msg']}")}) from None
            raise InfrastructureError(f"server: it ended at its start: {words}") from None

    def last_words(self) -> str:
        """Return how the server ended, with the last lines of its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        self._reader.join(1)
        status = self._process.poll()
        return "; ".join([f"status {status}" if status is not None else "it runs", *self._lines])

    @property
    def ended(self) -> bool:
        """Whether the server has ended."""
        return self._process.poll() is not None

    def __del__(self) -> None:
        if self._forks == forks.count and not self._stdin.closed:
            warnings.warn(f"unclosed server, process {self._process.pid}", ResourceWarning, stacklevel=2, source=self)
            self.abandon()

    def abandon(self) -> None:
        """Close the server's standard input without waiting for its end."""
        with contextlib.suppress(OSError):
            self._stdin.close()

    def stop(self, timeout: float = STOP) -> None:
        """Close the server's standard input and wait until it has removed what it started."""
        self.abandon()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            log.warning("the server did not end within %g s and is killed", timeout)
            self._process.kill()
            self._process.wait()
        self._reader.join(1)


def _relay(
    process: subprocess.Popen[bytes], stream: IO[bytes], lines: deque[str], failures: deque[dict[str, Any]]
) -> None:
    """Log what the server logs, as lines of JSON, and whatever else it writes, and reap the server."""
    with stream:
        while line := stream.readline(_MAX_LINE):
            text, level = line.decode("utf-8", "replace").rstrip(), logging.WARNING
            with contextlib.suppress(ValueError):
                record = json.loads(text)
                if isinstance(record, dict):
                    if "class" in record and isinstance(record.get("msg"), str):
                        failures.append(dict(record))
                    level = _LEVELS.get(record.pop("level", ""), logging.WARNING)
                    record.pop("time", None)
                    message = record.pop("msg", "")
                    text = " ".join([str(message), *(f"{name}={value}" for name, value in record.items())])
            lines.append(text)
            server_log.log(level, "%s", text)
    process.wait()
