"""Calls over connections that break, for each kind of I/O."""

from __future__ import annotations

import asyncio
import threading
import time
import unittest
from collections.abc import Callable, Coroutine
from typing import Any

from fumehood import _errors
from fumehood._aio import running_io
from fumehood._calls import Request, segment
from fumehood._core import Core
from fumehood._io import IO, Address, finish, parse_address
from fumehood._values import Deadline
from tests.fake import Cut, Fake, Got, answer, failure

Use = Callable[[Core], Coroutine[Any, Any, None]]


async def using(core: Core, use: Use) -> None:
    try:
        await use(core)
    finally:
        await core.close()


def blocking(address: Address, use: Use) -> None:
    finish(using(Core(IO(), address), use))


def on_asyncio(address: Address, use: Use) -> None:
    async def main() -> None:
        await using(Core(running_io(), address), use)

    asyncio.run(main())


def on_trio(address: Address, use: Use) -> None:
    import trio

    async def main() -> None:
        await using(Core(running_io(), address), use)

    trio.run(main)


KINDS = {"blocking": blocking, "asyncio": on_asyncio}
try:
    import anyio  # noqa: F401
    import trio  # noqa: F401

    KINDS["trio"] = on_trio
except ImportError:
    pass


class TestCalls(unittest.TestCase):
    def each(
        self, handler: Callable[[Got], bytes | Cut], use: Use, check: Callable[[Fake], None], **options: Any
    ) -> None:
        for name, kind in KINDS.items():
            with self.subTest(name), Fake(handler, **options) as fake:
                kind(Address(path=fake.path), use)
                check(fake)

    def test_one_connection(self) -> None:
        async def use(core: Core) -> None:
            for n in range(3):
                got = await core.json(Request("POST", "/v1/x", {"n": n, "no": None}, body=b"{}"))
                self.assertEqual(got["n"], 1)

        def check(fake: Fake) -> None:
            self.assertEqual([(g.target, g.connection) for g in fake.got], [(f"/v1/x?n={n}", 1) for n in range(3)])

        self.each(lambda got: answer({"n": 1}), use, check)

    def test_repeated_with_a_key(self) -> None:
        ran: dict[str, int] = {}

        def handler(got: Got) -> bytes | Cut:
            key = got.fields["idempotency-key"]
            n = ran[key] = ran.get(key, 0) + 1
            cuts = [Cut(), Cut(b"HTTP/1.1 200 OK\r\nContent-Len"), Cut(answer({"x": "long"})[:-4])]
            return cuts[n - 1] if n <= len(cuts) else answer({"x": 1})

        async def use(core: Core) -> None:
            key = core.key("lease")
            got = await core.json(Request("POST", "/v1/run", body=b"{}", key=key, lease="lease"))
            self.assertEqual(got["x"], 1)
            self.assertEqual(ran, {key: 4})
            ran.clear()

        self.each(handler, use, lambda fake: self.assertEqual(fake.opened, 4))

    def test_never_repeated_without_a_key(self) -> None:
        async def use(core: Core) -> None:
            with self.assertRaises(_errors.ConnectionLostError) as caught:
                await core.call(Request("POST", "/v1/run", body=b"{}"))
            self.assertIsInstance(caught.exception, ConnectionError)

        self.each(lambda got: Cut(), use, lambda fake: self.assertEqual(len(fake.got), 1))

    def test_received_keys(self) -> None:
        async def use(core: Core) -> None:
            await core.call(Request("POST", "/v1/run", body=b"{}", lease="l", key="a"))
            await core.call(Request("GET", "/v1/version"))  # without a lease
            await core.call(Request("POST", "/v1/run", body=b"{}", lease="l", key="b"))
            await core.call(Request("GET", "/v1/x", lease="l"))
            await core.call(Request("GET", "/v1/x", lease="l"))

        def check(fake: Fake) -> None:
            self.assertEqual([g.fields.get("idempotency-received") for g in fake.got], [None, None, "a", "b", None])

        self.each(lambda got: answer(), use, check)

    def test_received_keys_of_failures(self) -> None:
        def handler(got: Got) -> bytes:
            return answer({"error": {"class": "limit", "message": "full"}}, 429) if got.method == "POST" else answer()

        async def use(core: Core) -> None:
            with self.assertRaises(_errors.LimitError):
                await core.keyed(Request("POST", "/v1/run", body=b"{}", lease="l"))
            await core.call(Request("GET", "/v1/x", lease="l"))

        def check(fake: Fake) -> None:
            self.assertEqual(fake.got[1].fields.get("idempotency-received"), fake.got[0].fields["idempotency-key"])

        self.each(handler, use, check)

    def test_idle_connection_is_closed(self) -> None:
        for name, kind in KINDS.items():
            with self.subTest(name), Fake(lambda got: answer()) as fake:

                async def use(core: Core, fake: Fake = fake) -> None:
                    await core.call(Request("GET", "/v1/x"))
                    fake.drop()
                    await core.io.sleep(0.01)
                    await core.call(Request("POST", "/v1/x", body=b"{}"))

                kind(Address(path=fake.path), use)
                self.assertEqual(fake.opened, 2)

    def test_refused_body(self) -> None:
        refusal = failure("too-large", 413)

        async def use(core: Core) -> None:
            for request in (
                Request("PUT", "/v1/f", body=bytes(8 << 20)),
                Request("PUT", "/v1/f", pieces=iter([bytes(1 << 20)] * 8)),
            ):
                with self.assertRaises(_errors.TooLargeError) as caught:
                    await core.call(request)
                self.assertEqual(caught.exception.status, 413)

        self.each(lambda got: answer(), use, lambda fake: self.assertEqual(fake.got, []), early=lambda *_: Cut(refusal))

    def test_body_in_pieces(self) -> None:
        async def use(core: Core) -> None:
            await core.call(Request("PUT", "/v1/f", pieces=iter([b"ab", b"c"])))
            await core.call(Request("PUT", "/v1/f", pieces=iter([b"ab", b"c"]), length=3))
            for length in (2, 4):
                with self.assertRaises(_errors.ConfigError):
                    await core.call(Request("PUT", "/v1/f", pieces=iter([b"ab", b"c"]), length=length))

        self.each(
            lambda got: answer(), use, lambda fake: self.assertEqual([g.body for g in fake.got[:2]], [b"abc", b"abc"])
        )

    def test_errors(self) -> None:
        def handler(got: Got) -> bytes:
            if got.target == "/odd":
                return b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>"
            return failure(got.target[1:], path="/p", hint="do this")

        async def use(core: Core) -> None:
            for code, kind, standard in [
                ("not-found", _errors.NotFoundError, FileNotFoundError),
                ("permission-denied", _errors.PermissionDeniedError, PermissionError),
                ("program-not-found", _errors.ProgramNotFoundError, FileNotFoundError),
                ("already-exists", _errors.ExistsError, FileExistsError),
                ("config", _errors.ConfigError, ValueError),
                ("broken", _errors.BrokenError, _errors.UnavailableError),
                ("to-be-invented", _errors.InfrastructureError, _errors.FumehoodError),
            ]:
                expected: type[Exception] = standard
                with self.assertRaises(expected) as caught:
                    await core.call(Request("GET", "/" + code))
                error = caught.exception
                self.assertIs(type(error), kind)
                assert isinstance(error, _errors.FumehoodError)
                self.assertEqual((error.code, error.path, str(error)), (code, "/p", f"it is {code} (do this)"))
            with self.assertRaises(_errors.InfrastructureError):
                await core.call(Request("GET", "/odd"))

        self.each(handler, use, lambda fake: self.assertEqual(fake.opened, 1))

    def test_timeout(self) -> None:
        waits = threading.Event()

        def handler(got: Got) -> bytes:
            waits.wait(10)
            return answer()

        async def use(core: Core) -> None:
            began = time.monotonic()
            with self.assertRaises(TimeoutError) as caught:
                await core.call(Request("GET", "/v1/x"), Deadline(0.1))
            self.assertIsInstance(caught.exception, _errors.RequestTimeoutError)
            self.assertLess(time.monotonic() - began, 5)
            with self.assertRaises(_errors.RequestTimeoutError):
                await core.call(Request("GET", "/v1/x"), Deadline(0))

        self.each(handler, use, lambda fake: self.assertEqual(len(fake.got), 1))
        waits.set()

    def test_no_server(self) -> None:
        async def use(core: Core) -> None:
            with self.assertRaises(_errors.ConnectionLostError):
                await core.call(Request("POST", "/v1/x"))

        for name, kind in KINDS.items():
            with self.subTest(name):
                kind(Address(path="/nonexistent/socket"), use)

    def test_lines(self) -> None:
        body = b'{"a":1}\n{"b":2}\n{"c"'

        def handler(got: Got) -> Cut:
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            return Cut(head + b"".join(b"1\r\n%b\r\n" % body[i : i + 1] for i in range(len(body))) + b"0\r\n\r\n")

        async def use(core: Core) -> None:
            stream = await core.open(Request("GET", "/v1/events"))
            self.assertEqual([await stream.line(), await stream.line()], [b'{"a":1}\n', b'{"b":2}\n'])
            with self.assertRaises(_errors.ConnectionLostError):
                await stream.line()

        self.each(handler, use, lambda fake: None)


