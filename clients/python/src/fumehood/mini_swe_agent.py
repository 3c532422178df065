"""An environment for mini-swe-agent: `environment_class: fumehood.mini_swe_agent.FumehoodEnvironment`."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from typing import Any, Literal

from . import Limits, Result, Sandbox, UnavailableError
from ._adapter import Shared, ended_blocking, mark_missing
from ._framework import expect, importing

with importing("mini_swe_agent", "mini-swe-agent"):
    from minisweagent.environments.docker import DockerEnvironment
    from minisweagent.exceptions import Submitted
    from minisweagent.utils.serialize import recursive_merge
    from pydantic import BaseModel, ConfigDict, Field

    expect(DockerEnvironment.execute, ["self", "action", "cwd", "timeout"])

_KEPT = 64 << 20  # bytes of a command's output, of its end; a line says how many are missing before
_MERGED = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh"]  # runs a command with both streams as one
_UNAME = ["/bin/sh", "-c", "for each in s n r v m; do uname -$each || exit; done"]
_SUBMIT = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"

_shared = Shared()  # by all environments of this process


class FumehoodEnvironmentConfig(BaseModel):
    """What a sandbox consists of, and how commands run in it. The names are those of DockerEnvironmentConfig."""

    model_config = ConfigDict(extra="forbid")

    image: str
    cwd: str = "/"  # the working directory of commands
    env: dict[str, str] = Field(default_factory=dict)  # of commands
    forward_env: list[str] = Field(default_factory=list)  # variables of this process that commands see; env goes before
    timeout: float = Field(default=30, gt=0)  # seconds of a command
    interpreter: list[str] = Field(default_factory=lambda: ["bash", "-lc"])  # its last argument is the command
    pull_timeout: float = Field(default=600, gt=0)  # seconds until the sandbox has started, with the pull of its image
    network: Literal["none", "bridge"] = "none"  # "bridge" reaches the internet and this machine
    memory: int = 0  # bytes; 0 means 2 GiB
    cpus: float = 0  # 0 means no limit
    pids: int = 0  # 0 means 1024


class FumehoodEnvironment:
    """A sandbox of Fumehood as an agent's environment. It ends with cleanup, with this object or with the process.

    All environments of a process share a server.
    """

    sandbox: Sandbox | None = None  # None after cleanup

    def __init__(
        self, *, config_class: type = FumehoodEnvironmentConfig, logger: logging.Logger | None = None, **config: Any
    ) -> None:
        """Start the sandbox. config has the fields of config_class."""
        self.logger = logger or logging.getLogger("minisweagent.environment")
        self.config = c = config_class(**config)
        limits, client = Limits(c.memory, c.cpus, c.pids), _shared.acquire()
        try:
            self.sandbox = client.start(c.image, network=c.network, limits=limits, timeout=c.pull_timeout)
            self.logger.info("Started sandbox %s", self.sandbox.name)
            self._system = self._uname(self.sandbox)
        except BaseException:
            self._close()
            raise

    def _uname(self, sandbox: Sandbox) -> dict[str, str]:
        """Return what uname says in the sandbox. The names are those of platform.uname."""
        own = platform.uname()._asdict()
        found = ended_blocking(lambda: sandbox.run(_UNAME))
        return {**own, **dict(zip(own, found.stdout.text.splitlines(), strict=False))} if found.success else own

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: float | None = None) -> dict[str, Any]:
        """Run the command of an action to its end, and return its output and its exit code.

        A command that times out is killed with all its descendants. A sandbox that is gone is an UnavailableError, and
        not an output.
        """
        sandbox, c = self.sandbox, self.config
        if sandbox is None:
            raise UnavailableError("environment: cleaned up", op="exec")
        args = [*_MERGED, *c.interpreter, str(action.get("command", ""))]
        env = {**{name: os.environ[name] for name in c.forward_env if name in os.environ}, **c.env}
        options: dict[str, Any] = {"env": env, "cwd": cwd or c.cwd, "timeout": timeout or c.timeout}
        result = ended_blocking(lambda: sandbox.run(args, stdout_cap=_KEPT, **options))
        output = self._output(result, options["timeout"])
        self._check_finished(output)
        return output

    def _output(self, result: Result, limit: float) -> dict[str, Any]:
        """Return how a command ended. A time limit has no exit code."""
        text = mark_missing(result.stdout).decode("utf-8", "replace") + result.stderr.text
        if not result.timed_out:
            return {"output": text, "returncode": result.exit_code, "exception_info": ""}
        said = f"Command timed out after {limit:g} seconds and was killed"
        return {
            "output": text,
            "returncode": -1,
            "exception_info": f"An error occurred while executing the command: {said}",
            "extra": {"exception_type": "TimeoutExpired", "exception": said},
        }

    def _check_finished(self, output: dict[str, Any]) -> None:
        """Raise Submitted, with what a command prints after the first line, if that ends the agent's work."""
        first, *rest = output["output"].lstrip().splitlines(keepends=True) or [""]
        if first.strip() == _SUBMIT and output["returncode"] == 0:
            submission = "".join(rest)
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})

    def get_template_vars(self, **given: Any) -> dict[str, Any]:
        """Return the variables of templates: the configuration, and what uname says in the sandbox."""
        found: dict[str, Any] = recursive_merge(self.config.model_dump(), self._system, given)
        return found

    def serialize(self) -> dict[str, Any]:
        """Return what a trajectory says about the environment."""
        kind = f"{type(self).__module__}.{type(self).__name__}"
        config = {"environment": self.config.model_dump(mode="json"), "environment_type": kind}
        return {"info": {"config": config}}

    def cleanup(self) -> None:
        """Remove the sandbox. It may be called again."""
        if self.sandbox is not None:
            self._close()

    def _close(self) -> None:
        sandbox, self.sandbox = self.sandbox, None
        try:
            if sandbox is not None:
                sandbox.close()
        finally:
            _shared.release()

    def __enter__(self) -> FumehoodEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be ending
            self.cleanup()
