"""Compares Fumehood with other packages that run code in containers, and writes docs/compare.md.

Usage: python3 compare.py ROUNDS OUTPUT PEER=PYTHON ..., the last being the peers and the interpreters that have their
packages. All run the same work on the same Engine in turn. Needs the program docker, the test image, and nothing else
that loads the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import page

IMAGE = "fumehood-compare/base"
BASE = "FROM fumehood-test/python\nRUN ln -s python3 /usr/bin/python\n"  # some packages call python
CALLS = {"start": 1, "true": 10, "python": 5, "eight": 3, "write": 2, "read": 2, "close": 1}  # of a round
FILES = ("write", "read")
LIMIT = 3.0  # seconds that a command may run, where it should be too long
HERE = Path(__file__).parent

# What an image needs where the package has a server in the sandbox: its own packages, and how the server starts.
SERVERS = {
    "swe_rex": r"""RUN printf '#!/bin/sh\nexec python3 -m swerex.server "$@"\n' >/usr/local/bin/swerex-remote \
 && chmod +x /usr/local/bin/swerex-remote
""",
    "smolagents": """EXPOSE 8888
CMD ["python3", "-m", "kernel_gateway", "--KernelGatewayApp.ip=0.0.0.0", "--KernelGatewayApp.port=8888"]
""",
}

# Starts up to 2000 processes that sleep, and prints how many it could.
MANY = """
import os, time
n = 0
try:
    while n < 2000:
        if os.fork() == 0:
            os.closerange(0, 3)
            time.sleep(15)
            os._exit(0)
        n += 1
except OSError:
    pass
