"""The runtimes of SlopCodeBench on Docker, called as SlopCodeBench does. Its interface is in slop_code_stubs."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import multiprocessing
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

from tests.adapters.ends import ENDS, MEMORY, PIDS, REAL, Driver, documented, is_error, outcome
from tests.real import IMAGE, containers, needs_server, wait_for

STUBS = Path(__file__).parent / "slop_code_stubs"
HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "slopcodebench.md"
NAME = f"fumehood-test-{os.getpid()}"  # of environments
sys.path.insert(0, str(STUBS))

from slop_code.execution import DockerEnvironmentSpec, ResolvedStaticAsset  # noqa: E402
from slop_code.execution import runtime as registry  # noqa: E402
from slop_code.execution.models import EnvironmentSpec  # noqa: E402
from slop_code.execution.protocols import ExecRuntime  # noqa: E402
from slop_code.execution.runtime import RuntimeResult, SolutionRuntimeError  # noqa: E402

from fumehood import FumehoodError, slopcodebench  # noqa: E402
from fumehood._framework import importing  # noqa: E402
from fumehood.session import SessionEnd, SessionResult  # noqa: E402
from fumehood.slopcodebench import FumehoodEnvironmentSpec, FumehoodExecRuntime, FumehoodStreamingRuntime  # noqa: E402

# An environment file with the keys that SlopCodeBench documents. Files in JSON are YAML.
DOCUMENTED = """{
  "type": "docker",
  "name": "NAME",
  "docker": {
    "image": "ghcr.io/astral-sh/uv:python3.12-trixie-slim",
    "binary": "docker",
    "workdir": "/workspace",
    "mount_workspace": true,
    "extra_mounts": {"fixtures": "/fixtures", "data": "/data:ro", "out": {"bind": "/out"}},
    "network": "bridge",
    "user": "0:0"
  },
  "environment": {"env": {"UV_CACHE_DIR": "/tmp/uv-cache"}, "include_os_env": true},
  "setup": {
    "commands": ["echo commands"],
    "eval_commands": ["echo eval_commands; export SET=up; cd /tmp"],
    "resume_commands": ["echo resume_commands"]
  },
  "commands": {"entry_file": "{entry_file}.sh", "command": "sh -e", "agent_command": "sh"},
  "snapshot": {
    "keep_globs": ["*.py"], "ignore_globs": [".venv/*"], "compression": "bz2", "archive_save_dir": "/archive"
  }
}"""


def python(*args: str) -> list[str]:
    return [sys.executable, *args]


def variables() -> dict[str, str]:
    """Return the variables of a Python that finds the stubs."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(STUBS), *sys.path])}


def spec(kind: type[Any] = DockerEnvironmentSpec, *, setup: Any = None, env: Any = None, **docker: Any) -> Any:
    """Return an environment, by default over the image that SlopCodeBench would have built for it."""
    found = {"image": "python:3.12-slim", "user": "0:0", **docker}
    return kind.model_validate({"name": NAME, "docker": found, "setup": setup or {}, "environment": {"env": env or {}}})


