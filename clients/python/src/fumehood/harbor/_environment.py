"""The environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.constants import MAIN_SERVICE_NAME
from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import require_agent_environment_definition, should_use_prebuilt_docker_image
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import ResourceMode
from harbor.models.trial.paths import EnvironmentPaths

from .. import (
    AsyncClient,
    AsyncSandbox,
    AsyncService,
    Chunk,
    Client,
    Compose,
    ConfigError,
    FumehoodError,
    LimitError,
    NotFoundError,
    Progress,
    Result,
    UnavailableError,
    UnsupportedError,
)
from .._adapter import Clients, Loops, ended, explain, mark_missing, missing
from . import _files
from ._project import ALLOW, OPTIONS, FumehoodOptions, check_links, check_offline, write

LABEL = "harbor"  # its value is the session's id
LOOPS = Loops(Clients)  # its users are environments that have started


class FumehoodEnvironment(BaseEnvironment):
    """A sandbox of Fumehood with the services of a task: a Dockerfile, a Compose file or an image."""

    options_model = FumehoodOptions
    options: FumehoodOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sandbox: AsyncSandbox | None = None
        self._clients: Clients | None = None
        self._main_user = ""  # of commands, where the container itself runs as root
        self._stopped: set[str] = set()
        self._untested = False  # tests of the coming verification found no space
        if self.task_env_config.storage_mb:
            self.logger.warning("storage_mb=%s is not enforced", self.task_env_config.storage_mb)

    # What it can do

    @staticmethod
    def type() -> str:
        """Return the name of this kind of environment."""
        return "fumehood"

    @classmethod
    def preflight(cls, kwargs: dict[str, Any] | None = None) -> None:
        """Check the options, and that the provider of sandboxes works."""
        super().preflight(kwargs)
        try:
            with Client(allow_kept=True) as client:
                client.sandboxes()
        except FumehoodError as e:
            raise SystemExit(f"fumehood: {e}") from e

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        """Report that CPUs and memory are limited, and nothing is reserved."""
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        """Report that networks can be closed, and Compose projects run."""
        return EnvironmentCapabilities(disable_internet=True, docker_compose=True)

    @property
    def _compose_files(self) -> list[Path]:
        own = self.environment_dir / "docker-compose.yaml"
        return [*([own.resolve()] if own.exists() else []), *self.extra_docker_compose_paths]

    @property
    def _uses_compose(self) -> bool:
        return bool(self._compose_files)

    def _validate_definition(self) -> None:
        check_links(self.environment_dir, self.task_env_config.docker_image, self.options)
        require_agent_environment_definition(
            self.environment_dir,
            docker_image=self.task_env_config.docker_image,
            extra_docker_compose_paths=self.extra_docker_compose_paths,
        )
        for mount in self._host_mounts:
            if mount["type"] != "bind":
                raise ValueError(f"mount at {mount['target']}: type {mount['type']!r} is not supported, only 'bind'")
            if not mount.get("read_only") and not self.options.allow_unsafe:
                hint = "make it read-only, or use --ek allow_unsafe=true"
                raise ValueError(f"mount at {mount['target']}: a writable path of this machine is not safe: {hint}")

    def validate_network_policy_support(self, network_policy: NetworkPolicy | None = None) -> None:
        """Raise a ValueError if a policy cannot be enforced exactly for this environment."""
        super().validate_network_policy_support(network_policy)
        if (network_policy or self.network_policy).network_mode == NetworkMode.NO_NETWORK:
            check_offline(self.options)

    # Start and end

    async def start(self, force_build: bool) -> None:
        """Build or pull the images, and start the services."""
        if self._clients is None:
            self._clients = LOOPS.running()
            self._clients.users += 1
        client = self._clients.client(*["--allow-unsafe"] * self.options.allow_unsafe)
        try:
            with tempfile.TemporaryDirectory(dir=self.trial_paths.trial_dir) as folder:  # not /tmp, if killed
                self._sandbox = await self._start(client, lambda: self._compose(Path(folder), force_build))
        except (ConfigError, UnsupportedError) as e:
            raise SandboxBuildFailedError(f"fumehood: {explain(e, OPTIONS, ALLOW)}") from e
        await self._upload_environment_dir_after_start()
        made = await self.ensure_dirs(self._mount_targets(writable_only=True))
        if made and made.return_code:
            raise RuntimeError(f"fumehood: log folders: exit code {made.return_code}: {made.stderr}")

    async def _start(self, client: AsyncClient, compose: Callable[[], Compose]) -> AsyncSandbox:
        images = await client.prepare(compose=compose(), progress=self._log_progress)
        options: dict[str, Any] = {"images": images, "labels": {LABEL: self.session_id[:60]}}
        sandbox = await client.start(compose=compose(), **options)
        main = sandbox.service(MAIN_SERVICE_NAME)
        if main.service_info.user in ("", "0", "root"):
            return sandbox
        try:
            await main.as_user("root").stat("/")
        except UnsupportedError:
            # Engines older than 24 give root no capabilities in a container of another user.
            await sandbox.close()
            self._main_user = main.service_info.user
            return await client.start(compose=compose(), **options)
        return sandbox

    def _log_progress(self, step: Progress) -> None:
        if not step.layer:
            self.logger.debug("%s: %s", step.image, step.status)

    def _compose(self, folder: Path, force_build: bool) -> Compose:
        """Return the project: the task's files over the main service as Harbor defines it, and the run's settings.

        Its own parts are written into a folder, where they stay until it has started.
        """
        config, options, context = self.task_env_config, self.options, self.environment_dir.resolve()
        prebuilt = should_use_prebuilt_docker_image(context, docker_image=config.docker_image, force_build=force_build)
        cpus = self._resource_limit_value("cpu", auto_mode=ResourceMode.LIMIT)
        memory = self._resource_limit_value("memory", auto_mode=ResourceMode.LIMIT)
        builds = not prebuilt and (context / "Dockerfile").exists()
        base = {
            "command": ["sh", "-c", "sleep infinity"],
            "image": config.docker_image if prebuilt else None,
            "build": {"context": str(context)} if builds else None,
            "network_mode": None if self._network_is_public or self._uses_compose else "none",
        }
        over = {
            "environment": self._startup_env(),
            "cpus": cpus,
            "mem_limit": memory and f"{memory}m",
            "pids_limit": options.pids or None,
            "user": "0:0" if self._main_user else None,
            "volumes": [{"bind": {"create_host_path": False}, **mount} for mount in self._host_mounts] or None,
        }
        variables = {
            **{name: os.environ.get(name) for name in options.host_env},
            **self._startup_env(),
            "CONTEXT_DIR": str(context),
            "MAIN_IMAGE_NAME": f"hb__{self.environment_id}",
            "PREBUILT_IMAGE_NAME": base["image"],
            "CPUS": cpus,
            "MEMORY": memory and f"{memory}M",
        }
        files = [write(folder / "base.json", base), *map(str, self._compose_files), write(folder / "over.json", over)]
        reads = [*options.allow_read, *(mount["source"] for mount in self._host_mounts)]
        return Compose(
            files=files,
            dir=str(context),
            env={name: str(value) for name, value in variables.items() if value is not None},
            service=MAIN_SERVICE_NAME,
            egress="internet" if self._network_is_public else "",
            offline=not self._network_is_public,
            allow_read=[str(Path(each).absolute()) for each in reads],
            allow_unsafe=options.allow_unsafe,
        )

    async def stop(self, delete: bool) -> None:
        """Remove the sandbox. As with Harbor's Docker environment, nothing of it stays without delete either."""
        sandbox, clients, self._sandbox, self._clients = self._sandbox, self._clients, None, None
        self._stopped.clear()
        try:
            if sandbox:
                await sandbox.close()
        finally:
            if clients:
                clients.users -= 1
                if not clients.users:
                    await clients.close()

    async def stop_service(self, service: str) -> None:
        """Kill all processes of a service but its main program. No commands run in it any more."""
        await self._service(service, "root").run(["sh", "-c", "kill -9 -1"])
        self._stopped.add(service)

    def _service(self, name: str, user: str = "") -> AsyncService:
        """Return a service of the running sandbox."""
        if self._sandbox is None:
            raise UnavailableError(f"environment {self.environment_name}: not started")
        service = self._sandbox.service(name)
        return service.as_user(user) if user else service

    # Commands

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in bash. One that times out is a RuntimeError, and all its descendants are killed."""
        return await self.service_exec(command, cwd=cwd, env=env, timeout_sec=timeout_sec, user=user)

    async def service_exec(
        self,
        command: str,
        *,
        service: str | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Run a command in a service: in bash in the main one, in sh and without its settings in another."""
        name, shell = service or MAIN_SERVICE_NAME, "sh"
        if name in self._stopped:
            raise RuntimeError(f"service {name!r} was stopped")
        if name == MAIN_SERVICE_NAME:
            shell, cwd, env = "bash", cwd or self.task_env_config.workdir, self._merge_env(env)
            user = self._main_user if self._resolve_user(user) is None else self._resolve_user(user)
        chosen = "" if user is None else str(user)
        options: dict[str, Any] = {"env": env, "cwd": cwd or "", "user": chosen, "timeout": timeout_sec or None}
        result = await ended(self._run(self._service(name), [shell, "-c", command], options))
        if result.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        if result.outcome == "out-of-memory":
            self.logger.warning("a command exceeded the memory limit of service %s", name)
        for stream, output in (("stdout", result.stdout), ("stderr", result.stderr)):
            if output.truncated:
                self.logger.warning("%s of a command: only the last %d bytes are kept", stream, len(output.data))
        stdout, stderr = (mark_missing(each).decode("utf-8", "replace") for each in (result.stdout, result.stderr))
        return ExecResult(stdout=stdout or None, stderr=stderr or None, return_code=result.exit_code)

    async def _run(self, service: AsyncService, args: list[str], options: dict[str, Any]) -> Result:
        """Run a command to its end. If there is a callback, it gets the output while the command runs."""
        if (callback := self._output_callback()) is None:
            return await service.run(args, **options)
        async with service.stream(args, **options) as events:
            async for event in events:
                if not isinstance(event, Chunk):
                    result = event.result
                elif text := (missing(event.skipped) if event.skipped else "") + event.text:
                    await callback(text, event.stream)
        return result

    async def attach(self) -> None:
        """Run a shell of the main service in this terminal, until it ends."""
        found = await self._service(MAIN_SERVICE_NAME, self._main_user).connection()
        process = await asyncio.create_subprocess_exec(*found.shell)
        await process.wait()

    # Files

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        """Copy a file into the main service. It belongs to root."""
        await _files.upload_file(self._service(MAIN_SERVICE_NAME, "root"), Path(source_path), target_path)

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        """Copy what a directory holds into the main service. It belongs to root.

        Tests for which the sandbox's disk has no space left are not copied, with a warning: the attempt has filled it.
        """
        tests = target_dir == str(EnvironmentPaths.for_os(self.os).tests_dir)
        service = self._service(MAIN_SERVICE_NAME, "root")
        try:
            await _files.upload_dir(service, Path(source_dir), target_dir)
        except LimitError as e:
            if tests:
                with contextlib.suppress(NotFoundError):
                    await service.remove(target_dir, recursive=True)
            if not (tests and await _files.is_full(service, str(PurePosixPath(target_dir).parent))):
                raise
            self._untested = True
            self.logger.warning("the tests are not uploaded, and the reward is 0: the sandbox's disk is full: %s", e)

    async def download_file(self, source_path: str, target_path: Path | str, *, service: str | None = None) -> None:
        """Copy a file of a service, by default the main one."""
        most = self.options.max_download_bytes
        await _files.download_file(await self._reader(service), source_path, Path(target_path), most)

    async def download_dir(self, source_dir: str, target_dir: Path | str, *, service: str | None = None) -> None:
        """Copy what a directory of a service holds, by default of the main one.

        If the attempt has filled the sandbox's disk, so that there are no tests or no reward, the reward is 0.
        """
        most = self.options.max_download_bytes, self.options.max_download_entries
        await _files.download_dir(await self._reader(service), source_dir, Path(target_dir), self.logger, *most)
        if service is None and self._has_reward(target_dir):
            await self._reward_full_disk(source_dir)

    async def download_dir_filtered(self, *, source_dir: str, target_dir: Path | str, **patterns: Any) -> None:
        """Copy the files of a directory that patterns select, by an archive in the sandbox.

        A full disk has the effect that it has on download_dir.
        """
        try:
            await super().download_dir_filtered(source_dir=source_dir, target_dir=target_dir, **patterns)
        except (RuntimeError, LimitError) as e:
            full = await _files.is_full(self._service(MAIN_SERVICE_NAME, "root"), source_dir)
            if not (full and self._has_reward(target_dir)):
                raise
            self.logger.warning("not downloaded: %s: the sandbox's disk is full: %s", source_dir, e)
        if self._has_reward(target_dir):
            await self._reward_full_disk(source_dir)

    def _has_reward(self, target: Path | str) -> bool:
        """Report whether a directory is the one that gets the verifier's reward."""
        return Path(target) == Path(self.trial_paths.verifier_dir)

    async def _reward_full_disk(self, source: str) -> None:
        """Write a reward of 0 if the disk of the main service is full, and there is no reward for that reason."""
        text, data = self.trial_paths.reward_text_path, self.trial_paths.reward_json_path
        if not self._untested:
            rewarded = any(each.is_file() and each.stat().st_size for each in (text, data))
            if rewarded or not await _files.is_full(self._service(MAIN_SERVICE_NAME, "root"), source):
                return
            self.logger.warning("the reward is 0: the sandbox's disk is full")
        self._untested = False
        data.unlink(missing_ok=True)
        text.unlink(missing_ok=True)  # it may be a link
        text.write_text("0\n")

    service_download_file = download_file
    service_download_dir = download_dir

    async def _reader(self, service: str | None) -> AsyncService:
        """Return a service for root's reading, or for its own user where an old Engine has no root there."""
        name = service or MAIN_SERVICE_NAME
        try:
            await (root := self._service(name, "root")).stat("/")
        except UnsupportedError:
            return self._service(name)
        return root
