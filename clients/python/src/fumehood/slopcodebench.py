"""The runtimes of SlopCodeBench over fumehood.session.

    fumehood.slopcodebench.register(replace=True)  # environments of type docker run in sandboxes of Fumehood

`python -m fumehood.slopcodebench run ...` is SlopCodeBench's command line with these runtimes. Without replace,
register adds the environment type fumehood, see FumehoodEnvironmentSpec.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from . import Client, FumehoodError, Mount, Port, Result
from ._adapter import FLAGS, GONE, explain, mark_missing, settle, start_failure
from ._framework import expect, importing
from .session import ExecuteOptions, Session, SessionChunk, SessionEnd, SessionResult, SpawnOptions

_WITH = ["static_assets", "ports", "mounts", "env_vars", "setup_command"]
_ONLY_KEYWORDS = ["is_evaluation", "disable_setup", "runtime_kwargs"]

with importing("slopcodebench", "slop-code-bench", "it is at github.com/SprocketLab/slop-code-bench", python=(3, 12)):
    from slop_code.execution.assets import ResolvedStaticAsset
    from slop_code.execution.docker_runtime import DockerEnvironmentSpec
    from slop_code.execution.protocols import ExecRuntime, StreamingRuntime
    from slop_code.execution.runtime import (
        RuntimeEvent,
        RuntimeResult,
        SolutionRuntimeError,
        _ensure_runtimes_registered,
        register_exec_runtime,
        register_streaming_runtime,
    )
    from slop_code.logging import get_logger

    expect(StreamingRuntime.spawn, ["environment", "working_dir", *_WITH, *_ONLY_KEYWORDS])
    expect(StreamingRuntime.stream, ["self", "command", "env", "timeout"])
    expect(ExecRuntime.spawn, ["environment", "working_dir", "command", *_WITH, *_ONLY_KEYWORDS])
    expect(ExecRuntime.execute, ["self", "env", "stdin", "timeout"])

__all__ = ["FumehoodEnvironmentSpec", "FumehoodExecRuntime", "FumehoodStreamingRuntime", "close", "register"]

_LONGEST = 7200.0  # seconds of a streamed command that has no timeout
_KEPT = 64 << 20  # bytes that execute keeps of each stream, of its end; a line says how many are missing before
_KILLED = -9  # the exit code of a command that this process has killed

_log = get_logger(__name__)

_Limits = Mapping[str, int | float | str]
_limits: _Limits = {}
_unsafe = False
_clients: dict[tuple[int, bool], Client] = {}  # by process, since SlopCodeBench's workers are forks, and by _unsafe
_free: dict[str, list[Session]] = {}  # sessions that no container uses, by what they have in common


class FumehoodEnvironmentSpec(DockerEnvironmentSpec):
    """An environment of the type fumehood. It has the keys of one of the type docker."""

    type: Literal["fumehood"] = "fumehood"


def register(*, replace: bool = False, limits: _Limits | None = None, allow_unsafe: bool = False) -> None:
    """Register the runtimes for the environment type fumehood, and with replace in place of those for docker.

    limits are those of each container, as in an environment spec: {"memory": "8GiB", "cpus": 2, "pids": 500}.
    allow_unsafe allows, and logs, what breaks the isolation: networks other than bridge and none, mounts that give
    access to this machine, and "none" as a limit.
    """
    _ensure_runtimes_registered()  # otherwise the first spawn does it, and replaces these
    global _limits, _unsafe
    _limits, _unsafe = dict(limits or {}), allow_unsafe
    for kind in ("fumehood", "docker") if replace else ("fumehood",):
        register_streaming_runtime(kind)(FumehoodStreamingRuntime)
        register_exec_runtime(kind)(FumehoodExecRuntime)


def close() -> None:
    """End the servers of this process, with all containers. The end of the process does the same."""
    for unsafe in (False, True):
        if client := _clients.pop((os.getpid(), unsafe), None):
            client.close()
    _free.clear()


@contextlib.contextmanager
def _reporting() -> Iterator[None]:
    """Raise a failure of Fumehood as the error that SlopCodeBench expects."""
    try:
        yield
    except FumehoodError as e:
        text = explain(e, {"--allow-unsafe": "allow_unsafe=True"}, "fumehood.slopcodebench.register allows")
        raise SolutionRuntimeError(f"fumehood: {text}") from e


@dataclass(frozen=True)
class _Launch:
    """What a runtime was spawned with. The fields have the names and the order of SlopCodeBench's parameters."""

    environment: DockerEnvironmentSpec
    working_dir: Path
    static_assets: Mapping[str, ResolvedStaticAsset] | None = None
    ports: Mapping[int, int] | None = None
    mounts: Mapping[str, Mapping[str, str] | str] | None = None
    env_vars: Mapping[str, str] | None = None
    setup_command: str | None = None
    image: str | None = None
    user: str | None = None
    is_evaluation: bool = False
    disable_setup: bool = False

    def session(self) -> dict[str, Any]:
        """Return the spec of a session of Fumehood for it."""
        given = self.environment.docker
        docker = {"image": given.image, "workdir": given.workdir, "mount_workspace": given.mount_workspace}
        docker["network"] = self.environment.effective_network_mode()
        return {"type": "docker", "docker": docker, "setup": {"login_shell": True}, "limits": _limits}

    def spawn(self) -> SpawnOptions:
        """Return the options to spawn a runtime of Fumehood."""
        spec = self.environment
        user = spec.get_eval_user() if self.is_evaluation else spec.get_actual_user()
        published = spec.effective_network_mode() not in ("host", "none")  # else Docker ignores the ports
        return {
            "image": self.image or spec.get_base_image(),
            "user": user if self.user is None else self.user,
            "ports": [Port(inside, host) for host, inside in (self.ports or {}).items() if published],
            "mounts": list(self._mounts()),
            "disable_setup": self.disable_setup,
        }

    def _mounts(self) -> Iterator[Mount]:
        docker = self.environment.docker
        if docker.mount_workspace:
            yield self._mount(".", {"bind": docker.workdir})
        for host, target in docker.extra_mounts.items():
            if isinstance(target, str) and target.startswith(docker.workdir):
                raise ValueError(f"docker.extra_mounts: {target} lies in the working directory {docker.workdir}")
            yield self._mount(host, target)
        for host, target in (self.mounts or {}).items():
            yield self._mount(host, target)
        for asset in (self.static_assets or {}).values():
            path = str(asset.absolute_path)
            yield Mount(path, str(PurePosixPath("/static", asset.save_path.as_posix())))
            if self.environment.type != "docker":  # {{static:NAME}} is then the path on this machine
                yield Mount(path, path)

    def _mount(self, host: str, target: Mapping[str, str] | str) -> Mount:
        if isinstance(target, str):
            bind, _, mode = target.partition(":")
            target = {"bind": bind, "mode": mode or "ro"}
        writable = "ro" not in target.get("mode", "rw").split(",")
        return Mount(str((self.working_dir / host).resolve()), target["bind"], writable)

    def options(self, env: Mapping[str, str], timeout: float | None, stdin: Any, keep: int) -> ExecuteOptions:
        """Return the options of a command."""
        full = self.environment.get_full_env({**(self.env_vars or {}), **env})
        return {"env": full, "timeout": timeout, "stdin": stdin, "stdout_cap": keep, "stderr_cap": keep}

    def script(self, command: str) -> tuple[str, dict[str, _Output]]:
        """Return a command after its setup, and their output. A session's own setup would have a time limit apart."""
        setup = self.environment.get_setup_commands(is_evaluation=self.is_evaluation)
        if self.setup_command:
            setup = [*setup, self.setup_command]
        marker = ""
        if setup and not self.disable_setup:
            marker = f"fumehood-{secrets.token_hex(16)}"
            command = "\n".join([*setup, f"printf %s {marker}; printf %s {marker} >&2", command])
        return command, {"stdout": _Output(marker), "stderr": _Output(marker)}


