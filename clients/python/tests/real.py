"""The real program, for tests that need a server: on Docker, and on the other providers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from fumehood import Client, Provider, Sandbox

IMAGE = "fumehood-test/python"
BINARY = os.environ.get("FUMEHOOD_BINARY", "")
PROVIDER = os.environ.get("FUMEHOOD_PROVIDER", "docker")  # of the tests of adapters
WAITS = 20.0  # seconds that a test waits for what must come

# Takes all processes of a sandbox, and each one that becomes free.
BOMB = """
import os, time
while True:
    try:
        if not os.fork():
            time.sleep(600)
    except OSError:
        time.sleep(0.01)
"""

needs_server = unittest.skipUnless(BINARY, "FUMEHOOD_BINARY names no program: run make test-client")


def wait_for(happens: Callable[[], object], seconds: float = WAITS) -> bool:
    """Wait until something happens. Report whether it did."""
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def containers(name: str) -> list[str]:
    """Return the containers whose names have a part, or the sandboxes of the native provider."""
    if PROVIDER == "native":
        return [each for each in native_sandboxes() if name in each]
    command = ["docker", "ps", "-aq", "--filter", f"name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def kill(sandbox: str) -> None:
    """Kill all processes of a sandbox, from outside."""
    if PROVIDER != "native":
        subprocess.run(["docker", "kill", *containers(sandbox)], check=True, capture_output=True)
        return
    for groups in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):  # it has ended
            if f"/fumehood/{sandbox}-" in groups.read_text():
                os.kill(int(groups.parent.name), signal.SIGKILL)


def native_sandboxes() -> list[str]:
    """Return the sandboxes of the native provider that this process and its children have made."""
    return [path.name for path in Path(os.environ["XDG_STATE_HOME"], "fumehood", "native").glob("*")]


def needs(provider: str | None) -> None:
    """Skip a test if the provider does not work here. Load the image of the native provider."""
    if provider == "kubernetes" and "FUMEHOOD_GUEST_IMAGE" not in os.environ:
        raise unittest.SkipTest("no cluster: `make test-kubernetes` has one")
    if provider != "native":
        return
    if sys.platform != "linux" or os.geteuid() != 0:
        raise unittest.SkipTest("the native provider needs Linux and root")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    command = [BINARY, "--provider", "native", "image", "load", str(cache / "fumehood-test" / "python.tar")]
    subprocess.run(command, capture_output=True, check=True)


class OnProvider(unittest.TestCase):
    """Tests with a client and a sandbox of a provider. Subclasses name it."""

    provider: ClassVar[Provider | None] = None
    arguments: ClassVar[Sequence[str]] = ()
    client: ClassVar[Client]
    sb: ClassVar[Sandbox]

    @classmethod
    def setUpClass(cls) -> None:
        if not cls.provider or not BINARY:
            raise unittest.SkipTest("FUMEHOOD_BINARY names no program: run make test-client")
        needs(cls.provider)
        cls.client = Client(provider=cls.provider, arguments=cls.arguments)
        cls.addClassCleanup(cls.client.close)
        cls.sb = cls.start()

    @classmethod
    def start(cls) -> Sandbox:
        """Start a sandbox of the client."""
        return cls.client.start("" if cls.provider == "local" else IMAGE)

    def setUp(self) -> None:
        self.folder = f"/tmp/fumehood-test-{os.getpid()}-{self.id().rsplit('.', 1)[1]}"
        self.sb.mkdir(self.folder, parents=True)
        self.addCleanup(self.sb.remove, self.folder, recursive=True)

    def temporary(self) -> Path:
        """Return a folder of this machine."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return Path(folder.name)


class Proxy:
    """Passes connections on to a unix socket, and can break them when a request has passed."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self._folder.name, "socket"))
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        self._losing = b""
        self.losses = 0  # answers that are still to be lost
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join()
        for each in self._open:
            each.close()
        self._folder.cleanup()

    def lose(self, part: bytes, number: int) -> None:
        """Lose the answers to the next requests that have a part, with their connections."""
        self._losing, self.losses = part, number

    def drop(self) -> None:
        """Break all connections."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            self._open += [client, server]
            try:
                server.connect(self._to)
            except OSError:
                self._end(client)
                continue
            lost = threading.Event()
            for target, sockets in ((self._requests, (client, server)), (self._answers, (server, client))):
                self._threads.append(threading.Thread(target=target, args=(*sockets, lost), daemon=True))
                self._threads[-1].start()

    def _requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self.losses and self._losing in data:
                    self.losses -= 1
                    lost.set()
                server.sendall(data)
        self._end(client, server)

    def _answers(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if lost.is_set():
                    break
                client.sendall(data)
        self._end(client, server)

    def _end(self, *sockets: socket.socket) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
