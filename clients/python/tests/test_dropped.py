"""Clients, sandboxes and iterations that are dropped without a close, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import tempfile
import threading
import unittest
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import trio.lowlevel

import fumehood
from fumehood import AsyncClient, Client
from tests.real import BINARY, needs_server, wait_for

LOCAL = ("--provider", "local")
Use = Callable[[AsyncClient], Awaitable[Any]]


def children() -> list[str]:
    """Return the servers that this process has started, also those that have ended and were not reaped."""
    command = ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line for line in listed if "fumehood" in line]


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def on_asyncio(main: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        await main()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(run())


def on_trio(main: Callable[[], Awaitable[Any]]) -> None:
    import trio

    async def run() -> None:
        await main()
        gc.collect()
        await trio.lowlevel.checkpoint()

    trio.run(run)


LOOPS = {"asyncio": on_asyncio}
with contextlib.suppress(ImportError):
    import trio  # noqa: F401

    LOOPS["trio"] = on_trio


@needs_server
class TestDropped(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    @contextlib.contextmanager
    def leaving_nothing(self, *warned: str) -> Iterator[None]:
        """Check that nothing of what is done stays, and which warnings it gives."""
        gc.collect()
        self.assertEqual(children(), [])
        threads, files = threading.active_count(), descriptors()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield
            gc.collect()
            self.assertTrue(wait_for(lambda: not children()), children())
            self.assertTrue(wait_for(lambda: threading.active_count() <= threads), threading.enumerate())
            self.assertTrue(wait_for(lambda: descriptors() <= files))
        texts = sorted(str(each.message) for each in found if each.category is ResourceWarning)
        self.assertEqual(len(texts), len(warned), texts)
        for text, part in zip(texts, sorted(warned), strict=True):
            self.assertIn(part, text)

    def test_client(self) -> None:
        with self.leaving_nothing("unclosed client", "unclosed sandbox"):
            Client(arguments=LOCAL).start().run(["true"])

    def test_client_async(self) -> None:
        async def main() -> None:
            sandbox = await AsyncClient(arguments=LOCAL).start()
            await sandbox.run(["true"])

        for name, run in LOOPS.items():
            with self.subTest(name), self.leaving_nothing("unclosed client", "unclosed sandbox"):
                run(main)

    def test_several(self) -> None:
        with self.leaving_nothing(*["unclosed client"] * 3):
            clients = [Client(arguments=LOCAL) for _ in range(3)]
            for client in clients:
                client.connect()
            del client
            clients.clear()

    def test_sandbox_holds_its_client(self) -> None:
        sandbox = Client(arguments=LOCAL).start()
        gc.collect()
        self.assertTrue(sandbox.run(["true"]).success)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            sandbox.close()
            del sandbox
            gc.collect()
        self.assertEqual([str(each.message)[:15] for each in found], ["unclosed client"])
        self.assertTrue(wait_for(lambda: not children()))

    def test_other_server(self) -> None:
        """The lease at a server that others have started ends as well."""
        state, path = self.folder / "state", self.folder / "socket"
        command = [BINARY, "serve", *LOCAL, "--socket", str(path)]
        env = {**os.environ, "XDG_STATE_HOME": str(state), "XDG_RUNTIME_DIR": str(self.folder)}
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=env) as server:
            assert server.stderr
            while b"serving" not in server.stderr.readline():
                pass
            for name in ("blocking", "asyncio"):
                with self.subTest(name), self.assertWarns(ResourceWarning):
                    if name == "blocking":
                        self.drop(f"unix:{path}")
                    else:
                        on_asyncio(lambda: self.adrop(f"unix:{path}"))
                    gc.collect()
                    self.assertTrue(wait_for(lambda: not self.running(name)), name)  # noqa: B023
            server.terminate()

    def drop(self, url: str) -> None:
        Client(url).start().start(["sh", "-c", "sleep 600; : dropped-blocking"])
        self.assertTrue(wait_for(lambda: self.running("blocking")))

    async def adrop(self, url: str) -> None:
        sandbox = await AsyncClient(url).start()
        await sandbox.start(["sh", "-c", "sleep 600; : dropped-asyncio"])
        self.assertTrue(wait_for(lambda: self.running("asyncio")))

    @staticmethod
    def running(name: str) -> bool:
        listed = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
        return f"dropped-{name}" in listed

    def test_closed(self) -> None:
        with self.leaving_nothing():
            with Client(arguments=LOCAL) as client:
                with client.start() as sandbox:
                    sandbox.run(["true"])
                other = client.start()
                client.get(other.name).close()  # another handle
                del other
                kept = client.start()
            del client, sandbox, kept

    def test_sandbox(self) -> None:
        with self.leaving_nothing("unclosed sandbox forgotten"), Client(arguments=LOCAL) as client:
            client.start(name="forgotten")
            gc.collect()
            self.assertTrue(client.get("forgotten").run(["true"]).success)

    def test_stream(self) -> None:
        """An iteration that is dropped gives its connection back, so that no later one waits for it."""
        with self.leaving_nothing("unclosed stream"), Client(arguments=LOCAL) as client, client.start() as sandbox:
            for event in sandbox.stream(["sh", "-c", "echo; sleep 600"]):
                self.assertIsInstance(event, fumehood.Chunk)
                break
            gc.collect()
            self.assertTrue(sandbox.run(["true"]).success)

    def test_events_async(self) -> None:
        async def main() -> None:
            async with AsyncClient(arguments=LOCAL) as client, await client.start() as sandbox:
                for _ in range(5):
                    process = await sandbox.start(["sh", "-c", "echo; sleep 600"])
                    async for event in process.events():
                        self.assertIsInstance(event, fumehood.Chunk)
                        break
                    gc.collect()
                    for _ in range(3):
                        await asyncio.wait_for(sandbox.run(["true"]), 20)

        with self.leaving_nothing():
            asyncio.run(main())

    def test_idle(self) -> None:
        with Client(provider="local", allow_kept=True) as client:
            sandbox = client.start(idle=2)
            self.assertTrue(sandbox.run(["sleep", "3"]).success)
            self.assertTrue(wait_for(lambda: sandbox.name not in [each.name for each in client.sandboxes()]))
            with self.assertRaises(fumehood.SandboxNotFoundError) as caught:
                sandbox.run(["true"])
            self.assertIn("2s", str(caught.exception))
            self.assertIn("idle", caught.exception.hint)
            sandbox.close()
            with self.assertRaises(fumehood.ConfigError):
                client.start(idle=1, keep=True, ttl=60)
            with self.assertRaises(fumehood.ConfigError):
                client.start(idle=-1)


if __name__ == "__main__":
    unittest.main()