class TestRegister(unittest.TestCase):
    def setUp(self) -> None:
        for found in (registry.STREAMING_RUNTIME_REGISTRY, registry.EXEC_RUNTIME_REGISTRY):
            patch = mock.patch.dict(found, clear=True)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(setattr, registry, "_registered", registry._registered)
        registry._registered = False

    def registered(self, name: str) -> tuple[Any, Any]:
        """Return the runtimes that SlopCodeBench's next spawn uses."""
        registry._ensure_runtimes_registered()
        return registry.STREAMING_RUNTIME_REGISTRY[name], registry.EXEC_RUNTIME_REGISTRY[name]

    def test_own_type(self) -> None:
        slopcodebench.register()
        self.assertEqual(self.registered("fumehood"), (FumehoodStreamingRuntime, FumehoodExecRuntime))
        self.assertEqual(self.registered("docker"), ("own docker", "own docker"))

    def test_replace(self) -> None:
        slopcodebench.register(replace=True)
        self.assertEqual(self.registered("docker"), (FumehoodStreamingRuntime, FumehoodExecRuntime))
        self.assertEqual(self.registered("local"), ("own local", "own local"))

    def test_other_type(self) -> None:
        local = EnvironmentSpec(type="local", name=NAME)
        for kind in (FumehoodStreamingRuntime, FumehoodExecRuntime):
            with self.assertRaisesRegex(ValueError, "type docker or fumehood"):
                kind.spawn(environment=local, working_dir=Path(), command="true")

    def test_command_line(self) -> None:
        command = python("-W", "error", "-m", "fumehood.slopcodebench", "run", "--agent", "codex")
        done = subprocess.run(command, env=variables(), capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "run --agent codex FumehoodExecRuntime\n")

    def test_framework(self) -> None:
        changed = "import slop_code.execution.protocols as p; p.ExecRuntime.execute = lambda self, request: None"
        for before, stubs, want in [
            (
                changed,
                True,
                "fumehood.slopcodebench: the interface of slop-code-bench is not supported: the parameters of",
            ),
            ("", False, "fumehood.slopcodebench: slop-code-bench is not installed: it is at github.com/SprocketLab"),
        ]:
            source = (
                "import fumehood, sys; sys.version_info = max(sys.version_info, (3, 12))\n"  # SlopCodeBench's oldest
                f"{before or 'pass'}\ntry: import fumehood.slopcodebench\nexcept ImportError as e: print(e)"
            )
            paths = [str(STUBS), *sys.path] if stubs else [path for path in sys.path if path != str(STUBS)]
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            done = subprocess.run(python("-c", source), env=env, capture_output=True, text=True, check=True)
            self.assertTrue(done.stdout.startswith(want), done.stdout)

    def test_python(self) -> None:
        for version, error, want in [
            ((3, 11, 7), SyntaxError("of Python 3.12"), "x needs Python 3.12 or newer, and this is Python 3.11"),
            ((3, 9, 1), ModuleNotFoundError("x"), "x needs Python 3.12 or newer, and this is Python 3.9"),
            ((3, 12, 0), ModuleNotFoundError("x"), "x is not installed: it is elsewhere"),
        ]:
            with (
                self.subTest(version),
                mock.patch.object(sys, "version_info", version),
                self.assertRaisesRegex(ImportError, f"^fumehood.a: {want}$"),
                importing("a", "x", "it is elsewhere", python=(3, 12)),
            ):
                raise error


class Ending(mock.MagicMock):
    """A container in which all commands end in one way. It is its own runtime."""

    def execute(self, script: str, **options: Any) -> SessionResult:
        return self.result("execute")

    @contextlib.contextmanager
    def stream(self, script: str, **options: Any) -> Iterator[Iterator[SessionEnd]]:
        yield iter([SessionEnd(self.result("stream"))])

    def result(self, op: str) -> SessionResult:
        found = outcome(self.end, op)
        more: dict[str, Any] = {"reason": found.reason, "caused_inside": found.caused_inside, "stdout": found.stdout}
        return SessionResult(found.outcome, found.exit_code, found.signal, **more)


class TestEnds(unittest.TestCase):
    """Commands end as the page about frameworks says."""

    def check(self, call: Callable[[], RuntimeResult | None], *without: str) -> None:
        for end, cell in documented("slopcodebench").items():
            if end in without:
                continue
            container = Ending(end=end, killed=False)
            container.runtime = container
            with self.subTest(end), mock.patch.object(slopcodebench, "_Container", return_value=container):
                try:
                    found = call()
                except Exception as e:  # noqa: BLE001  # its class is what is tested
                    self.assertTrue(is_error(e, cell), e)
                else:
                    assert found
                    noted = "bytes of output are missing" in found.stdout
                    self.assertIn("a line" if noted else str(found.exit_code), cell)
                    self.assertEqual(found.timed_out, end == "time limit")
                    self.assertTrue(found.stderr or not isinstance(ENDS[end], FumehoodError))

    def test_execute(self) -> None:
        self.check(lambda: FumehoodExecRuntime.spawn(spec(), Path(), "command").execute({}, None, 1))

    def test_stream(self) -> None:
        def call() -> RuntimeResult | None:
            return list(FumehoodStreamingRuntime.spawn(spec(), Path()).stream("command", {}, 1))[-1].result

        self.check(call, "output limit")  # a stream has all output


