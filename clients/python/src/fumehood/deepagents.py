"""Sandboxes for deepagents: `FumehoodSandbox(client.start(image))` in the place of `LocalShellBackend()`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import FumehoodError, Result, Sandbox
from ._adapter import ended, ended_blocking
from ._framework import expect, importing

with importing("deepagents", "deepagents", python=(3, 11)):
    from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
    from deepagents.backends.sandbox import BaseSandbox

    expect(BaseSandbox.execute, ["self", "command", "timeout"])
    expect(BaseSandbox.upload_files, ["self", "files"])
    expect(BaseSandbox.download_files, ["self", "paths"])

TIMED_OUT = 124  # the exit code of timeout(1)

# What deepagents calls the errors of a file, by their code. None is an error of its own.
_FILE_ERRORS = {
    "not-found": "file_not_found",
    "permission-denied": "permission_denied",
    "is-a-directory": "is_directory",
    "not-a-directory": "invalid_path",
    "not-a-regular-file": "invalid_path",
    "config": "invalid_path",
    "limit": None,
    "too-large": None,
}


class FumehoodSandbox(BaseSandbox):
    """A sandbox of Fumehood as the backend of an agent. Its image has a shell and python3, which deepagents needs.

    The sandbox belongs to its client: close it, or leave the client. timeout is that of commands without one, in
    seconds; None is none.
    """

    def __init__(self, sandbox: Sandbox, *, timeout: float | None = 30 * 60) -> None:
        self.sandbox = sandbox
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(64, "fumehood")  # each waits for a command of aexecute

    @property
    def id(self) -> str:
        """The sandbox's name."""
        return self.sandbox.info.name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command of a shell to its end, with both streams as one output. A timeout of 0 is none.

        A command that times out is killed with all its descendants and has exit code 124.
        """
        args, limit = self._command(command, timeout)
        return self._response(ended_blocking(lambda: self.sandbox.run(args, timeout=limit)), limit)

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a command as execute does. A task that is canceled ends it."""
        args, limit = self._command(command, timeout)
        started = self._threads.submit(self.sandbox.start, args, timeout=limit)

        async def run() -> Result:
            process = await asyncio.wrap_future(started)
            return await asyncio.wrap_future(self._threads.submit(process.wait))

        try:
            result = await ended(run())
        except asyncio.CancelledError:
            if not started.cancelled():
                with contextlib.suppress(FumehoodError):
                    await asyncio.to_thread(lambda: started.result().kill())
            raise
        return self._response(result, limit)

    def _command(self, command: str, timeout: int | None) -> tuple[list[str], float | None]:
        """Return a command's arguments and its time limit."""
        limit = self._timeout if timeout is None else timeout
        return ["/bin/sh", "-c", f"exec 2>&1; {command}"], limit or None

    def _response(self, result: Result, limit: float | None) -> ExecuteResponse:
        """Return how a command ended, and say what its exit code does not."""
        output, code, note = result.stdout.text + result.stderr.text, result.exit_code, ""
        if result.timed_out:
            code, note = TIMED_OUT, f"Error: Command timed out after {limit:g} seconds and was killed."
        elif result.usage.oom_kills and code:
            note = "Error: Out of memory: a process of the sandbox was killed."
        if note:
            output = f"{output.rstrip()}\n\n{note}".lstrip()
        return ExecuteResponse(output=output, exit_code=code, truncated=result.stdout.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Create or replace files, with missing directories above them, and return the error of each."""
        errors = [(path, self._try(self.sandbox.write, path, data)[1]) for path, data in files]
        return [FileUploadResponse(path=path, error=error) for path, error in errors]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Return the content of regular files, or the error of each."""
        results = [(path, *self._try(self.sandbox.read, path)) for path in paths]
        return [FileDownloadResponse(path=path, content=content, error=error) for path, content, error in results]

    def _try(self, call: Callable[..., bytes | None], path: str, *args: Any) -> tuple[bytes | None, str | None]:
        """Return the result of a call for a file, or its error. A failure of the sandbox is raised."""
        if not path.startswith("/"):
            return None, "invalid_path"
        try:
            return call(path, *args), None
        except FumehoodError as e:
            if e.code not in _FILE_ERRORS:
                raise
            return None, _FILE_ERRORS[e.code] or str(e)
