"""Ports of sandboxes without a network: streams, and ports of this machine that lead to them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
import warnings
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import fumehood
from fumehood import AsyncClient, AsyncSandbox, Client, Forward, PortStream, Sandbox, Service
from fumehood._io import finish
from tests.fake import Fake, Got, answer
from tests.real import BINARY, IMAGE, WAITS, OnProvider, containers, needs, needs_server, wait_for

try:
    import anyio  # noqa: F401
    import trio
except ImportError:
    trio = None  # type: ignore[assignment]

Work = Callable[[], Coroutine[Any, Any, None]]

SIZE = 20_000_000  # bytes in each direction

# Programs in the sandbox: 8000 is an HTTP server, 8001 sends back what it gets until that ends, 8002 sends its end
# first, 8003 resets its connections, 8004 ignores everything.
SERVERS = f"""
import hashlib, http.server, os, socket, struct, threading, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        if self.path == "/poll":
            time.sleep(4)
            self.answer(b"polled")
        elif self.path == "/upgrade":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "echo")
            self.end_headers()
            self.wfile.write(b"welcome")
            while data := self.connection.recv(65536):
                self.wfile.write(data.upper())
            self.close_connection = True
        elif self.path == "/large":
            self.answer(bytes(range(250)) * ({SIZE} // 250))
        else:
            self.answer(b"page " + self.path.encode())
    def do_POST(self):
        left, digest = int(self.headers["Content-Length"]), hashlib.sha256()
        while left:
            data = self.rfile.read(min(left, 1 << 16))
            digest.update(data)
            left -= len(data)
        self.answer(digest.hexdigest().encode())
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 200
def echo(c):
    while data := c.recv(65536):
        c.sendall(data)
def first(c):
    c.sendall(b"word")
    c.shutdown(socket.SHUT_WR)
    got = b""
    while data := c.recv(65536):
        got += data
    open("/tmp/heard", "wb").write(got)
def reset(c):
    c.sendall(b"part")
    c.recv(1)
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def ignore(c):
    time.sleep(600)
def run(f, c):
    with c:
        f(c)
def serve(s, f):
    while True:
        threading.Thread(target=run, args=(f, s.accept()[0]), daemon=True).start()
sockets = [socket.create_server(("127.0.0.1", port), backlog=200) for port in range(8001, 8005)]
for s, f in zip(sockets, (echo, first, reset, ignore)):
    threading.Thread(target=serve, args=(s, f), daemon=True).start()
server = Server(("127.0.0.1", 8000), Handler)
print("ready", flush=True)
server.serve_forever()
"""

LARGE = bytes(range(250)) * (SIZE // 250)


def serve(service: Service) -> None:
    """Start the servers, and wait until they listen."""
    process = service.start(["python3", "-c", SERVERS], events=True)
    with process.events() as events:
        event = next(events)
    if not isinstance(event, fumehood.Chunk) or event.text != "ready\n":
        raise AssertionError(f"no servers: {event}")


def connect(forward: Forward | fumehood.AsyncForward) -> socket.socket:
    """Connect to a port of this machine."""
    return socket.create_connection((forward.host, forward.port), WAITS)


def send_large(connection: socket.socket) -> None:
    """Send much, and the end of the direction."""
    connection.sendall(LARGE)
    connection.shutdown(socket.SHUT_WR)


def write_large(stream: PortStream) -> None:
    """Write much to a stream, and end the direction."""
    stream.write(LARGE)
    stream.close_write()


def receive(connection: socket.socket) -> bytes:
    """Return what comes until the end of the direction."""
    got = b""
    while data := connection.recv(1 << 20):
        got += data
    return got


def killed() -> contextlib.AbstractContextManager[None]:
    """Permit that a connection breaks. That of a killed program may end instead, as the kernel does it."""
    return contextlib.suppress(ConnectionError)


def get(url: str, data: bytes | None = None) -> bytes:
    """Return the page at a URL."""
    with urllib.request.urlopen(url, data, timeout=4 * WAITS) as page:
        content: bytes = page.read()
    return content


def together(number: int, work: Callable[[int], None]) -> None:
    """Run work in threads, and raise the first of their errors."""
    failed: list[BaseException] = []

    def run(n: int) -> None:
        try:
            work(n)
        except BaseException as e:  # noqa: BLE001
            failed.append(e)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def forwarding() -> list[str]:
    """Return the threads of forwarded ports."""
    return [each.name for each in threading.enumerate() if each.name == "fumehood-forward"]


class Ports(OnProvider):
    """The blocking client."""

    web: ClassVar[Forward]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        serve(cls.sb)
        cls.web = cls.sb.forward(8000)
        cls.web.__enter__()
        cls.addClassCleanup(cls.web.close)

    def test_http(self) -> None:
        self.assertEqual((self.web.host, str(self.web)), ("127.0.0.1", f"127.0.0.1:{self.web.port}"))
        with self.assertRaisesRegex(fumehood.ConfigError, "no address yet"):
            _ = self.sb.forward(8000).url
        self.assertEqual(get(f"{self.web.url}/a"), b"page /a")
        self.assertIsNone(self.web.error)

    def test_http_large(self) -> None:
        self.assertEqual(get(f"{self.web.url}/large"), LARGE)
        self.assertEqual(get(self.web.url, LARGE).decode(), hashlib.sha256(LARGE).hexdigest())

    def test_long_poll(self) -> None:
        began = time.monotonic()
        self.assertEqual(get(f"{self.web.url}/poll"), b"polled")
        self.assertGreater(time.monotonic() - began, 3.9)

    def test_upgrade(self) -> None:
        """An upgraded connection carries messages of both sides, as that of a WebSocket."""
        with connect(self.web) as connection:
            connection.sendall(b"GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
            got = b""
            while not got.endswith(b"\r\n\r\nwelcome"):
                self.assertTrue(piece := connection.recv(1000), got)
                got += piece
            self.assertTrue(got.startswith(b"HTTP/1.1 101 "), got)
            for n in range(20):
                connection.sendall(b"message %d" % n)
                self.assertEqual(connection.recv(1000), b"MESSAGE %d" % n)
            connection.shutdown(socket.SHUT_WR)
            self.assertEqual(receive(connection), b"")

    def test_many(self) -> None:
        opened = threading.Barrier(50)

        def work(n: int) -> None:
            with connect(self.web) as connection:
                opened.wait(4 * WAITS)  # all at once
                connection.sendall(b"GET /%d HTTP/1.0\r\n\r\n" % n)
                self.assertTrue(receive(connection).endswith(b"\r\n\r\npage /%d" % n))

        together(50, work)

    def test_half_closed(self) -> None:
        with self.sb.forward(8001) as echo, connect(echo) as connection:
            sending = threading.Thread(target=send_large, args=(connection,))
            sending.start()
            self.assertEqual(hashlib.sha256(receive(connection)).digest(), hashlib.sha256(LARGE).digest())
            sending.join()
        with self.sb.forward(8002) as first, connect(first) as connection:
            self.assertEqual(receive(connection), b"word")
            connection.sendall(b"forwarded")
            connection.shutdown(socket.SHUT_WR)
            self.assertTrue(wait_for(lambda: self.heard() == b"forwarded"))

    def heard(self) -> bytes:
        try:
            return self.sb.read("/tmp/heard")
        except FileNotFoundError:
            return b""

    def test_broken(self) -> None:
        with self.sb.forward(8003) as port, connect(port) as connection:
            self.assertEqual(connection.recv(4), b"part")
            connection.sendall(b"x")
            with self.assertRaises(ConnectionResetError):  # it is not taken for the whole
                receive(connection)

    def test_nothing_listens(self) -> None:
        with self.sb.forward(9000) as port:
            for _ in range(2):
                with self.assertRaises(ConnectionResetError), connect(port) as connection:
                    receive(connection)
            self.assertIsInstance(port.error, fumehood.UnavailableError)
            self.assertIn("refused", str(port.error))
            self.assertIn("listens", str(port.error))
            self.sb.start(["python3", "-m", "http.server", "-d", self.folder, "9000"])
            self.assertTrue(wait_for(lambda: self.listening(port)))

    @staticmethod
    def listening(port: Forward) -> bool:
        try:
            return b"Directory listing" in get(port.url)
        except OSError:
            return False

    def test_local_end_goes(self) -> None:
        """A program of this machine that is gone ends the connection inside."""
        with self.sb.forward(8004) as port:
            connection = connect(port)
            self.assertTrue(wait_for(lambda: self.sockets(8004)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
            self.assertTrue(wait_for(lambda: not self.sockets(8004)))

    def sockets(self, port: int) -> list[str]:
        """Return the connections to a port that are open at the client's side, inside."""
        lines = self.sb.read_text("/proc/net/tcp").splitlines()
        return [line for line in lines if re.search(rf" [0-9A-F]+:{port:04X} 01 ", line)]

    def test_left(self) -> None:
        """Leaving a forwarded port ends its connections, its thread and its descriptors."""
        files = descriptors()
        before = forwarding()
        with self.sb.forward(8004) as port:
            connections = [connect(port) for _ in range(3)]
            self.assertTrue(wait_for(lambda: len(self.sockets(8004)) == 3))
        for connection in connections:
            with killed():
                self.assertEqual(receive(connection), b"")
            connection.close()
        with self.assertRaises(ConnectionRefusedError):
            connect(port)
        self.assertEqual(forwarding(), before)
        self.assertTrue(wait_for(lambda: not self.sockets(8004)))
        self.assertTrue(wait_for(lambda: descriptors() <= files))
        port.close()
        with self.assertRaises(fumehood.ConfigError):
            port.__enter__()

    def test_address(self) -> None:
        with self.sb.forward(8000, host="::1") as port:
            self.assertEqual(str(port), f"[::1]:{port.port}")
            self.assertEqual(get(f"{port.url}/six"), b"page /six")
            with self.assertRaises(fumehood.ConfigError) as caught, self.sb.forward(8000, host="::1", port=port.port):
                pass
            self.assertIn("in use", str(caught.exception))
        with self.sb.forward(8000, port=port.port) as again:
            self.assertEqual(again.port, port.port)
        wrong: list[dict[str, Any]] = [
            {"sandbox_port": 0},
            {"sandbox_port": 1 << 16},
            {"sandbox_port": 80, "port": -1},
            {"sandbox_port": 80, "port": 1 << 16},
            {"sandbox_port": 80, "host": ""},
            {"sandbox_port": 80, "host": "host.invalid"},
        ]
        for given in wrong:
            with self.subTest(given), self.assertRaises(fumehood.ConfigError), self.sb.forward(**given):
                pass
        text: Any = "80"
        with self.assertRaisesRegex(TypeError, "^sandbox_port: "):
            self.sb.forward(text)

    def test_stream(self) -> None:
        with self.sb.open_port(8001) as stream:
            stream.write("text")
            self.assertEqual(stream.read(), b"text")
            with self.assertRaises(fumehood.RequestTimeoutError):
                stream.read(timeout=0.1)
            stream.write(b"bytes")  # it goes on
            self.assertEqual((stream.read(2), stream.read(2), stream.read()), (b"by", b"te", b"s"))
            stream.write(b"")  # is not the end
            stream.write(memoryview(b"view"))
            self.assertEqual(stream.read(), b"view")
            stream.close_write()
            stream.close_write()
            with self.assertRaises(fumehood.ConfigError):
                stream.write(b"x")
            self.assertEqual((stream.read(), stream.read()), (b"", b""))
            with self.assertRaises(fumehood.ConfigError):
                stream.read(0)
        stream = self.sb.open_port(8001)
        stream.close()
        stream.close()
        for use in (stream.read, lambda: stream.write(b"x"), stream.close_write):
            with self.assertRaises(fumehood.ClosedError):
                use()

    def test_stream_large(self) -> None:
        with self.sb.open_port(8001) as stream:
            sending = threading.Thread(target=write_large, args=(stream,))
            sending.start()
            digest = hashlib.sha256()
            while data := stream.read():
                digest.update(data)
            sending.join()
            self.assertEqual(digest.digest(), hashlib.sha256(LARGE).digest())

    def test_stream_half_closed(self) -> None:
        with self.sb.open_port(8002) as stream:
            self.assertEqual(read_all(stream), b"word")
            stream.write(b"of a ")
            stream.write(b"stream")
            stream.close_write()
            self.assertTrue(wait_for(lambda: self.heard() == b"of a stream"))

    def test_stream_broken(self) -> None:
        with self.sb.open_port(8003) as stream:
            self.assertEqual(stream.read(), b"part")
            stream.write(b"x")
            with self.assertRaises(ConnectionError) as caught:
                read_all(stream)
            self.assertIn("8003", str(caught.exception))

    def test_stream_of_a_killed_program(self) -> None:
        code = "import socket, time; c = socket.create_server(('127.0.0.1', 9001)).accept()[0]; c.sendall(b'part'); "
        code += "time.sleep(600)"
        process = self.sb.start(["python3", "-c", code])
        self.assertTrue(wait_for(lambda: "2329 " in self.listeners()))
        with self.sb.open_port(9001) as stream:
            self.assertEqual(stream.read(), b"part")
            process.kill()
            with killed():
                self.assertEqual(stream.read(timeout=WAITS), b"")

    def listeners(self) -> str:
        """Return the ports on which programs listen inside, in hexadecimal."""
        lines = self.sb.read_text("/proc/net/tcp").splitlines()
        return "".join(found[1] + " " for line in lines if (found := re.search(r":([0-9A-F]{4}) [0-9A-F:]+ 0A ", line)))

    def test_stream_refused(self) -> None:
        with self.assertRaises(fumehood.UnavailableError) as caught:
            self.sb.open_port(9002)
        self.assertIn("port 9002", str(caught.exception))
        self.assertIn("refused", str(caught.exception))

    def test_stream_closed_by_another_thread(self) -> None:
        stream = self.sb.open_port(8004)
        ended: list[BaseException] = []

        def read() -> None:
            try:
                stream.read()
            except fumehood.ClosedError as e:
                ended.append(e)

        def write() -> None:
            try:
                stream.write(bytes(64 << 20))  # more than all buffers hold
            except fumehood.ClosedError as e:
                ended.append(e)

        threads = [threading.Thread(target=read), threading.Thread(target=write)]
        for thread in threads:
            thread.start()
        self.assertTrue(wait_for(lambda: all(stream._async._connection._waiting)))
        stream.close()
        for thread in threads:
            thread.join(WAITS)
        self.assertEqual(len(ended), 2)

    def test_sandbox_closed(self) -> None:
        with self.start() as sb:
            serve(sb)
            stream, port, other = sb.open_port(8004), sb.forward(8004), sb.forward(8000)
            with port, other:
                connection = connect(port)
                self.assertTrue(wait_for(lambda: b"page" in get(other.url)))
                sb.close()
                with killed():
                    self.assertEqual(stream.read(timeout=WAITS), b"")
                with killed():
                    self.assertEqual(receive(connection), b"")
                connection.close()
                for each in (port, other):
                    with self.assertRaises(ConnectionRefusedError):
                        connect(each)
            with self.assertRaises(fumehood.ClosedError):
                sb.open_port(8000)
            with self.assertRaises(fumehood.ClosedError), sb.forward(8000):
                pass

    def test_client_closed(self) -> None:
        before = forwarding()
        client = Client(provider=self.provider)
        sb = client.start(IMAGE)
        serve(sb)
        port, stream = sb.forward(8004), sb.open_port(8004)
        with port, connect(port) as connection:
            client.close()
            self.assertEqual(forwarding(), before)
            with killed():
                self.assertEqual(stream.read(timeout=WAITS), b"")
            with killed():
                self.assertEqual(receive(connection), b"")
            with self.assertRaises(ConnectionRefusedError):
                connect(port)
        stream.close()

    def test_dropped(self) -> None:
        before = forwarding()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            port = self.sb.forward(8000)
            finish(port._async.__aenter__())
            address = (port.host, port.port)
            del port
            gc.collect()
            self.assertTrue(wait_for(lambda: forwarding() == before))
        self.assertEqual([str(each.message) for each in found], ["unclosed forward of port 8000"])
        with self.assertRaises(ConnectionRefusedError):
            socket.create_connection(address, WAITS)

    def test_fork(self) -> None:
        """A child of a fork holds neither the port nor its connections, and cannot use them."""
        with self.sb.forward(8001) as port:
            connection, stream = connect(port), self.sb.open_port(8001)
            connection.sendall(b"x")
            self.assertEqual(connection.recv(10), b"x")
            read, write = os.pipe()
            child = os.fork()
            if child == 0:  # lives until the pipe closes
                status = 1
                try:
                    os.close(write)
                    with contextlib.suppress(fumehood.FumehoodError):
                        stream.write(b"of the child")
                        status = 2
                    port.close()
                    os.read(read, 1)
                    with contextlib.suppress(fumehood.ForkError):
                        self.sb.open_port(8001)
                        status = 3
                    status -= 1
                finally:
                    os._exit(status)
            os.close(read)
            try:
                stream.write(b"of the parent")
                self.assertEqual(stream.read(), b"of the parent")
                self.assertEqual(get_echo(port, b"again"), b"again")
                stream.close()
                port.close()
                self.assertTrue(wait_for(lambda: not self.sockets(8001)))
                with self.assertRaises(ConnectionRefusedError):
                    connect(port)
            finally:
                os.close(write)
                connection.close()
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_services(self) -> None:
        self.assertEqual(get_stream(self.sb.service(self.sb.service_info.name).open_port(8001)), b"hi")
        self.assertEqual(get_stream(self.sb.as_user("nobody").open_port(8001)), b"hi")


def read_all(stream: PortStream) -> bytes:
    """Return what comes until the end of the direction."""
    got = b""
    while data := stream.read():
        got += data
    return got


def get_stream(opened: PortStream) -> bytes:
    """Return what an echo sends back."""
    with opened as stream:
        stream.write("hi")
        stream.close_write()
        return read_all(stream)


def get_echo(port: Forward, data: bytes) -> bytes:
    """Return what an echo behind a forwarded port sends back."""
    with connect(port) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)


class TestDocker(Ports):
    provider = "docker"

    def test_project(self) -> None:
        """Each service has its own ports, also on internal networks."""
        text = """
services:
  default: {image: IMAGE, command: sleep infinity}
  other: {image: IMAGE, command: sleep infinity, user: nobody}
""".replace("IMAGE", IMAGE)
        with Client(provider="docker", allow_egress=True) as client, client.start(compose=text) as sb:
            other = sb.service("other")
            serve(other)
            with other.forward(8000) as port:
                self.assertEqual(get(f"{port.url}/other"), b"page /other")
            with self.assertRaises(fumehood.UnavailableError):
                sb.open_port(8000)


class TestNative(Ports):
    provider = "native"


class TestKubernetes(Ports):
    provider = "kubernetes"


del Ports  # its subclasses run it


@needs_server
class TestLocal(unittest.TestCase):
    def test_unsupported(self) -> None:
        with Client(provider="local") as client, client.start() as sb:
            with self.assertRaises(fumehood.UnsupportedError):
                sb.open_port(8000)
            with self.assertRaises(fumehood.UnsupportedError), sb.forward(8000):
                pass


class OnLoop(unittest.TestCase):
    """The asynchronous client on each event loop."""

    provider: ClassVar[fumehood.Provider | None] = None

    @classmethod
    def setUpClass(cls) -> None:
        if not cls.provider or not BINARY:
            raise unittest.SkipTest("FUMEHOOD_BINARY names no program: run make test-client")
        needs(cls.provider)

    async def ready(self, sb: AsyncSandbox) -> None:
        process = await sb.start(["python3", "-c", SERVERS], events=True)
        async with process.events() as events:
            await events.__anext__()

    def test_all(self) -> None:
        before = forwarding()

        async def main() -> None:
            async with AsyncClient(provider=self.provider) as client, await client.start(IMAGE) as sb:
                await self.ready(sb)
                async with sb.forward(8000) as web:
                    page = await self.in_thread(lambda: get(f"{web.url}/a"))
                    self.assertEqual(page, b"page /a")
                    self.assertEqual(get(f"{web.url}/b"), b"page /b")  # also while this loop is blocked
                    large = await self.in_thread(lambda: get(web.url, LARGE))
                    self.assertEqual(large.decode(), hashlib.sha256(LARGE).hexdigest())
                    async with sb.forward(8001) as echo:
                        self.assertEqual(await self.in_thread(lambda: plain_echo(echo)), b"hi")
                    with self.assertRaises(ConnectionRefusedError):
                        connect(echo)
                await self.stream(sb)
                with self.assertRaises(fumehood.UnavailableError):
                    await sb.open_port(9000)
                left, closed = sb.forward(8004), await sb.open_port(8004)
                await left.__aenter__()
                connection = connect(left)
                await sb.close()
                with killed():
                    self.assertEqual(await closed.read(timeout=WAITS), b"")
                with killed():
                    self.assertEqual(receive(connection), b"")
                connection.close()
                await left.close()

        self.run_on_loop(main)
        self.assertEqual(forwarding(), before)

    async def stream(self, sb: AsyncSandbox) -> None:
        """Read and write at the same time, and give up either."""
        async with await sb.open_port(8001) as stream:

            async def send() -> None:
                await stream.write(LARGE)
                await stream.close_write()

            digest = hashlib.sha256()

            async def read() -> None:
                while data := await stream.read():
                    digest.update(data)

            await self.together(send, read)
            self.assertEqual(digest.digest(), hashlib.sha256(LARGE).digest())
        async with await sb.open_port(8001) as stream:
            self.assertTrue(await self.given_up(stream.read, 0.2))
            await stream.write("still")
            self.assertEqual(await stream.read(), b"still")
        async with await sb.open_port(8004) as stream:
            self.assertTrue(await self.given_up(lambda: stream.write(bytes(64 << 20)), 0.5))
            with self.assertRaises(fumehood.ConnectionLostError):  # a part of a frame may have been sent
                await stream.write("x")

    def run_on_loop(self, work: Work) -> None:
        raise NotImplementedError

    async def in_thread(self, work: Callable[[], bytes]) -> bytes:
        raise NotImplementedError

    async def together(self, *works: Work) -> None:
        raise NotImplementedError

    async def given_up(self, work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> bool:
        """Cancel work after some seconds. Report whether it was canceled."""
        raise NotImplementedError


def plain_echo(port: fumehood.AsyncForward) -> bytes:
    """Return what an echo behind a forwarded port sends back."""
    with connect(port) as connection:
        connection.sendall(b"hi")
        connection.shutdown(socket.SHUT_WR)
        return receive(connection)


class OnAsyncio(OnLoop):
    def run_on_loop(self, work: Work) -> None:
        asyncio.run(work(), debug=False)  # a slow machine is no defect

    async def in_thread(self, work: Callable[[], bytes]) -> bytes:
        return await asyncio.to_thread(work)

    async def together(self, *works: Work) -> None:
        await asyncio.gather(*(work() for work in works))

    async def given_up(self, work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> bool:
        try:
            await asyncio.wait_for(work(), seconds)
        except asyncio.TimeoutError:
            return True
        return False


class OnTrio(OnLoop):
    def run_on_loop(self, work: Work) -> None:
        trio.run(work)

    async def in_thread(self, work: Callable[[], bytes]) -> bytes:
        return await trio.to_thread.run_sync(work)

    async def together(self, *works: Work) -> None:
        async with trio.open_nursery() as nursery:
            for work in works:
                nursery.start_soon(work)

    async def given_up(self, work: Callable[[], Coroutine[Any, Any, Any]], seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            await work()
        return bool(scope.cancelled_caught)


class TestAsyncioDocker(OnAsyncio):
    provider = "docker"


class TestAsyncioNative(OnAsyncio):
    provider = "native"


@unittest.skipUnless(trio, "needs trio")
class TestTrioDocker(OnTrio):
    provider = "docker"


@unittest.skipUnless(trio, "needs trio")
class TestTrioNative(OnTrio):
    provider = "native"


del OnLoop, OnAsyncio, OnTrio


HARNESS = """
import sys
from fumehood import Client
c = Client(arguments=["--provider", sys.argv[1]])
sb = c.start(sys.argv[2])
p = sb.start(["python3", "-c", sys.argv[3]], events=True)
next(p.events())
port = sb.forward(8004).__enter__()
stream = sb.open_port(8004)
stream.close_write()
print(sb.name, port.port, flush=True)
sys.stdin.read()
"""


@needs_server
class TestKilled(unittest.TestCase):
    def test_client(self) -> None:
        """Of a client that is killed, with open streams that no program ends, nothing is left."""
        for provider in ("docker", "native"):
            with self.subTest(provider), mock.patch("tests.real.PROVIDER", provider):
                needs(provider)
                command = [sys.executable, "-c", HARNESS, provider, IMAGE, SERVERS]
                with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as harness:
                    assert harness.stdout
                    name, port = harness.stdout.readline().decode().split()
                    with socket.create_connection(("127.0.0.1", int(port)), WAITS) as connection:
                        self.assertEqual(len(containers(name)), 1)
                        harness.send_signal(signal.SIGKILL)
                        with killed():
                            self.assertEqual(receive(connection), b"")
                self.assertTrue(wait_for(lambda: not containers(name), 2 * WAITS), name)  # noqa: B023


class TestFraming(unittest.TestCase):
    """What a server sends, in pieces and wrong."""

    @contextlib.contextmanager
    def stream(self, *pieces: bytes, protocol: str = "fumehood-stream") -> Iterator[PortStream]:
        head = f"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n".encode()

        over = threading.Event()

        def handle(got: Got) -> bytes:
            if got.target == "/v1/version":
                return answer({"version": "v0", "api": 1})
            if got.target == "/v1/leases":
                return answer({"id": "i-1"})
            if got.target.endswith("/hold"):
                over.wait(WAITS)
                return answer()
            if "/ports/" in got.target:
                self.assertEqual((got.fields["connection"], got.fields["upgrade"]), ("Upgrade", "fumehood-stream"))
                return head + b"".join(pieces)
            return answer({"id": "box", "name": "box", "services": [{"name": "default"}]})

        with Fake(handle) as fake:
            client = Client(f"unix:{fake.path}")
            try:
                with client.get("box").open_port(80) as stream:
                    threading.Timer(0.2, fake.drop).start()
                    yield stream
            finally:
                over.set()
                client.close()

    def test_frames(self) -> None:
        with self.stream(b"\0\0\0\5hello\0\0\0\1!\0\0\0\0") as stream:
            self.assertEqual(read_all(stream), b"hello!")
        with self.stream(b"\0\0\0\2hi\0\0\0\0rest") as stream:  # after the end nothing is read
            self.assertEqual((read_all(stream), stream.read()), (b"hi", b""))

    def test_cut(self) -> None:
        whole = b"\0\0\0\2hi\0\0\0\0"
        for size in range(len(whole)):
            with self.subTest(size=size), self.stream(whole[:size]) as stream:
                got = b""
                with self.assertRaises(fumehood.ConnectionLostError):
                    while piece := stream.read():
                        got += piece
                self.assertTrue(b"hi".startswith(got))

    def test_protocol(self) -> None:
        with self.assertRaises(fumehood.ProtocolError), self.stream(protocol="websocket"):
            pass


@needs_server
class TestTLS(unittest.TestCase):
    """Ends of directions survive TLS, and threads may share its connections."""

    def test_stream(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        here = Path(folder.name)
        request = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", str(here / "key"), "-out", str(here / "cert")]
        try:
            subprocess.run(["openssl", *request, *names, *files], check=True, capture_output=True)
        except FileNotFoundError:
            self.skipTest("needs openssl")
        (here / "token").write_text("a-token-of-the-test")
        (here / "token").chmod(0o600)
        command = [BINARY, "serve", "--listen", "127.0.0.1:0", "--token-file", str(here / "token")]
        command += ["--tls-cert", str(here / "cert"), "--tls-key", str(here / "key")]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as server:
            self.addCleanup(server.terminate)
            assert server.stderr
            while not (found := re.search(rb"serving (\S+)", line := server.stderr.readline())):
                self.assertTrue(line, "the server has ended")
            tls = ssl.create_default_context(cafile=here / "cert")
            url = f"https://{found[1].decode()}"
            with Client(url, token="a-token-of-the-test", tls=tls) as client, client.start(IMAGE) as sb:
                self.streams(sb)
            server.terminate()

    def streams(self, sb: Sandbox) -> None:
        serve(sb)
        with sb.forward(8001) as echo, connect(echo) as connection:
            sending = threading.Thread(target=send_large, args=(connection,))
            sending.start()
            self.assertEqual(hashlib.sha256(receive(connection)).digest(), hashlib.sha256(LARGE).digest())
            sending.join()
        with sb.open_port(8001) as stream:
            sender = threading.Thread(target=write_large, args=(stream,))
            sender.start()
            self.assertEqual(hashlib.sha256(read_all(stream)).digest(), hashlib.sha256(LARGE).digest())
            sender.join()


if __name__ == "__main__":
    unittest.main()