print(n, flush=True)
os._exit(0)
"""


def docker(*args: str) -> str:
    """Return the output of the program docker."""
    return subprocess.run(["docker", *args], check=True, capture_output=True, text=True).stdout.strip()


def containers() -> set[str]:
    """Return the ids of all containers that are compared."""
    return set(docker("ps", "-aq", "--no-trunc", "--filter", f"ancestor={IMAGE}").split())


def build(tag: str, dockerfile: str, packages: str = "") -> None:
    """Build an image, with a folder of packages in its context."""
    with tempfile.TemporaryDirectory() as context:
        if packages:
            shutil.copytree(packages, f"{context}/packages", symlinks=True)
        (Path(context) / "Dockerfile").write_text(dockerfile)
        docker("build", "-q", "-t", tag, context)


def commands_of(container: str) -> list[str]:
    """Return the command lines in a container, none if it does not run."""
    found = subprocess.run(["docker", "top", container, "-eo", "pid,args"], capture_output=True, text=True)
    return found.stdout.splitlines()[1:]


def until(seen: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is seen, and report whether it was."""
    deadline = time.monotonic() + seconds
    while not (found := seen()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


class Worker:
    """A process with one peer."""

    def __init__(self, name: str, python: str, image: str, limit: float = 60) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py"), name, image, str(limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def send(self, call: str, **given: Any) -> None:
        """Send a call."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"call": call, **given}) + "\n")
        self.process.stdin.flush()

    def call(self, call: str, **given: Any) -> dict[str, Any]:
        """Make a call and return its answer."""
        self.send(call, **given)
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the process of {call} has ended with code {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def must(self, call: str, **given: Any) -> dict[str, Any]:
        """Make a call that must not raise."""
        if "raised" in (answer := self.call(call, **given)):
            raise RuntimeError(f"{self.name}: {call}: {answer['raised']}: {answer['text']}")
        return answer

    def end(self) -> None:
        """End the process."""
        assert self.process.stdin
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process, and what runs in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@dataclass
class Seen:
    """What was seen of a peer."""

    about: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)  # by call
    facts: dict[str, str] = field(default_factory=dict)
    failed: str = ""  # why it could not run here

    def millis(self, call: str) -> float | None:
        """Return the median of a call."""
        found = self.seconds.get(call)
        return statistics.median(found) * 1000 if found else None


class Comparison:
    """All peers."""

    def __init__(self, pythons: dict[str, str], log: Callable[[str], None]) -> None:
        self.pythons, self.log = pythons, log
        self.seen = {name: Seen() for name in pythons}
        self.images = dict.fromkeys(pythons, IMAGE)
        self.built: list[str] = []

    def build(self) -> None:
        """Build the image, and those of the peers that have a server in the sandbox."""
        build(IMAGE, BASE)
        self.built.append(IMAGE)
        for name in self.pythons.keys() & SERVERS.keys():
            packages = subprocess.run(
                [self.pythons[name], "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            tag = self.images[name] = f"fumehood-compare/{name}"
            text = f"FROM {IMAGE}\nCOPY packages /opt/packages\nENV PYTHONPATH=/opt/packages\n{SERVERS[name]}"
            build(tag, text, packages)
            self.built.insert(0, tag)

    def worker(self, name: str, limit: float = 60) -> Worker:
        """Start the process of a peer."""
        return Worker(name, self.pythons[name], self.images[name], limit)

    def measure(self, rounds: int) -> None:
        """Measure all calls, the peers in turn."""
        workers: dict[str, Worker] = {}
        for name, seen in self.seen.items():
            workers[name] = self.worker(name)
            try:
                seen.about = workers[name].must("about")["value"]
                self.round(workers[name], Seen())  # imports, caches
            except RuntimeError as e:
                seen.failed = str(e)
                workers.pop(name).kill()
                self.log(f"left out: {e}")
        for number in range(rounds):
            for name, worker in workers.items():
                self.log(f"round {number + 1} of {rounds}: {name}")
                self.round(worker, self.seen[name])
        for worker in workers.values():
            worker.end()

    def round(self, worker: Worker, seen: Seen) -> None:
        """Measure one sandbox of a peer."""
        files = self.seen[worker.name].about["files"]
        for call, times in CALLS.items():
            if call in FILES and not files:
                continue
            for _ in range(times):
                seen.seconds.setdefault(call, []).append(worker.must(call)["seconds"])

    @contextlib.contextmanager
    def sandbox(self, name: str, limit: float = 60) -> Any:
        """Start a sandbox in a process of its own, and remove all that is left of it."""
        before = containers()
        worker = self.worker(name, limit)
        try:
            worker.must("start")
            (made, *more) = containers() - before
            if more:
                raise RuntimeError(f"{name}: started {len(more) + 1} containers")
            yield worker, made
        finally:
            worker.kill()
            for each in containers() - before:
                subprocess.run(["docker", "rm", "-f", "-v", each], capture_output=True)
            until(lambda: not containers() - before, 10)

    def examine(self, name: str) -> None:
        """See what a peer does with commands that end badly, and what it allows."""
        facts = self.seen[name].facts
        facts["timeout"], facts["left"] = "has no time limits", "not tried"
        if self.seen[name].about["limits"]:
            facts["timeout"], facts["left"] = self.time_out(name)
        with self.sandbox(name) as (worker, container):
            config = json.loads(docker("inspect", container))[0]["HostConfig"]
            facts["network"] = "none" if config["NetworkMode"] == "none" else "internet"
            facts["memory"] = f"{config['Memory'] >> 20} MiB" if config["Memory"] else "no limit"
            facts["pids"] = str(config["PidsLimit"]) if (config["PidsLimit"] or 0) > 0 else "no limit"
            dropped = [each.upper() for each in config["CapDrop"] or []]
            facts["capabilities"] = "none" if "ALL" in dropped else "Docker's"
            for code in ("exit 124", "exit 137", "kill -9 $$"):
                facts[code] = said(worker.call("shell", command=code))
            run = f"subprocess.run(['python3', '-c', {MANY!r}], capture_output=True, text=True)"
            many = f"import subprocess\nprint({run}.stdout)"
            answer = worker.call("printed", code=many)
            facts["processes"] = answer["value"].strip() if "value" in answer else said(answer)
        with self.sandbox(name) as (worker, container):
            docker("update", "--memory", "256m", "--memory-swap", "256m", container)
            facts["oom"] = said(worker.call("shell", command="exec python3 -c 'b\"x\" * (1 << 30)'"))
        before = containers()
        with self.sandbox(name, 600) as (worker, container):
            worker.send("shell", command="sleep 304", timeout=600)
            if not until(lambda: any(" sleep 304" in each for each in commands_of(container)), 20):
                raise RuntimeError(f"{name}: sleep does not run")
            os.kill(worker.process.pid, signal.SIGKILL)
            began = time.monotonic()
            if until(lambda: not containers() - before, 10):
                facts["killed"] = f"nothing, after {time.monotonic() - began:.1f} s"
            else:
                facts["killed"] = f"{len(containers() - before)} container, its command running"

    def time_out(self, name: str) -> tuple[str, str]:
        """Run a command for too long. Return how that ended, and how many of its processes are left after 15 s."""
        with self.sandbox(name, LIMIT) as (worker, container):
            how = said(worker.call("shell", command="sleep 301 & setsid sleep 302 & sleep 303", timeout=LIMIT))
            began = time.monotonic()

            def left() -> int:
                return sum(each.split(maxsplit=1)[1].startswith("sleep 30") for each in commands_of(container))

            if not until(lambda: not left(), 15):
                return how, f"{left()} of 3"
            passed = time.monotonic() - began
            ended = "" if container in docker("ps", "-q", "--no-trunc").split() else ", with the sandbox"
            return how, f"none{ended}" if passed < 1 else f"none after {passed:.0f} s{ended}"

    def remove(self) -> None:
        """Remove what is left of failed peers, and the built images."""
        for each in containers() if self.built else ():
            subprocess.run(["docker", "rm", "-f", "-v", each], capture_output=True)
        for tag in self.built:
            subprocess.run(["docker", "rmi", "-f", tag], capture_output=True)


def said(answer: dict[str, Any]) -> str:
    """Return how a package said that a command ended."""
    if "raised" in answer:
        return f"raises `{answer['raised']}`"
    return f"`{answer['value']}`"


def main() -> None:
    """Compare."""
    rounds, output = int(sys.argv[1]), Path(sys.argv[2])
    made = Comparison(
        dict(each.split("=", 1) for each in sys.argv[3:]), lambda text: print(text, file=sys.stderr, flush=True)
    )
    try:
        made.build()
        made.measure(rounds)
        for name, seen in made.seen.items():
            if not seen.failed:
                made.log(f"examine {name}")
                made.examine(name)
    finally:
        made.remove()
    machine = {
        "engine": docker("version", "--format", "{{.Server.Version}}"),
        "kernel": platform.release().split("-")[0],
        "cores": str(os.cpu_count()),
        "rounds": str(rounds),
        "date": time.strftime("%Y-%m-%d"),
    }
    output.write_text(page(made.seen, machine))


if __name__ == "__main__":
    main()
