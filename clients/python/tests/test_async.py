"""The asynchronous client with the real program, on asyncio and on trio."""

from __future__ import annotations

import asyncio
import inspect
import io
import unittest
from collections.abc import Callable, Coroutine
from typing import Any

import fumehood
from fumehood import AsyncClient, AsyncSandbox, Chunk, Client, End, Sandbox, Service
from fumehood._sync import blocking_text
from tests.real import IMAGE, WAITS, needs_server

try:
    import anyio
    import trio
except ImportError:
    anyio = trio = None  # type: ignore[assignment]

Work = Callable[[], Coroutine[Any, Any, None]]


class Cases(unittest.TestCase):
    """The same tests for each event loop."""

    def run_on_loop(self, work: Work) -> None:
        raise NotImplementedError

    async def together(self, *works: Work) -> None:
        raise NotImplementedError

    def test_everything(self) -> None:
        async def main() -> None:
            async with AsyncClient() as client, await client.start(IMAGE) as sb:
                r = await sb.run(["python3", "-c", "print(6*7)"])
                self.assertEqual((r.outcome, r.exit_code, r.stdout.text), ("exited", 0, "42\n"))
                await self.files(sb)
                await self.process(sb)
                await self.journal(client)
                self.assertEqual([s.name for s in await client.sandboxes()], [sb.info.name])
                got: list[str] = []

                def work(n: int) -> Work:
                    async def one() -> None:
                        got.append((await sb.run(["echo", str(n)])).stdout.text)

                    return one

                await self.together(*(work(n) for n in range(16)))
                self.assertEqual(sorted(got), sorted(f"{n}\n" for n in range(16)))
            with self.assertRaises(fumehood.ClosedError):
                await sb.run(["true"])

        self.run_on_loop(main)

    async def files(self, sb: AsyncSandbox) -> None:
        data = bytes(range(256)) * (8 << 10)
        await sb.upload(io.BytesIO(data), "/tmp/d/f")
        target = io.BytesIO()
        await sb.download("/tmp/d/f", target)
        self.assertEqual(target.getvalue(), data)
        self.assertEqual(await sb.read("/tmp/d/f", offset=1, length=2), b"\1\2")
        self.assertEqual([f.path async for f in sb.walk("/tmp/d")], [".", "f"])
        with self.assertRaises(FileNotFoundError):
            await sb.read_text("/tmp/missing")

    async def journal(self, client: AsyncClient) -> None:
        async with await client.start(IMAGE, journal=True) as sb:
            left = await sb.start(["sleep", "1000"])
            await sb.kill_all()
            self.assertEqual((await left.wait(timeout=WAITS)).reason, "killed by the caller")
        kinds = [entry.kind async for entry in sb.journal()]
        self.assertEqual(sorted(kinds[-3:]), ["end", "phase", "phase"])  # "end" is written when the host has read it
        self.assertEqual(kinds[-4], "command")

    async def process(self, sb: AsyncSandbox) -> None:
        process = await sb.start(["cat"], stdin_open=True)
        await process.write("to cat")
        await process.close_stdin()
        self.assertEqual((await process.wait(timeout=WAITS)).stdout.text, "to cat")
        async with sb.stream(["sh", "-c", "echo a; exit 3"]) as stream:
            events = [event async for event in stream]
        first, last = events
        assert isinstance(first, Chunk) and isinstance(last, End)
        self.assertEqual((first.text, last.result.exit_code), ("a\n", 3))
        async with sb.stream(["sh", "-c", "echo $$; exec sleep 100"]) as stream:
            event = await stream.__anext__()
        assert isinstance(event, Chunk)
        self.assertEqual((await sb.run(["kill", "-0", event.text.strip()])).success, False)


@needs_server
class TestAsyncio(Cases):
    def run_on_loop(self, work: Work) -> None:
        asyncio.run(work())

    async def together(self, *works: Work) -> None:
        await asyncio.gather(*(work() for work in works))

    def test_other_loop(self) -> None:
        loop, client = asyncio.new_event_loop(), AsyncClient()
        try:
            loop.run_until_complete(client.connect())
            with self.assertRaises(fumehood.ConfigError):
                asyncio.run(client.sandboxes())
        finally:
            loop.run_until_complete(client.close())
            loop.close()

    def test_wait_for(self) -> None:
        async def main() -> None:
            async with AsyncClient() as client, await client.start(IMAGE) as sb:
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(sb.run(["sh", "-c", "echo $$ >/tmp/pid; exec sleep 100"]), 0.5)
                self.assertFalse((await sb.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"])).success)

        asyncio.run(main())


@needs_server
@unittest.skipUnless(trio, "needs trio and anyio")
class TestTrio(Cases):
    def run_on_loop(self, work: Work) -> None:
        trio.run(work)

    async def together(self, *works: Work) -> None:
        async with anyio.create_task_group() as group:
            for work in works:
                group.start_soon(work)

    def test_canceled(self) -> None:
        async def main() -> None:
            async with AsyncClient() as client, await client.start(IMAGE) as sb:
                with trio.move_on_after(0.5) as scope:
                    await sb.run(["sh", "-c", "echo $$ >/tmp/pid; exec sleep 100"])
                self.assertTrue(scope.cancelled_caught)
                self.assertFalse((await sb.run(["sh", "-c", "kill -0 $(cat /tmp/pid)"])).success)

        trio.run(main)


del Cases  # its subclasses run it


# What returns another type in the blocking classes.
_DIFFERENT = ("events", "stream", "walk", "journal", "as_user", "service", "start", "get")


class TestNames(unittest.TestCase):
    def test_same_names(self) -> None:
        pairs: list[tuple[type[Any], type[Any]]] = [
            (Client, AsyncClient),
            (Sandbox, AsyncSandbox),
            (Service, fumehood.AsyncService),
            (fumehood.Process, fumehood.AsyncProcess),
        ]
        for blocking, asynchronous in pairs:
            with self.subTest(blocking.__name__):
                attributes = {"info", "service_info"}  # of instances
                names = {name for name in dir(asynchronous) if not name.startswith("_")} - attributes
                self.assertEqual({name for name in dir(blocking) if not name.startswith("_")} - attributes, names)
                for name in names:
                    one, other = getattr(blocking, name), getattr(asynchronous, name)
                    self.assertTrue(inspect.getdoc(one), name)
                    if callable(one) and name not in _DIFFERENT:
                        self.assertEqual(
                            str(inspect.signature(one)), blocking_text(str(inspect.signature(other))), name
                        )
        one, other = inspect.signature(Client.__init__), inspect.signature(AsyncClient.__init__)
        self.assertEqual(one, other)


if __name__ == "__main__":
    unittest.main()