class TestThreads(unittest.TestCase):
    def test_many(self) -> None:
        with Fake(lambda got: answer({"n": got.target})) as fake:
            core = Core(IO(), Address(path=fake.path))
            wrong: list[str] = []

            def work(n: int) -> None:
                for i in range(50):
                    target = f"/{n}/{i}"
                    if finish(core.json(Request("GET", target)))["n"] != target:
                        wrong.append(target)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            finish(core.close())
            self.assertEqual(wrong, [])
            self.assertEqual(len(fake.got), 400)
            self.assertLessEqual(fake.opened, 8)


class TestAddresses(unittest.TestCase):
    def test_parse(self) -> None:
        self.assertEqual(parse_address("unix:/a/b"), Address(path="/a/b"))
        self.assertEqual(parse_address("unix:///a/b"), Address(path="/a/b"))
        self.assertEqual(parse_address("http://127.0.0.1:80/"), Address(host="127.0.0.1", port=80))
        self.assertEqual(parse_address("http://[::1]:81").authority, "[::1]:81")
        self.assertIsNotNone(parse_address("https://localhost").tls)

    def test_refused(self) -> None:
        for url in (
            "",
            "unix:a",
            "unix://host/a",
            "ftp://x",
            "http://",
            "http://a:b@c",
            "http://a/v1",
            "http://a:99999",
        ):
            with self.subTest(url), self.assertRaises(ValueError) as caught:
                parse_address(url)
            self.assertIsInstance(caught.exception, _errors.ConfigError)

    def test_segment(self) -> None:
        self.assertEqual(segment("a/../b?c#d%"), "a%2F..%2Fb%3Fc%23d%25")
        for name in ("", ".", ".."):
            with self.assertRaises(_errors.ConfigError):
                segment(name)


if __name__ == "__main__":
    unittest.main()