class _Container:
    """A runtime of Fumehood, in a session that no other one uses: sessions start their runtimes one by one."""

    def __init__(self, launch: _Launch) -> None:
        spec, options, which = launch.session(), launch.spawn(), (os.getpid(), _unsafe)
        free = self._free = _free.setdefault(json.dumps([which, spec, options["user"]]), [])
        try:
            session = free.pop()
        except IndexError:
            client = _clients.setdefault(which, Client(arguments=[*FLAGS, *["--allow-unsafe"] * _unsafe]))
            uid, gid = os.environ.get("HUID", ""), os.environ.get("HGID", "")
            with tempfile.TemporaryDirectory() as empty:  # the working directory is mounted in place of its copy
                session = client.open_session(spec, workspace=empty, huid=uid, hgid=gid, allow_unsafe=_unsafe)
        try:
            self.runtime = session.spawn(**options)
        except BaseException:
            free.append(session)
            raise
        self.killed = False
        self._sessions = [session]
        self._say("Started container", image=options["image"], user=options["user"])

    def _say(self, event: str, **about: Any) -> None:
        """Log an event as SlopCodeBench's Docker runtimes do."""
        _log.debug(event, container=self.runtime.id, **about, verbose=True)

    def began(self, command: str, timeout: float | None) -> None:
        """Log that a command starts."""
        self._say("Starting containerized execution", command=command[:200], timeout=timeout)

    def ended(self, result: RuntimeResult) -> None:
        """Log how a command ended."""
        about = {"exit_code": result.exit_code, "elapsed": result.elapsed, "timed_out": result.timed_out}
        self._say("Containerized execution completed", **about)

    def remove(self) -> None:
        """Kill the command and remove the container."""
        self.killed = True
        with contextlib.suppress(IndexError, *GONE):  # another thread does it, or it is gone with its server
            session = self._sessions.pop()
            self.runtime.kill()
            self._free.append(session)
            self._say("Removed container")


