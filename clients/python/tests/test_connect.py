"""Where the server is, and which servers are refused."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import fumehood
from fumehood import AsyncClient, Client
from tests.fake import Fake, answer
from tests.real import BINARY, WAITS, needs_server

try:
    import anyio  # noqa: F401
    import trio
except ImportError:
    trio = None  # type: ignore[assignment]

TOKEN = "a-token-of-the-test"


@needs_server
class TestListen(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        (self.here / "token").write_text(TOKEN)
        (self.here / "token").chmod(0o600)

    def serve(self, *arguments: str) -> str:
        """Start a server and return its address."""
        server = subprocess.Popen([BINARY, "serve", "--provider", "local", *arguments], stderr=subprocess.PIPE)

        def stop() -> None:
            server.terminate()
            assert server.stderr
            with server.stderr:
                server.wait(WAITS)

        self.addCleanup(stop)
        assert server.stderr
        while not (found := re.search(rb"serving (\S+)", line := server.stderr.readline())):
            self.assertTrue(line, "the server has ended")
        return found[1].decode()

    def test_environment(self) -> None:
        address = self.serve("--listen", "127.0.0.1:0", "--token-file", str(self.here / "token"))
        socket = str(self.here / "socket")
        self.serve("--socket", socket)
        for variables in ({"FUMEHOOD_URL": f"http://{address}", "FUMEHOOD_TOKEN": TOKEN}, {"FUMEHOOD_SOCKET": socket}):
            with self.subTest(variables), mock.patch.dict(os.environ, variables), Client() as c, c.start() as sb:
                self.assertEqual(sb.run(["echo", "hi"]).stdout.text, "hi\n")
        for token in ("", "wrong"):
            with self.subTest(token), self.assertRaises(PermissionError) as caught:
                Client(f"http://{address}", token=token).connect()
            self.assertEqual(caught.exception.status, 401)  # type: ignore[attr-defined]

    def test_tls(self) -> None:
        cert, key = str(self.here / "cert"), str(self.here / "key")
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]
        command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except FileNotFoundError:
            self.skipTest("needs openssl")
        token = str(self.here / "token")
        address = self.serve("--listen", "127.0.0.1:0", "--token-file", token, "--tls-cert", cert, "--tls-key", key)
        with self.assertRaises(fumehood.ConnectionLostError):
            Client(f"https://{address}", token=TOKEN).connect()  # no authority has signed it
        tls = ssl.create_default_context(cafile=cert)
        data = os.urandom(1 << 20)
        with Client(f"https://{address}", token=TOKEN, tls=tls) as c, c.start() as sb:
            sb.write(f"{self.here}/data", data)
            self.assertEqual(sb.read(f"{self.here}/data"), data)

        async def main() -> None:
            async with AsyncClient(f"https://{address}", token=TOKEN, tls=tls) as c, await c.start() as sb:
                self.assertEqual(await sb.read(f"{self.here}/data"), data)

        asyncio.run(main())
        if trio:
            trio.run(main)


class TestImport(unittest.TestCase):
    def test_standard_library_only(self) -> None:
        source = Path(fumehood.__file__).parent.parent
        code = f"import sys; sys.path.insert(0, {str(source)!r}); import fumehood; fumehood.Client"
        subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)  # -S: no site-packages


class TestVersions(unittest.TestCase):
    def test_other_server(self) -> None:
        with Fake(lambda got: answer({"version": "v9.9.9", "api": 2})) as fake:
            client = Client(f"unix:{fake.path}")
            with self.assertRaises(fumehood.VersionError) as caught:
                client.connect()
            client.close()
        self.assertIn("v9.9.9", str(caught.exception))

    def test_other_program(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "fumehood")
            hello = '{"address": "unix:/nowhere", "version": "v9.9.9", "api": 2}'
            program.write_text(f"#!{sys.executable} -S\nimport sys; print('{hello}', flush=True); sys.stdin.read()")
            program.chmod(0o755)
            client = Client(binary=program)
            with self.assertRaises(fumehood.VersionError):
                client.connect()
            client.close()

    def test_contradiction(self) -> None:
        with self.assertRaises(fumehood.ConfigError):
            Client("unix:/x", binary="/y")


if __name__ == "__main__":
    unittest.main()
