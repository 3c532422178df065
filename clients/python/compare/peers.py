"""The sandboxes that are compared, each in the mode that its own documentation recommends for a Docker Engine.

Each class runs in an environment that has its package. Names and values are those that a user sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import shlex
import tempfile
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Said(str):
    """How a command ended, in the words of the package's API: its value, or its exception."""


def fields(value: Any, *names: str) -> Said:
    """Return fields of a result as text."""
    return Said(", ".join(f"{name}={getattr(value, name)!r}" for name in names))


class Peer:
    """A sandbox of one package."""

    title = ""
    distribution = ""  # on the package index
    mode = ""  # how it is used here
    files = True  # whether it has calls for files
    limits = True  # whether its commands have time limits

    def __init__(self, image: str, limit: float) -> None:
        """Take the image, and the seconds that a command may run where a call does not say so."""
        self.image, self.limit = image, limit
        self.loop = asyncio.new_event_loop()

    def wait(self, made: Awaitable[T]) -> T:
        """Run a coroutine to its end."""
        return self.loop.run_until_complete(made)

    def start(self) -> None:
        """Start a sandbox."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove it."""
        raise NotImplementedError

    def shell(self, command: str, timeout: float | None = None) -> Said:
        """Run shell text, and return how it ended."""
        raise NotImplementedError

    def python(self, code: str) -> str:
        """Run Python code and return its output."""
        raise NotImplementedError

    def at_once(self, command: str, count: int) -> None:
        """Run a command several times at once."""
        with ThreadPoolExecutor(count) as pool:
            for each in [pool.submit(self.shell, command) for _ in range(count)]:
                each.result()

    def write(self, path: str, data: bytes) -> None:
        """Write a file."""
        raise NotImplementedError

    def read(self, path: str) -> bytes:
        """Read a file."""
        raise NotImplementedError


class Asynchronous(Peer):
    """A sandbox whose calls are coroutines."""

    async def run(self, command: str, timeout: float | None) -> Said:
        """Run shell text."""
        raise NotImplementedError

    def shell(self, command: str, timeout: float | None = None) -> Said:
        return self.wait(self.run(command, timeout))

    def at_once(self, command: str, count: int) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(self.run(command, None) for _ in range(count)))

        self.wait(all_of_them())


class Fumehood(Peer):
    title = "Fumehood"
    distribution = "fumehood"
    mode = "`Client().start(image)`"

    def __init__(self, image: str, limit: float) -> None:
        super().__init__(image, limit)
        from fumehood import Client

        self.client = Client()
        self.client.connect()

    def start(self) -> None:
        self.box = self.client.start(self.image)

    def close(self) -> None:
        self.box.close()

    def shell(self, command: str, timeout: float | None = None) -> Said:
        return fields(self.box.run(["sh", "-c", command], timeout=timeout), "outcome", "exit_code")

    def python(self, code: str) -> str:
        return str(self.box.run(["python3", "-c", code]).stdout.text)

    def write(self, path: str, data: bytes) -> None:
        self.box.write(path, data)

    def read(self, path: str) -> bytes:
        return self.box.read(path)


