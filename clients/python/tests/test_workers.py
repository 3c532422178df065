"""Sandboxes on two servers, of which one is killed."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import fumehood
from fumehood import Client
from tests.real import BINARY, IMAGE, WAITS, needs, needs_server, wait_for


@needs_server
class TestWorkers(unittest.TestCase):
    def serve(self, folder: Path) -> subprocess.Popen[bytes]:
        """Start a server of the native provider."""
        folder.mkdir()
        server = subprocess.Popen(
            [BINARY, "serve", "--provider", "native", "--socket", str(folder / "socket")],
            env={**os.environ, "XDG_STATE_HOME": str(folder)},
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(server.wait, WAITS)
        self.addCleanup(server.terminate)
        self.assertTrue(wait_for((folder / "socket").exists))
        return server

    def test_kill(self) -> None:
        needs("native")
        with tempfile.TemporaryDirectory() as parent:
            folders = [Path(parent, name) for name in ("one", "two")]
            servers = [self.serve(folder) for folder in folders]
            with Client(workers=[f"unix:{folder}/socket" for folder in folders]) as client:
                boxes = [client.start(IMAGE) for _ in servers]
                self.assertEqual([each.run(["sh", "-c", "exit 7"]).exit_code for each in boxes], [7, 7])
                servers[0].kill()
                servers[0].wait(WAITS)
                lost = 0
                for each in boxes:
                    try:
                        self.assertTrue(each.run(["true"]).success)
                    except fumehood.UnavailableError:
                        lost += 1
                self.assertEqual(lost, 1)
                with client.start(IMAGE) as later:  # on the other one
                    self.assertTrue(later.run(["true"]).success)
            self.doCleanups()  # before the folder is removed
