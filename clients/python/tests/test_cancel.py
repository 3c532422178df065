"""Calls that are given up: what they started is canceled in the server."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import unittest
from collections.abc import Callable, Coroutine
from typing import Any
from unittest import mock

from fumehood import AsyncClient, _errors
from fumehood._aio import running_io
from fumehood._calls import Request
from fumehood._core import Core
from fumehood._io import IO, Address, deadline_of, finish
from tests.fake import Fake, Got, answer, failure
from tests.real import wait_for

try:
    import anyio
    import trio
except ImportError:
    anyio = trio = None  # type: ignore[assignment]

WAITS = 10.0  # seconds that the server waits for what must come


class TestCancel(unittest.TestCase):
    def setUp(self) -> None:
        self.running = threading.Event()
        self.canceled = threading.Event()
        self.fake = self.enterContext(Fake(self.handle)) if hasattr(self, "enterContext") else self._enter()

    def _enter(self) -> Fake:  # Python 3.10
        fake = Fake(self.handle)
        self.addCleanup(fake.__exit__)
        return fake

    def handle(self, got: Got) -> bytes:
        if got.method == "DELETE":
            self.canceled.set()
            return answer()
        if got.target == "/v1/leases":
            return answer({"id": "i-1"})
        if got.target.endswith("/hold"):
            self.canceled.wait(WAITS)
            return answer()
        self.running.set()
        self.canceled.wait(WAITS)
        return failure("canceled", 409)

    def check(self) -> None:
        self.assertTrue(self.canceled.wait(WAITS))
        ran = [g for g in self.fake.got if g.target == "/v1/run"]
        self.assertEqual(len(ran), 1)
        key = ran[0].fields["idempotency-key"]
        self.assertEqual(ran[0].fields["fumehood-lease"], "i-1")
        canceled = [g.target for g in self.fake.got if g.method == "DELETE" and key in g.target]
        self.assertEqual(len(canceled), 1)

    def address(self) -> Address:
        return Address(path=self.fake.path)

    def test_interrupt(self) -> None:
        core = Core(IO(), self.address())

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        def wait_and_interrupt() -> None:
            self.running.wait(WAITS)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, interrupt)
        thread = threading.Thread(target=wait_and_interrupt)
        try:
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                finish(core.keyed(Request("POST", "/v1/run", body=b"{}")))
        finally:
            thread.join()
            signal.signal(signal.SIGUSR1, before)
        self.check()
        finish(core.close())

    def test_timeout(self) -> None:
        core = Core(IO(), self.address())
        with self.assertRaises(_errors.RequestTimeoutError):
            finish(core.keyed(Request("POST", "/v1/run", body=b"{}"), deadline_of(0.2)))
        self.check()
        finish(core.close())

    def test_asyncio(self) -> None:
        async def main() -> None:
            core = Core(running_io(), self.address())
            task = asyncio.create_task(core.keyed(Request("POST", "/v1/run", body=b"{}")))
            await asyncio.to_thread(self.running.wait, WAITS)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertTrue(self.canceled.is_set())  # when the call has ended
            await core.close()

        asyncio.run(main())
        self.check()

    @unittest.skipUnless(anyio, "needs anyio")
    def test_anyio_on_asyncio(self) -> None:
        asyncio.run(self.in_scope())
        self.check()

    @unittest.skipUnless(trio, "needs trio")
    def test_trio(self) -> None:
        trio.run(self.in_scope)
        self.check()

    async def in_scope(self) -> None:
        core = Core(running_io(), self.address())
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:

                async def cancel() -> None:
                    await anyio.to_thread.run_sync(self.running.wait, WAITS)
                    scope.cancel()

                group.start_soon(cancel)
                await core.keyed(Request("POST", "/v1/run", body=b"{}"))
        self.assertTrue(scope.cancelled_caught)
        await anyio.to_thread.run_sync(self.canceled.wait, WAITS)
        with contextlib.suppress(_errors.FumehoodError):
            await core.close()


class TestStarts(unittest.TestCase):
    """What a thread makes when nobody waits for it any more is given up too."""

    def give_up(self, name: str, made: object, start: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Cancel start while a function of the package, which makes something, runs in a thread."""
        running, go = threading.Event(), threading.Event()

        def make(*_: object) -> object:
            running.set()
            go.wait(WAITS)
            return made

        async def main() -> None:
            task = asyncio.create_task(start())
            await asyncio.to_thread(running.wait, WAITS)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            go.set()

        with mock.patch(name, make):
            asyncio.run(main())

    def test_connection(self) -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            self.give_up("fumehood._io._connect", ours, lambda: running_io().connect(Address(path="/socket"), None))
            self.assertEqual(ours.fileno(), -1)

    def test_server(self) -> None:
        server = mock.Mock()
        self.give_up("fumehood._client.Server", server, lambda: AsyncClient().start())
        server.abandon.assert_called_once_with()


class TestLease(unittest.TestCase):
    def test_hold_ended(self) -> None:
        """A client that is closed between two holds of its lease closes the connection of the first."""

        async def main(address: Address) -> None:
            core = Core(running_io(), address)
            await core.lease()
            assert core._hold
            idle = core._hold._calls._idle
            self.assertTrue(await asyncio.to_thread(wait_for, lambda: bool(idle)))
            await core.close()
            self.assertFalse(idle)

        with Fake(lambda got: answer({"id": "i-1"})) as fake:
            asyncio.run(main(Address(path=fake.path)))

    def test_held_again(self) -> None:
        held: list[int] = []
        again = threading.Event()

        def handle(got: Got) -> bytes:
            if got.target.endswith("/hold"):
                held.append(got.connection)
                if len(held) == 2:
                    again.set()
                    ended.wait(WAITS)
                return answer()  # the connection's body ends at once: it is held no longer
            if got.method == "DELETE":
                ended.set()
            return answer({"id": "i-1"})

        ended = threading.Event()
        with Fake(handle) as fake:
            core = Core(IO(), Address(path=fake.path))
            self.assertEqual(finish(core.lease()), "i-1")
            self.assertEqual(finish(core.lease()), "i-1")
            self.assertTrue(again.wait(WAITS))
            finish(core.close())
            self.assertEqual([g.target for g in fake.got if g.method == "POST"], ["/v1/leases"])
            with self.assertRaises(_errors.ClosedError):
                finish(core.call(Request("GET", "/v1/x")))

    def test_gone(self) -> None:
        leases: list[str] = []
        gone = threading.Event()

        def handle(got: Got) -> bytes:
            if got.target.endswith("/hold"):
                if "i-1" in got.target:
                    gone.set()
                    return failure("stale", 410)
                ended.wait(WAITS)
            if got.method == "DELETE":
                ended.set()
            if got.target == "/v1/leases":
                leases.append(f"i-{len(leases) + 1}")
                return answer({"id": leases[-1]})
            return answer()

        ended = threading.Event()
        with Fake(handle) as fake, self.assertLogs("fumehood", "WARNING"):
            core = Core(IO(), Address(path=fake.path))
            self.assertEqual(finish(core.lease()), "i-1")
            self.assertTrue(gone.wait(WAITS))
            assert core._hold
            finish(core._hold.stop())
            self.assertEqual(finish(core.lease()), "i-2")
            finish(core.close())


if __name__ == "__main__":
    unittest.main()