class LLMSandbox(Peer):
    title = "llm-sandbox"
    distribution = "llm-sandbox"
    mode = "`SandboxSession(image=, skip_environment_setup=True)`: its set-up installs packages"

    def start(self) -> None:
        from llm_sandbox import SandboxSession

        self.session: Any = SandboxSession(
            lang="python",
            image=self.image,
            keep_template=True,
            skip_environment_setup=True,
            execution_timeout=self.limit,
        )
        self.session.open()

    def close(self) -> None:
        self.session.close()

    def shell(self, command: str, timeout: float | None = None) -> Said:
        if timeout is None:
            return fields(self.session.execute_command(f"sh -c {shlex.quote(command)}"), "exit_code")
        code = f"import subprocess, sys; sys.exit(subprocess.run(['sh', '-c', {command!r}]).returncode)"
        return fields(self.session.run(code, timeout=timeout), "exit_code")

    def python(self, code: str) -> str:
        return str(self.session.run(code).stdout)

    def write(self, path: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.session.copy_to_runtime(file.name, path)

    def read(self, path: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            self.session.copy_from_runtime(path, f"{folder}/got")
            return next(each for each in Path(folder).rglob("*") if each.is_file()).read_bytes()


class SWEReX(Asynchronous):
    title = "swe-rex"
    distribution = "swe-rex"
    mode = "`DockerDeployment(image=)` with its server in the image; `runtime.execute`"

    def start(self) -> None:
        from swerex.deployment.docker import DockerDeployment

        self.deployment: Any = DockerDeployment(image=self.image, pull="never")
        self.wait(self.deployment.start())

    def close(self) -> None:
        self.wait(self.deployment.stop())

    async def run(self, command: str, timeout: float | None) -> Said:
        from swerex.runtime.abstract import Command

        found = await self.deployment.runtime.execute(Command(command=["sh", "-c", command], timeout=timeout))
        return fields(found, "exit_code")

    def python(self, code: str) -> str:
        from swerex.runtime.abstract import Command

        return str(self.wait(self.deployment.runtime.execute(Command(command=["python3", "-c", code]))).stdout)

    def write(self, path: str, data: bytes) -> None:
        from swerex.runtime.abstract import WriteFileRequest

        self.wait(self.deployment.runtime.write_file(WriteFileRequest(path=path, content=data.decode())))

    def read(self, path: str) -> bytes:
        from swerex.runtime.abstract import ReadFileRequest

        return str(self.wait(self.deployment.runtime.read_file(ReadFileRequest(path=path))).content).encode()


class AutoGen(Asynchronous):
    title = "autogen-ext"
    distribution = "autogen-ext"
    mode = "`DockerCommandLineCodeExecutor(image, timeout=)`; files by its bind mount"

    def start(self) -> None:
        from autogen_ext.code_executors.docker import DockerCommandLineCodeExecutor

        self.folder = tempfile.TemporaryDirectory()
        seconds = max(1, int(self.limit))
        self.executor: Any = DockerCommandLineCodeExecutor(self.image, timeout=seconds, work_dir=self.folder.name)
        self.wait(self.executor.start())

    def close(self) -> None:
        self.wait(self.executor.stop())
        self.folder.cleanup()

    async def _run(self, code: str, language: str) -> Any:
        from autogen_core import CancellationToken
        from autogen_core.code_executor import CodeBlock

        block = CodeBlock(code=code, language=language)
        return await self.executor.execute_code_blocks([block], CancellationToken())

    async def run(self, command: str, timeout: float | None) -> Said:
        return fields(await self._run(command, "sh"), "exit_code")

    def python(self, code: str) -> str:
        return str(self.wait(self._run(code, "python")).output)

    def write(self, path: str, data: bytes) -> None:
        (Path(self.folder.name) / Path(path).name).write_bytes(data)

    def read(self, path: str) -> bytes:
        return (Path(self.folder.name) / Path(path).name).read_bytes()


class OpenAIAgents(Asynchronous):
    title = "openai-agents"
    distribution = "openai-agents"
    mode = "`DockerSandboxClient`, `session.exec`"

    def start(self) -> None:
        import docker
        from agents.sandbox.manifest import Manifest
        from agents.sandbox.sandboxes.docker import DockerSandboxClient, DockerSandboxClientOptions

        self.client: Any = DockerSandboxClient(docker.from_env())

        async def begin() -> Any:
            options = DockerSandboxClientOptions(image=self.image)
            session = await self.client.create(manifest=Manifest(), options=options)
            await session.start()
            return session

        self.session = self.wait(begin())

    def close(self) -> None:
        async def end() -> None:
            await self.session.stop()
            await self.client.delete(self.session)

        self.wait(end())

    async def run(self, command: str, timeout: float | None) -> Said:
        return fields(await self.session.exec("sh", "-c", command, shell=False, timeout=timeout), "exit_code")

    def python(self, code: str) -> str:
        return bytes(self.wait(self.session.exec("python3", "-c", code, shell=False)).stdout).decode()

    def write(self, path: str, data: bytes) -> None:
        self.wait(self.session.write(Path(path).name and Path(Path(path).name), io.BytesIO(data)))

    def read(self, path: str) -> bytes:
        return bytes(self.wait(self.session.read(Path(Path(path).name))).read())


class Smolagents(Peer):
    title = "smolagents"
    distribution = "smolagents"
    mode = "`DockerExecutor` with its kernel server in the image"
    files = limits = False

    def start(self) -> None:
        from smolagents.monitoring import AgentLogger, LogLevel
        from smolagents.remote_executors import DockerExecutor

        log = AgentLogger(level=LogLevel.OFF)
        self.executor: Any = DockerExecutor([], log, image_name=self.image, build_new_image=False)

    def close(self) -> None:
        self.executor.cleanup()

    def shell(self, command: str, timeout: float | None = None) -> Said:
        code = f"import subprocess\nprint(subprocess.run(['sh', '-c', {command!r}]).returncode)"
        return Said(f"prints {self.python(code).strip()}")

    def python(self, code: str) -> str:
        return str(self.executor.run_code_raise_errors(code).logs)


class Inspect(Asynchronous):
    title = "inspect_ai's Docker provider"
    distribution = "inspect_ai"
    mode = '`sandbox="docker"`: Compose projects'

    def start(self) -> None:
        from inspect_ai.util import ComposeConfig
        from inspect_ai.util._concurrency import init_concurrency
        from inspect_ai.util._sandbox.docker import docker as provider
        from inspect_ai.util._sandbox.docker import prereqs
        from inspect_ai.util._subprocess import init_max_subprocesses

        async def any_version() -> None:
            """Stand in for its check, which refuses Engines before 24.0.6."""

        prereqs.validate_docker_engine = any_version
        service = {"image": self.image, "command": "tail -f /dev/null", "init": True, "network_mode": "none"}
        config = ComposeConfig(services={"default": service})
        self.kind: Any = provider.DockerSandboxEnvironment

        async def begin() -> Any:
            init_concurrency()
            init_max_subprocesses(16)
            await self.kind.task_init("compare", config)
            return await self.kind.sample_init("compare", config, {})

        self.config = config
        self.services = self.wait(begin())
        self.box = next(iter(self.services.values()))

    def close(self) -> None:
        self.wait(self.kind.sample_cleanup("compare", self.config, self.services, False))
        with contextlib.redirect_stdout(io.StringIO()):
            self.wait(self.kind.task_cleanup("compare", self.config, True))

    async def run(self, command: str, timeout: float | None) -> Said:
        seconds = None if timeout is None else int(timeout)
        found = await self.box.exec(["sh", "-c", command], timeout=seconds, timeout_retry=False)
        return fields(found, "success", "returncode")

    def python(self, code: str) -> str:
        return str(self.wait(self.box.exec(["python3", "-c", code])).stdout)

    def write(self, path: str, data: bytes) -> None:
        self.wait(self.box.write_file(path, data))

    def read(self, path: str) -> bytes:
        return bytes(self.wait(self.box.read_file(path, text=False)))


class Harbor(Asynchronous):
    title = "Harbor's Docker environment"
    distribution = "harbor"
    mode = "`DockerEnvironment` with `docker_image`: Compose projects"

    def start(self) -> None:
        from harbor.environments.docker.docker import DockerEnvironment
        from harbor.models.task.config import EnvironmentConfig
        from harbor.models.trial.paths import TrialPaths

        self.folder = tempfile.TemporaryDirectory()
        (definition := Path(self.folder.name) / "environment").mkdir()
        (trial := TrialPaths(trial_dir=Path(self.folder.name) / "trial")).mkdir()
        name, config = f"compare-{uuid.uuid4().hex}", EnvironmentConfig(docker_image=self.image)
        self.box: Any = DockerEnvironment(definition, "compare", name, trial, config)
        self.wait(self.box.start(force_build=False))

    def close(self) -> None:
        self.wait(self.box.stop(delete=True))
        self.folder.cleanup()

    async def run(self, command: str, timeout: float | None) -> Said:
        seconds = None if timeout is None else int(timeout)
        return fields(await self.box.exec(command, timeout_sec=seconds), "return_code")

    def python(self, code: str) -> str:
        return str(self.wait(self.box.exec(f"python3 -c {shlex.quote(code)}")).stdout)

    def write(self, path: str, data: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.wait(self.box.upload_file(source_path=Path(file.name), target_path=path))

    def read(self, path: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            self.wait(self.box.download_file(source_path=path, target_path=Path(folder) / "got"))
            return (Path(folder) / "got").read_bytes()


PEERS: dict[str, Callable[[str, float], Peer]] = {
    "fumehood": Fumehood,
    "inspect": Inspect,
    "harbor": Harbor,
    "openai_agents": OpenAIAgents,
    "swe_rex": SWEReX,
    "llm_sandbox": LLMSandbox,
    "autogen": AutoGen,
    "smolagents": Smolagents,
}
