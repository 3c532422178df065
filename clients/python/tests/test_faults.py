"""Connections that break, and processes that are killed, with the real program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fumehood
from fumehood import AsyncClient, Chunk, Client
from tests.real import BINARY, IMAGE, WAITS, Proxy, containers, needs_server, wait_for


@needs_server
class TestConnections(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        command = [BINARY, "serve", "--provider", "local", "--socket", str(self.here / "socket")]
        self.server = subprocess.Popen(command, stderr=subprocess.PIPE)
        self.addCleanup(self._stop)
        assert self.server.stderr
        while b"serving" not in (line := self.server.stderr.readline()):
            self.assertTrue(line, "the server has ended")
        self.proxy = Proxy(str(self.here / "socket"))
        self.addCleanup(self.proxy.__exit__)
        self.client = Client(f"unix:{self.proxy.path}")
        self.addCleanup(self.client.close)
        self.sb = self.client.start()

    def _stop(self) -> None:
        self.server.terminate()
        assert self.server.stderr
        with self.server.stderr:
            self.server.wait(WAITS)

    def test_run_once(self) -> None:
        self.proxy.lose(b"/run", 3)
        r = self.sb.run(["sh", "-c", f"echo x >>{self.here}/ran; sleep 0.1; echo done"])
        self.assertEqual((r.stdout.text, (self.here / "ran").read_text()), ("done\n", "x\n"))
        self.assertEqual(self.proxy.losses, 0)

    def test_start_once(self) -> None:
        self.proxy.lose(b"POST /v1/sandboxes", 2)
        with self.client.start() as sb:
            self.assertEqual({s.name for s in self.client.sandboxes()}, {sb.info.name, self.sb.info.name})
        self.proxy.lose(b"/processes", 2)
        self.sb.start(["sh", "-c", f"echo x >>{self.here}/started"]).wait()
        self.assertEqual(((self.here / "started").read_text(), len(self.sb.processes())), ("x\n", 1))

    def test_all_connections(self) -> None:
        for _ in range(3):
            self.proxy.drop()
            self.assertEqual(self.sb.run(["echo", "x"]).stdout.text, "x\n")
        self.sb.write(f"{self.here}/file", b"content")
        self.proxy.drop()
        self.assertEqual(self.sb.read(f"{self.here}/file"), b"content")

    def test_events(self) -> None:
        ticks = 60
        script = f"i=0; while [ $i -lt {ticks} ]; do i=$((i+1)); echo $i; sleep 0.01; done"
        got = ""
        with self.sb.stream(["sh", "-c", script]) as stream:
            for n, event in enumerate(stream):
                if isinstance(event, Chunk):
                    self.assertEqual(event.skipped, 0)
                    got += event.text
                    if n % 10 == 0:
                        self.proxy.drop()
                else:
                    self.assertTrue(event.result.success)
        self.assertEqual(got, "".join(f"{n}\n" for n in range(1, ticks + 1)))

    @mock.patch("fumehood._calls.PATIENCE", 0.5)
    def test_server_killed(self) -> None:
        process = self.sb.start(["sleep", "100"])
        self.server.kill()
        self.server.wait(WAITS)
        with self.assertRaises(ConnectionError) as caught:
            self.sb.run(["true"])
        self.assertIsInstance(caught.exception, fumehood.ConnectionLostError)
        with self.assertRaises(fumehood.ConnectionLostError):
            process.wait()

    def test_server_restarted(self) -> None:
        self.server.kill()
        self.server.wait(WAITS)
        (self.here / "socket").unlink(missing_ok=True)
        command = [BINARY, "serve", "--provider", "local", "--socket", str(self.here / "socket")]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as other:
            assert other.stderr
            while b"serving" not in other.stderr.readline():
                pass
            with self.assertRaises(fumehood.StaleError):
                self.sb.run(["sh", "-c", f"echo x >>{self.here}/ran"])
            self.assertFalse((self.here / "ran").exists())
            self.assertTrue(wait_for(lambda: not self.client._async._opened._lease))  # type: ignore[union-attr]
            with self.client.start() as sb:  # under a new lease
                self.assertTrue(sb.run(["true"]).success)
            other.terminate()

    def test_canceled(self) -> None:
        async def main() -> None:
            async with AsyncClient(f"unix:{self.proxy.path}") as client, await client.start() as sb:
                run = asyncio.create_task(sb.run(["sh", "-c", f"echo $$ >{self.here}/pid; exec sleep 100"]))
                await asyncio.to_thread(
                    wait_for, lambda: (self.here / "pid").exists() and (self.here / "pid").read_text()
                )
                run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await run
                pid = int((self.here / "pid").read_text())
                with self.assertRaises(ProcessLookupError):
                    os.kill(pid, 0)

        asyncio.run(main())


HARNESS = """
import sys, threading
from fumehood import Client
with Client() as c:
    boxes = [c.start(sys.argv[1]) for _ in range(2)]
    threading.Thread(target=boxes[0].run, args=(["sleep", "100"],)).start()
    boxes[1].run(["true"])
    print(*(sb.info.name for sb in boxes), flush=True)
    sys.stdin.read()
"""


@needs_server
class TestKilled(unittest.TestCase):
    def test_client(self) -> None:
        command = [sys.executable, "-c", HARNESS, IMAGE]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as harness:
            assert harness.stdout
            names = harness.stdout.readline().decode().split()
            self.assertEqual([len(containers(name)) for name in names], [1, 1])
            harness.send_signal(signal.SIGKILL)
        self.assertTrue(wait_for(lambda: not any(containers(name) for name in names)))

    def test_server(self) -> None:
        client = Client(arguments=["--provider", "docker"])
        sb = client.start(IMAGE)
        core = client._async._opened
        assert core and core.server
        process = core.server._process
        process.kill()
        process.wait()
        with self.assertRaises(fumehood.UnavailableError) as caught:
            sb.run(["true"])
        self.assertIn("it has ended: status -9", str(caught.exception))
        self.assertTrue(wait_for(lambda: not containers(sb.info.name)))
        client.close()


if __name__ == "__main__":
    unittest.main()
