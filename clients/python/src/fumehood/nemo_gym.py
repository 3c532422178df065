"""A sandbox provider for NeMo Gym: `{"fumehood": {}}` as the provider of its sandboxes.

NeMo Gym finds it by an entry point. sample_fields says whether a rollout has a reward.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import AsyncSandbox, BrokenError, ConfigError, FumehoodError, Limits, NotStartedError, UnsupportedError
from ._adapter import GONE, Clients, Loops, download_file, ended, mark_missing, upload_file
from ._framework import expect, importing

with importing("nemo_gym", "nemo-gym", python=(3, 12)):
    from nemo_gym.sandbox.providers.base import (
        SandboxCreateError,
        SandboxExecResult,
        SandboxHandle,
        SandboxProvider,
        SandboxSpec,
        SandboxStatus,
    )

    expect(SandboxProvider.create, ["self", "spec"])
    expect(SandboxProvider.exec, ["self", "handle", "command", "cwd", "env", "timeout_s", "user"])
    expect(SandboxProvider.upload_file, ["self", "handle", "source_path", "target_path"])
    expect(SandboxProvider.download_file, ["self", "handle", "source_path", "target_path"])

OPTIONS = ("network", "pids", "runtime", "shm_size", "tmpfs", "user")  # of the provider and of provider_options

# An exit code that NeMo Gym's own providers have for what is no end of a program, and the values of error_type.
NO_CODE, TIMEOUT, SANDBOX = 125, "timeout", "sandbox"

# A rollout whose result has this key goes to the collector's file of failures, and has another attempt.
FAILURE_CLASS = "_ng_failure_class"

# Codes of errors that code in the sandbox can cause, for example by what it leaves at the path of a file.
_CAUSED_INSIDE = {
    "broken", "limit", "too-large", "not-found", "permission-denied", "is-a-directory", "not-a-directory",
    "already-exists", "not-empty", "not-a-regular-file",
}  # fmt: skip

_loops = Loops(Clients)  # the users of clients are sandboxes


@dataclass
class _Raw:
    """The sandbox of a handle."""

    sandbox: AsyncSandbox
    clients: Clients | None  # None after close
    shell: str = "/bin/sh"
    expiry: asyncio.Task[None] | None = None
    late: str = ""  # says that ttl_s has passed


class FumehoodProvider:
    """Starts sandboxes of Fumehood. All of an event loop share a server, which ends with the last one.

    options are those of AsyncClient.start that OPTIONS names; pids limits the number of processes. The same ones in a
    SandboxSpec's provider_options go before.
    """

    name = "fumehood"

    def __init__(self, **options: Any) -> None:
        self._options = _checked(options)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a sandbox. ready_timeout_s limits the start, with the pull of the image.

        What cannot be done as the spec requests is a SandboxCreateError. Metadata are labels of the sandbox.
        """
        settings, clients = self._settings(spec), _loops.running()
        clients.users += 1
        try:
            return await self._create(clients, spec, settings)
        except BaseException as e:
            await _leave(clients)
            if isinstance(e, FumehoodError):
                raise SandboxCreateError(f"fumehood: {e}") from e
            raise

    async def _create(self, clients: Clients, spec: SandboxSpec, settings: dict[str, Any]) -> SandboxHandle:
        sandbox = await clients.client().start(timeout=spec.ready_timeout_s, **settings)
        raw = _Raw(sandbox, clients)
        try:
            if (await ended(sandbox.run(["bash", "-c", ":"]))).exit_code == 0:
                raw.shell = "bash"
        except BaseException:
            await sandbox.close()
            raise
        if spec.ttl_s is not None:
            raw.expiry = asyncio.create_task(_expire(raw, spec.ttl_s))
        return SandboxHandle(sandbox_id=sandbox.name, provider_name=self.name, raw=raw)

    def _settings(self, spec: SandboxSpec) -> dict[str, Any]:
        """Return the options of AsyncClient.start."""
        resources = spec.resources
        unsupported = {
            "entrypoint": spec.entrypoint,
            "ports": getattr(spec, "ports", ()),  # newer versions have them
            "resources.gpu": resources.gpu,
            "resources.gpu_type": resources.gpu_type,
        }
        for name, value in unsupported.items():
            if value:
                raise SandboxCreateError(f"fumehood: spec.{name}: not supported: leave it out")
        if not spec.image:
            raise SandboxCreateError("fumehood: spec.image: required")
        try:
            options = {**self._options, **_checked(spec.provider_options)}
        except ConfigError as e:
            raise SandboxCreateError(f"fumehood: {e}") from e
        labels = {re.sub(r"[^A-Za-z0-9._-]", "_", str(name)): str(value) for name, value in spec.metadata.items()}
        if len(labels) < len(spec.metadata):
            raise SandboxCreateError(f"fumehood: spec.metadata: keys are the same as labels: {sorted(spec.metadata)}")
        memory, disk = (resources.memory_mib or 0) << 20, (resources.disk_gib or 0) << 30
        options["limits"] = Limits(memory, resources.cpu or 0, options.pop("pids", 0), disk)
        image = spec.image.removeprefix("docker://")  # as some other providers need it
        return {"image": image, "env": spec.env, "cwd": spec.workdir or "", "labels": labels, **options}

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
    ) -> SandboxExecResult:
        """Run a command to its end, in bash or, if the image has none, in /bin/sh. timeout_s of None is no limit.

        A result with an error_type has the return_code 125: "timeout" for a command that was killed with all its
        descendants after timeout_s, and "sandbox" for one whose end nobody knows, because the sandbox is gone or
        Fumehood failed. stderr says why.
        """
        raw: _Raw = handle.raw
        chosen = "" if user is None else str(user)
        run = raw.sandbox.run([raw.shell, "-c", command], cwd=cwd or "", env=env, timeout=timeout_s, user=chosen)
        try:
            result = await ended(run)
        except (ConfigError, UnsupportedError):
            raise
        except FumehoodError as e:
            return SandboxExecResult(None, f"fumehood: {e}{raw.late}", NO_CODE, SANDBOX)
        stdout, stderr = (mark_missing(each).decode("utf-8", "replace") for each in (result.stdout, result.stderr))
        if result.timed_out:
            said = f"{stderr}\nfumehood: the command was killed after {timeout_s:g} seconds".lstrip()
            return SandboxExecResult(stdout, said, NO_CODE, TIMEOUT)
        return SandboxExecResult(stdout, stderr, result.exit_code)

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Create or replace a file of the sandbox's user, and create missing directories above it."""
        await upload_file(handle.raw.sandbox, source_path, target_path)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a regular file of at most 10 GiB. It appears when it is complete."""
        target_path.parent.mkdir(parents=True, exist_ok=True)
        await download_file(handle.raw.sandbox, source_path, target_path)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Return "running", "stopped", "error" if code in the sandbox made it unavailable, or "unknown"."""
        try:
            await handle.raw.sandbox.connection()
        except BrokenError:
            return SandboxStatus.ERROR
        except GONE:
            return SandboxStatus.STOPPED
        except FumehoodError:
            return SandboxStatus.UNKNOWN
        return SandboxStatus.RUNNING

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the sandbox. It may be called again."""
        raw: _Raw = handle.raw
        clients, raw.clients = raw.clients, None
        if clients is None:
            return
        if raw.expiry is not None:
            raw.expiry.cancel()
        try:
            await raw.sandbox.close()
        finally:
            await _leave(clients)

    async def aclose(self) -> None:
        """Do nothing: the server ends with the last sandbox, also of other providers in the event loop."""


def sample_fields(outcome: SandboxExecResult | Exception) -> dict[str, Any]:
    """Return the fields of a rollout's result that say whether it has a reward, by how a call of a sandbox ended.

    A failure that code in the sandbox did not cause masks the sample: mask_sample is True, failure_kind is
    "infrastructure", failure_reason says what happened, and the collector tries the rollout again. All that a program
    causes is scored: with any exit code, a timeout (failure_kind is then "timeout"), or a file that is missing.
    """
    kind: str | None = None
    reason: str | None = None
    if isinstance(outcome, SandboxExecResult):
        if outcome.error_type is not None:
            kind, reason = outcome.error_type, outcome.stderr or ""
    else:
        inside = isinstance(outcome, NotStartedError) or getattr(outcome, "code", "") in _CAUSED_INSIDE
        kind, reason = "program" if inside else SANDBOX, str(outcome) or type(outcome).__name__
    if kind in (None, TIMEOUT, "program"):
        return {"mask_sample": False, "failure_kind": kind, "failure_reason": reason}
    kind = "infrastructure"
    return {"mask_sample": True, "failure_kind": kind, "failure_reason": reason, FAILURE_CLASS: kind}


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options, or raise a ConfigError for one that does not exist."""
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise ConfigError(f"provider options: unknown: {', '.join(unknown)}", hint=f"there are {', '.join(OPTIONS)}")
    return dict(options)


async def _expire(raw: _Raw, ttl: float) -> None:
    """Remove a sandbox after some seconds."""
    await asyncio.sleep(ttl)
    raw.late = f" (its ttl_s of {ttl:g} seconds has passed)"
    with contextlib.suppress(FumehoodError):  # it ends with its client, too
        await raw.sandbox.close()


async def _leave(clients: Clients) -> None:
    """End the server of an event loop with its last sandbox."""
    clients.users -= 1
    if not clients.users:
        await clients.close()