@needs_server
class TestRuntimes(unittest.TestCase):
    folder: Path

    @classmethod
    def setUpClass(cls) -> None:
        for tag in (f"slop-code:{NAME}", f"slop-code:{NAME}-documented"):
            subprocess.run(["docker", "tag", IMAGE, tag], check=True)
            cls.addClassCleanup(subprocess.run, ["docker", "rmi", tag], check=True, capture_output=True)
        cls.addClassCleanup(slopcodebench.close)

    def setUp(self) -> None:
        slopcodebench.register(replace=True)
        self.addCleanup(slopcodebench.register)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.folder.chmod(0o777)  # for users of containers

    def stream_of(self, environment: Any, **options: Any) -> FumehoodStreamingRuntime:
        runtime = registry.spawn_streaming_runtime(environment, working_dir=self.folder, **options)
        self.addCleanup(runtime.cleanup)
        assert isinstance(runtime, FumehoodStreamingRuntime)
        return runtime

    def exec_of(self, environment: Any, command: str, **options: Any) -> ExecRuntime:
        runtime = registry.spawn_exec_runtime(environment, command, working_dir=self.folder, **options)
        self.addCleanup(runtime.cleanup)
        return runtime

    def execute(self, environment: Any, command: str, **options: Any) -> RuntimeResult:
        return self.exec_of(environment, command, **options).execute({}, None, 30)

    def test_execute(self) -> None:
        environment = spec(env={"A": "spec", "B": "spec", "C": "spec"})
        command = "pwd; id -u; echo $A $B $C; cat; echo err >&2; echo new >new.txt; exit 3"
        runtime = self.exec_of(environment, command, env_vars={"B": "spawn", "C": "spawn"}, unknown_option=1)
        self.assertIsNone(runtime.poll())
        result = runtime.execute({"C": "call"}, ["one ", "tw", "o\n"], 30)
        self.assertEqual(result.stdout, "/workspace\n0\nspec spawn call\none two\n")
        self.assertEqual((result.exit_code, result.stderr, result.timed_out), (3, "err\n", False))
        self.assertEqual((result.setup_stdout, result.setup_stderr), ("", ""))
        self.assertGreater(result.elapsed, 0)
        self.assertEqual(runtime.poll(), 3)
        self.assertEqual((self.folder / "new.txt").read_text(), "new\n")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["new.txt"])
        again = runtime.execute({}, "text", None)  # in another container
        self.assertTrue(again.stdout.endswith("spec spawn spawn\ntext"), again.stdout)

    def test_signal_and_bytes(self) -> None:
        result = self.execute(spec(), "printf '\\303'; printf '\\251\\377'; kill -9 $$")
        self.assertEqual((result.exit_code, result.stdout), (137, "é\ufffd"))

    def test_supervisor_killed(self) -> None:
        """A command whose own code kills all processes, and its supervisor with them, counts as killed."""
        self.assertEqual(self.execute(spec(), "kill -9 -1").exit_code, 137)
        runtime = self.stream_of(spec())
        *_, last = runtime.stream("kill -9 -1", {}, 10)
        assert last.result
        self.assertEqual((last.result.exit_code, runtime.poll()), (137, 137))
        (written, _) = runtime.stream("echo again", {}, 10)
        self.assertEqual(written.text, "again\n")

    def test_log(self) -> None:
        with self.assertLogs("fumehood.slopcodebench", "DEBUG") as logs:
            self.execute(spec(), "exit 3")
            list(self.stream_of(spec()).stream("exit 4", {}, 30))
            self.doCleanups()
        events = [re.sub(r" (container|elapsed|user)=\S+| verbose=True", "", r.getMessage()) for r in logs.records]
        image = f"image=slop-code:{NAME}"
        want = [(3, "timeout=30"), (4, "timeout=30")]
        self.assertEqual(
            events,
            [
                event
                for code, timeout in want
                for event in (
                    f"Started container {image}",
                    f"Starting containerized execution command=exit {code} {timeout}",
                    f"Containerized execution completed exit_code={code} timed_out=False",
                    "Removed container",
                )
            ],
        )

    def test_missing_output(self) -> None:
        with mock.patch.object(slopcodebench, "_KEPT", 1000):
            result = self.execute(spec(), "seq 1000; seq 1000 >&2")
            result_of_setup = self.execute(spec(setup={"commands": ["seq 1000"]}), "echo end")
        for text in (result.stdout, result.stderr, result_of_setup.setup_stdout):
            self.assertRegex(text, r"^\[\d+ bytes of output are missing: more than is kept\]\n\d+\n")
        self.assertTrue(result.stdout.endswith("\n1000\n"))
        self.assertTrue(result.stdout.startswith("[2893 bytes"))  # of 3893
        self.assertEqual(result_of_setup.stdout, "end\n")

    def test_setup(self) -> None:
        setup = {
            "commands": ["V=kept; cd /tmp; echo s1"],
            "eval_commands": ["f() { echo $V; }; echo e2 >&2"],
            "resume_commands": ["echo never"],
        }
        command = "shopt -q login_shell && pwd; f"
        for evaluation, want in [(True, "/tmp\nkept\n"), (False, "/tmp\n")]:
            result = self.execute(spec(setup=setup), command, is_evaluation=evaluation, setup_command="echo third")
            self.assertEqual((result.stdout, result.setup_stdout), (want, "s1\nthird\n"))
            self.assertEqual(result.setup_stderr, "e2\n" if evaluation else "")
        result = self.execute(spec(setup=setup), 'echo "$V $0"', setup_command="echo third", disable_setup=True)
        self.assertEqual((result.stdout, result.setup_stdout), (" /bin/sh\n", ""))
        result = self.execute(spec(setup={"commands": ["echo out; echo err >&2; exit 4"]}), "echo never")
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (4, "out\n", "err\n"))
        self.assertEqual((result.setup_stdout, result.setup_stderr), ("", ""))

    def test_users(self) -> None:
        command = "echo $(id -u):$(id -g)"
        with mock.patch.dict(os.environ):
            os.environ.pop("HUID", None)
            cases: list[tuple[Any, dict[str, Any], str]] = [
                (spec(user=None), {"is_evaluation": True}, "1000:1000"),
                (spec(user=None), {}, "0:0"),
                (spec(user=None), {"user": "7:8"}, "7:8"),
                (spec(user="5:6"), {"is_evaluation": True}, "5:6"),
            ]
            for number, (environment, options, want) in enumerate(cases):
                with self.subTest(want):
                    result = self.execute(environment, f"{command}; touch file{number}", **options)
                    self.assertEqual((result.stdout, result.stderr), (f"{want}\n", ""))
            os.environ.update(HUID="1234", HGID="1235")
            result = self.execute(spec(user=None), f"{command}; echo $HUID $HGID; touch own")
            self.assertEqual((result.stdout, result.stderr), ("1234:1235\n1234 1235\n", ""))
            self.assertEqual((self.folder / "own").stat().st_uid, 1234)

    def test_timeout(self) -> None:
        """A timeout counts for the setup and the command, and ends descendants with a session of their own."""
        environment = spec(setup={"commands": ["echo setup; sleep 1"]})
        result = self.exec_of(environment, "echo on; sleep 2; echo over").execute({}, None, 2)
        self.assertEqual((result.exit_code, result.timed_out, result.stdout), (-9, True, "on\n"))
        self.assertEqual(result.setup_stdout, "setup\n")
        result = self.exec_of(environment, "echo on").execute({}, None, 0.5)
        self.assertEqual((result.timed_out, result.stdout), (True, "setup\n"))

        runtime = self.stream_of(spec())
        events = list(runtime.stream("setsid sh -c 'sleep 600 & sleep 601' & echo on; sleep 602", {}, 1))
        assert events[-1].result
        self.assertEqual([event.text for event in events], ["on\n", None])
        self.assertEqual((events[-1].result.exit_code, events[-1].result.timed_out, runtime.poll()), (-1, True, -1))
        (written, _) = runtime.stream("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", {}, 10)  # in the same container
        self.assertNotRegex(written.text or "", "sleep 60[0-2]")

    def test_stream(self) -> None:
        setup = {"commands": ["V=1; echo setup; echo warning >&2"]}
        runtime = self.stream_of(spec(setup=setup, env={"A": "a"}), env_vars={"B": "b"})
        self.assertIsNone(runtime.poll())
        events = runtime.stream("echo $V $A $B $C; read -r LINE <>fifo; echo $LINE >&2; exit 5", {"C": "c"}, None)
        os.mkfifo(self.folder / "fifo")
        first = next(events)
        self.assertEqual((first.kind, first.text, first.result), ("stdout", "1 a b c\n", None))
        self.assertIsNone(runtime.poll())
        (self.folder / "fifo").write_text("\u20ac\n")
        second, last = events
        self.assertEqual((second.kind, second.text), ("stderr", "\u20ac\n"))
        assert last.result
        found = last.result
        self.assertEqual((last.kind, last.text, found.exit_code, runtime.poll()), ("finished", None, 5, 5))
        self.assertEqual((found.stdout, found.stderr), ("1 a b c\n", "\u20ac\n"))
        self.assertEqual((found.setup_stdout, found.setup_stderr), ("setup\n", "warning\n"))

        list(runtime.stream("touch /tmp/kept", {}, 10))
        events = runtime.stream("ls /tmp/kept; sleep 0.3; echo", {}, 10)  # the container is the same
        self.assertEqual([event.text for event in events], ["/tmp/kept\n", "\n", None])

    def test_stream_left(self) -> None:
        runtime = self.stream_of(spec(), disable_setup=True)
        for event in runtime.stream("echo on; sleep 611", {}, None):
            self.assertEqual(event.text, "on\n")
            began = time.monotonic()
            break
        self.assertEqual(runtime.poll(), -9)
        self.assertLess(time.monotonic() - began, 4)  # the client waits 5 s for a command that does not end
        (written, _) = runtime.stream("cat /proc/[0-9]*/cmdline | tr '\\0' ' '", {}, 10)
        self.assertNotIn("sleep 611", written.text or "")

    def test_kill(self) -> None:
        runtime = self.stream_of(spec())
        events = runtime.stream("echo on; sleep 60", {}, None)
        next(events)
        assert runtime._container
        name = runtime._container.runtime.id
        self.assertEqual(len(containers(name)), 1)
        threading.Timer(0.2, runtime.kill).start()
        (last,) = events
        assert last.result
        self.assertEqual((last.result.exit_code, last.result.stdout, last.result.timed_out), (-9, "on\n", False))
        self.assertTrue(wait_for(lambda: not containers(name)))
        runtime.kill()
        written, _ = runtime.stream("echo again", {}, 10)  # in another container
        self.assertEqual(written.text, "again\n")
        runtime.cleanup()
        runtime.cleanup()

        one = self.exec_of(spec(), "echo on; touch on; sleep 60")
        threading.Thread(target=lambda: wait_for((self.folder / "on").exists) and one.kill()).start()
        result = one.execute({}, None, None)
        self.assertEqual((result.exit_code, result.stdout, one.poll()), (-9, "on\n", -9))

    def test_mounts(self) -> None:
        for name in ("ro", "rw", "spec", "text", "asset", "inside"):
            (self.folder.parent / f"{self.folder.name}-{name}").mkdir()
            self.addCleanup(subprocess.run, ["rm", "-r", f"{self.folder}-{name}"], check=True)
        (self.folder / "inside").mkdir()
        Path(f"{self.folder}-asset", "data.txt").write_text("asset\n")
        mounts = {
            f"{self.folder}-ro": {"bind": "/m/ro", "mode": "ro"},
            f"{self.folder}-rw": {"bind": "/m/rw"},
            f"{self.folder}-text": "/m/text",
        }
        extra = {"inside": {"bind": "/m/inside"}, f"{self.folder}-spec": "/m/spec:rw"}
        asset = ResolvedStaticAsset(
            name="data", absolute_path=Path(f"{self.folder}-asset", "data.txt"), save_path=Path("deep/data.txt")
        )
        command = "for m in /m/*; do touch $m/file 2>/dev/null && echo $m; done; cat /static/deep/data.txt"
        written = "/m/inside\n/m/rw\n/m/spec\n"
        for kind in (DockerEnvironmentSpec, FumehoodEnvironmentSpec):
            environment = spec(kind, extra_mounts=extra)
            more = f"; cat {asset.absolute_path} 2>/dev/null"  # {{static:data}} under another type than docker
            result = self.execute(environment, command + more, mounts=mounts, static_assets={"data": asset})
            want = "asset\n" * (1 if kind is DockerEnvironmentSpec else 2)
            self.assertEqual(result.stdout, written + want)
        self.assertTrue((self.folder / "inside" / "file").exists())
        with self.assertRaisesRegex(ValueError, "/workspace/x lies in the working directory"):
            self.execute(spec(extra_mounts={"inside": "/workspace/x"}), "true")
        for refused, why in [({"/": "/host"}, "allow_unsafe=True"), ({"inside": "/workspace/x"}, "below the working")]:
            with self.assertRaisesRegex(SolutionRuntimeError, why):
                self.execute(spec(), "true", mounts=refused)

    def test_mount_workspace(self) -> None:
        (self.folder / "file").touch()
        result = self.execute(spec(mount_workspace=False, workdir="/usr/local"), "pwd; ls | head -1; touch new")
        self.assertEqual((result.exit_code, result.stdout), (0, "/usr/local\nbin\n"))
        self.assertEqual([path.name for path in self.folder.iterdir()], ["file"])

    def test_network(self) -> None:
        self.assertIn("eth0", self.execute(spec(), "ls /sys/class/net").stdout)
        alone = self.execute(spec(network="none"), "ls /sys/class/net", ports={free_port(): 80})
        self.assertEqual(alone.stdout, "lo\n")

        port = free_port()
        runtime = self.stream_of(spec(), ports={port: 8000})
        (self.folder / "index.html").write_text("served")
        events = runtime.stream("python3 -u -m http.server 8000", {}, 30)
        next(events)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5) as answer:
            self.assertEqual(answer.read(), b"served")
        events.close()  # type: ignore[attr-defined]

    def test_unsafe(self) -> None:
        runtime = self.exec_of(spec(network="host"), "readlink /proc/self/ns/net")
        with self.assertRaises(SolutionRuntimeError) as caught:
            runtime.execute({}, None, 30)
        self.assertIn("fumehood.slopcodebench.register allows it: allow_unsafe=True", str(caught.exception))
        slopcodebench.register(replace=True, allow_unsafe=True)
        result = runtime.execute({}, None, 30)
        self.assertEqual(result.stdout.strip(), str(Path("/proc/self/ns/net").readlink()))

    def test_limits(self) -> None:
        slopcodebench.register(replace=True, limits={"memory": "64MiB"})
        result = self.execute(spec(), "python3 -c 'b = [1] * 10**9'")
        self.assertEqual((result.exit_code, result.timed_out), (137, False))

    def test_no_processes(self) -> None:
        """After a fork bomb commands fail, and the run goes on."""
        slopcodebench.register(replace=True, limits={"pids": 64})
        runtime = self.stream_of(spec())
        bomb = "import os, time\nfor _ in range(99):\n try: os.fork() or time.sleep(600)\n except OSError: pass"
        found: list[RuntimeResult] = []
        for command in (f"setsid python3 -c '{bomb}' & sleep 0.5", "echo next", "echo next"):
            *written, last = runtime.stream(command, {}, 5)
            assert last.result
            found.append(last.result)
            self.assertEqual(last.result.exit_code, runtime.poll())
        for result in found[1:]:
            self.assertEqual((result.exit_code, result.stdout, result.timed_out), (126, "", False))
            self.assertIn("limit of 64 processes", result.stderr)
        self.assertEqual([(event.kind, event.text) for event in written], [("stderr", found[-1].stderr)])

    def test_failure(self) -> None:
        with self.assertRaisesRegex(SolutionRuntimeError, "fumehood: .*fumehood-test/missing"):
            self.execute(spec(), "true", image="fumehood-test/missing:0")
        runtime = self.stream_of(spec(), image="fumehood-test/missing:0")
        with self.assertRaises(SolutionRuntimeError):
            next(runtime.stream("true", {}, 10))

    def test_ends_real(self) -> None:
        """Commands end as the page says. The working directory is a mount, and a stream has all output."""
        slopcodebench.register(replace=True, limits={"pids": PIDS, "memory": MEMORY})
        for end in REAL:
            if end in ("its working directory is missing", "output limit", "canceled"):
                continue
            runtime = self.stream_of(spec())
            self.assertEqual(list(runtime.stream("true", {}, 30))[-1].result.exit_code, 0)
            assert runtime._container

            async def execute(
                args: list[str], timeout: float | None, runtime: FumehoodStreamingRuntime = runtime
            ) -> str:
                def call() -> RuntimeResult:
                    return list(runtime.stream(shlex.join(args), {}, timeout))[-1].result

                code = (await asyncio.to_thread(call)).exit_code
                return documented("slopcodebench")["time limit"] if code == -1 else str(code)

            with self.subTest(end):
                asyncio.run(Driver("slopcodebench", runtime._container.runtime.id, execute).check(end))
            runtime.cleanup()

    def test_documented(self) -> None:
        for name in ("fixtures", "data", "out"):
            (self.folder / name).mkdir()
        (self.folder / "main.sh").write_text("echo $UV_CACHE_DIR $SET $PRESENT; pwd; touch /out/file; touch /data/file")
        environment = DockerEnvironmentSpec.model_validate(json.loads(DOCUMENTED.replace("NAME", f"{NAME}-documented")))
        command = f"cd /workspace; {environment.get_command('main')}"
        with mock.patch.dict(os.environ, PRESENT="host", PATH="/usr/bin:/bin"):
            result = self.execute(environment, command, is_evaluation=True)
        self.assertEqual(result.stdout, "/tmp/uv-cache up host\n/workspace\n")
        self.assertEqual(result.setup_stdout, "commands\neval_commands\n")
        self.assertIn("Read-only file system", result.stderr)
        self.assertTrue((self.folder / "out" / "file").exists())

    def test_parallel(self) -> None:
        """Runtimes of threads run at the same time."""
        command = "touch $N; until test -e 0 && test -e 1; do sleep 0.02; done; echo $N"
        with ThreadPoolExecutor(2) as threads:
            runtimes = [self.exec_of(spec(), command, env_vars={"N": str(number)}) for number in range(2)]
            results = list(threads.map(lambda runtime: runtime.execute({}, None, 30), runtimes))
        self.assertEqual([(result.exit_code, result.stdout) for result in results], [(0, "0\n"), (0, "1\n")])

    def test_workers(self) -> None:
        """A process that was forked from one with a server has its own."""
        self.assertEqual(self.execute(spec(), "echo parent").stdout, "parent\n")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as workers:
            self.assertEqual(workers.submit(in_worker, str(self.folder)).result(60), "worker\n")
        self.assertEqual(self.execute(spec(), "echo parent").stdout, "parent\n")

    def test_killed(self) -> None:
        """A process that is killed while commands run leaves no container."""
        source = HOST.replace("FOLDER", str(self.folder)).replace("IMAGE", IMAGE)
        with subprocess.Popen(python("-c", source), env=variables(), stdout=subprocess.PIPE, text=True) as host:
            try:
                assert host.stdout
                names = [host.stdout.readline().strip() for _ in range(2)]
                self.assertEqual([len(containers(name)) for name in names], [1, 1])
                host.send_signal(signal.SIGKILL)
                began = time.monotonic()
                self.assertTrue(wait_for(lambda: not any(containers(name) for name in names)))
                self.assertLess(time.monotonic() - began, 10)
            finally:
                host.kill()

    def test_howto(self) -> None:
        (block,) = re.findall(r"^```python\n(.*?)^```$", HOWTO.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        code = block.replace("python:3.12-slim", IMAGE)
        self.assertNotEqual(code, block)
        printed = io.StringIO()
        self.addCleanup(os.chdir, Path.cwd())
        self.addCleanup(slopcodebench.close)  # a server that has started in the folder
        os.chdir(self.folder)
        with contextlib.redirect_stdout(printed):
            exec(compile(code, HOWTO.name, "exec"), {"__name__": "__main__"})
        self.assertEqual(printed.getvalue(), "0 42\nstdout 1\nstdout 2\nfinished True\n")


HOST = """
from pathlib import Path
from slop_code.execution import DockerEnvironmentSpec
from slop_code.execution.runtime import spawn_streaming_runtime
from fumehood import slopcodebench

slopcodebench.register(replace=True)
spec = DockerEnvironmentSpec.model_validate({"name": "x", "docker": {"image": "IMAGE", "user": "0:0"}})
running = []
for number in range(2):
    runtime = spawn_streaming_runtime(spec, working_dir=Path("FOLDER"), image="IMAGE")
    events = runtime.stream("echo on; setsid sleep 600 & sleep 600", {}, None)
    next(events)
    running.append(events)
    print(runtime._container.runtime.id, flush=True)
next(running[0])
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def in_worker(folder: str) -> str:
    """Run a command in a process of its own."""
    runtime = registry.spawn_exec_runtime(spec(), "echo worker", working_dir=Path(folder))
    try:
        return str(runtime.execute({}, None, 30).stdout)
    finally:
        slopcodebench.close()


if __name__ == "__main__":
    unittest.main()