class _Output:
    """The text of one stream of a script. Without the marker, all of it is the command's."""

    def __init__(self, marker: str) -> None:
        self._marker = marker.encode()
        self._held = bytearray()  # until the marker arrives
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.setup = ""
        self.texts: list[str] = []

    def take(self, data: bytes, last: bool = False) -> str:
        """Add output, and return what the command is known to have written of it."""
        if self._marker:
            start = max(len(self._held) - len(self._marker), 0)
            self._held += data
            at = self._held.find(self._marker, start)
            if at < 0 and not last:
                return ""
            self.setup = self._held[: max(at, 0)].decode("utf-8", "replace")
            data, self._marker = bytes(self._held[at + len(self._marker) if at >= 0 else 0 :]), b""
        text = self._decoder.decode(data, last)
        self.texts.append(text)
        return text


def _result(
    ended: SessionResult | Result, outputs: dict[str, _Output], started: float, killed: bool, late: int
) -> RuntimeResult:
    """Return a result of SlopCodeBench. late is the exit code of a command that has timed out."""
    for output in outputs.values():
        output.take(b"", last=True)
    out, err = outputs["stdout"], outputs["stderr"]
    if ended.timed_out:
        code = late
    elif killed and ended.outcome == "lost":
        code = _KILLED
    else:
        code = settle(ended).exit_code
    return RuntimeResult(
        exit_code=code,
        stdout="".join(out.texts),
        stderr="".join(err.texts),
        setup_stdout=out.setup,
        setup_stderr=err.setup,
        elapsed=time.monotonic() - started,
        timed_out=ended.timed_out,
    )


