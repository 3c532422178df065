"""Servers that the client starts, with programs of the test in the place of fumehood."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from fumehood import _errors
from fumehood._launch import Server, find_binary, forks

LOG = """\
{"time": "t", "level": "WARN", "msg": "a warning", "key": "value"}
{"level": "INFO", "msg": "no warning"}
no JSON
"""


class TestServer(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, text: str) -> str:
        path = self.folder / "fumehood"
        path.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{text}\n")
        path.chmod(0o755)
        return str(path)

    def test_hello(self) -> None:
        script = self.program("print(sys.argv[1:]); print('x')")
        with self.assertRaises(_errors.InfrastructureError):
            Server(script)
        script = self.program("""
print('{"address": "unix:/x", "args": "%s"}' % ' '.join(sys.argv[1:]), flush=True)
open(sys.argv[0] + '.pid', 'w').write(str(os.getpid()))
sys.stdin.read()
open(sys.argv[0] + '.ended', 'w').close()""")
        server = Server(script, ["--a"])
        self.assertEqual(
            server.hello, {"address": "unix:/x", "args": "serve --stdio --log-format json --log-level warn --a"}
        )
        self.assertFalse(server.ended)
        server.stop()
        self.assertTrue(server.ended)
        self.assertTrue((self.folder / "fumehood.ended").exists())

    def test_failed_start(self) -> None:
        with self.assertRaises(_errors.InfrastructureError) as caught:
            Server(self.program("sys.stderr.write('no daemon\\n'); sys.exit(3)"))
        self.assertIn("status 3; no daemon", str(caught.exception))
        with self.assertRaises(_errors.ConfigError):
            Server("/nonexistent/fumehood")
        line = '{"level": "ERROR", "msg": "--idle: not a time", "exit_code": 2, "class": "config"}'
        with self.assertRaisesRegex(_errors.ConfigError, "^server: idle: not a time$"):
            Server(self.program(f"sys.stderr.write({line!r}); sys.exit(2)"))
        began = time.monotonic()
        with self.assertRaises(TimeoutError):
            Server(self.program("time.sleep(60)"), timeout=0.2)
        self.assertLess(time.monotonic() - began, 10)

    def test_log(self) -> None:
        script = self.program(f"sys.stderr.write({LOG!r}); print('{{}}', flush=True); sys.stdin.read()")
        with self.assertLogs("fumehood.server", "WARNING") as logs:
            Server(script).stop()
        self.assertEqual([r.getMessage() for r in logs.records], ["a warning key=value", "no JSON"])

    def test_ends_when_abandoned(self) -> None:
        script = self.program("print('{}', flush=True); sys.stdin.read(); open(sys.argv[0] + '.ended', 'w').close()")
        with self.assertWarns(ResourceWarning):
            Server(script)
            gc.collect()
        ended, deadline = self.folder / "fumehood.ended", time.monotonic() + 10
        while not ended.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertTrue(ended.exists())

    def test_child_of_fork_does_not_hold_it(self) -> None:
        script = self.program("print('{}', flush=True); sys.stdin.read()")
        server = Server(script)
        count = forks.count
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # lives until the pipe closes
            os.close(write)
            os.read(read, 1)
            os._exit(0 if forks.count == count + 1 else 1)
        os.close(read)
        try:
            began = time.monotonic()
            server.stop()
            self.assertLess(time.monotonic() - began, 10)
        finally:
            os.close(write)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)


class TestFindBinary(unittest.TestCase):
    def test_variable(self) -> None:
        with mock.patch.dict(os.environ, {"FUMEHOOD_BINARY": "/x/y"}):
            self.assertEqual(find_binary(), "/x/y")

    def test_none(self) -> None:
        with (
            mock.patch.dict(os.environ, {"FUMEHOOD_BINARY": "", "PATH": "/nonexistent"}),
            mock.patch("fumehood._launch._installed", return_value=[]),
            self.assertRaises(_errors.ConfigError) as caught,
        ):
            find_binary()
        self.assertIn("FUMEHOOD_BINARY", caught.exception.hint)


if __name__ == "__main__":
    unittest.main()