class _Runtime:
    """A container that runs one command at a time. The first command starts it."""

    def __init__(self, command: str, /, *args: Any, **kwargs: Any) -> None:
        known = {name: value for name, value in kwargs.items() if name in _Launch.__annotations__}
        self._launch = _Launch(*args, **known)
        if not isinstance(self._launch.environment, DockerEnvironmentSpec):
            raise ValueError("fumehood: wanted an environment of the type docker or fumehood")
        self._command = command
        self._container: _Container | None = None
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code of the last command: None while it runs, and before the first."""
        return self._exit_code

    def kill(self) -> None:
        """Kill the command and remove the container, if there are any. A later command starts another one."""
        container, self._container = self._container, None
        if container is not None:
            with _reporting():
                container.remove()

    cleanup = kill


class FumehoodStreamingRuntime(_Runtime, StreamingRuntime):
    """A container for the commands of an agent."""

    @classmethod
    def spawn(cls, environment: Any, working_dir: Path, *args: Any, **kwargs: Any) -> FumehoodStreamingRuntime:
        """Return a runtime, with all parameters of SlopCodeBench's Docker runtime."""
        return cls("", environment, working_dir, *args, **kwargs)

    def stream(self, command: str, env: dict[str, str], timeout: float | None) -> Iterator[RuntimeEvent]:
        """Run a command after the setup, and yield what it writes as it arrives, and finally its result.

        Leaving the iteration early kills the command.
        """
        self._exit_code, code = None, _KILLED
        try:
            with _reporting():
                container = self._container = self._container or _Container(self._launch)
                (script, outputs), started = self._launch.script(command), time.monotonic()
                options = self._launch.options(env, timeout or _LONGEST, None, keep=-1)  # outputs keep it
                container.began(command, timeout)
                try:
                    with container.runtime.stream(script, **options) as events:
                        for event in events:
                            if isinstance(event, SessionChunk) and (text := outputs[event.stream].take(event.data)):
                                yield RuntimeEvent(kind=event.stream, text=text)
                    assert isinstance(event, SessionEnd)  # otherwise there was an error
                    ended: SessionResult | Result = event.result
                except FumehoodError as e:
                    ended = start_failure(e, op="stream")
                    outputs["stderr"].take(ended.stderr.data)
                    yield RuntimeEvent(kind="stderr", text=ended.stderr.text)
                result = _result(ended, outputs, started, container.killed, late=-1)
                if ended.outcome == "lost":
                    self.kill()
            code = result.exit_code
            container.ended(result)
        except SolutionRuntimeError:
            self.kill()
            raise
        finally:
            self._exit_code = code
        yield RuntimeEvent(kind="finished", result=result)


class FumehoodExecRuntime(_Runtime, ExecRuntime):
    """Runs one command, each time in a new container."""

    @classmethod
    def spawn(cls, environment: Any, working_dir: Path, command: str, *args: Any, **kwargs: Any) -> FumehoodExecRuntime:
        """Return a runtime for a command, with all parameters of SlopCodeBench's Docker runtime."""
        return cls(command, environment, working_dir, *args, **kwargs)

    def execute(self, env: dict[str, str], stdin: str | list[str] | None, timeout: float | None) -> RuntimeResult:
        """Run the command after the setup in a new container, remove it, and return how the command ended."""
        self._exit_code, started = None, time.monotonic()
        script, outputs = self._launch.script(self._command)
        limit = None if timeout is None else max(timeout, 0.001)
        options = self._launch.options(env, limit, stdin, keep=_KEPT)
        with _reporting():
            container = self._container = _Container(self._launch)
            container.began(self._command, timeout)
            try:
                try:
                    ended: SessionResult | Result = container.runtime.execute(script, **options)
                except FumehoodError as e:
                    ended = start_failure(e, op="execute")
                outputs["stdout"].take(mark_missing(ended.stdout))
                outputs["stderr"].take(mark_missing(ended.stderr))
                result = _result(ended, outputs, started, container.killed, late=_KILLED)
                container.ended(result)
            finally:
                self.kill()
        self._exit_code = result.exit_code
        return result


def main() -> None:
    """Run SlopCodeBench's command line, with these runtimes in place of those for docker."""
    from slop_code.entrypoints.cli import app

    register(replace=True)
    app()


if __name__ == "__main__":
    main()
