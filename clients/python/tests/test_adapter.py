"""What the adapters of frameworks share: how a command ended, the clients of event loops, and advice about refusals."""

from __future__ import annotations

import asyncio
import gc
import unittest
import weakref
from collections.abc import Callable

from fumehood import (
    BrokenError,
    ConfigError,
    DirectoryNotFoundError,
    FumehoodError,
    InfrastructureError,
    LimitError,
    NotExecutableError,
    NotStartedError,
    Output,
    ProgramNotFoundError,
    Result,
    StaleError,
    TooLargeError,
    UnavailableError,
    UserNotFoundError,
)
from fumehood._adapter import Clients, Loops, explain, mark_missing, settle, start_failure, translate
from fumehood.session import SessionResult
from tests.real import needs_server

NO_PROCESS = LimitError("no process is left", op="exec")


class TestStartFailure(unittest.TestCase):
    def test_codes(self) -> None:
        for error, code in [
            (ProgramNotFoundError("x"), 127),
            (DirectoryNotFoundError("x"), 127),
            (NotExecutableError("x"), 126),
            (UserNotFoundError("x"), 126),
            (NotStartedError("x"), 126),
            (NO_PROCESS, 126),
        ]:
            with self.subTest(type(error).__name__):
                result = start_failure(error)
                self.assertEqual((result.outcome, result.exit_code, result.success), ("exited", code, False))
                self.assertEqual((result.stdout.text, result.stderr.text), ("", f"{error}\n"))
                self.assertFalse(result.stderr.truncated)

    def test_raised(self) -> None:
        for error in (
            UnavailableError("x", op="exec"),
            BrokenError("x", op="exec"),
            StaleError("x", op="exec"),
            ConfigError("x", op="exec"),
            InfrastructureError("x", op="exec"),
            TooLargeError("x", op="exec"),
            LimitError("1000 commands are running", op="run command"),
        ):
            with self.subTest(type(error).__name__), self.assertRaises(type(error)) as raised:
                start_failure(error)
            self.assertIs(raised.exception, error)

    def test_op(self) -> None:
        """What counts is a limit of the call that started the command."""
        error = LimitError("x", op="stream")
        self.assertEqual(start_failure(error, "stream").exit_code, 126)
        with self.assertRaises(LimitError):
            start_failure(error)


class TestSettle(unittest.TestCase):
    def test_ends(self) -> None:
        for kind in (Result, SessionResult):
            for given, code in [
                (kind("exited", 3), 3),
                (kind("signaled", 137, 9), 137),
                (kind("timed-out", -1), -1),
                (kind("out-of-memory", 137), 137),
                (kind("cpu-time-exceeded", -1), -1),
                (kind("lost", -1, reason="x", caused_inside=True), 137),
            ]:
                with self.subTest(given.outcome, kind=kind):
                    settled = settle(given)
                    self.assertEqual((settled.outcome, settled.exit_code), (given.outcome, code))
                    self.assertIsInstance(settled, kind)
            with self.assertRaisesRegex(UnavailableError, "^the sandbox ended while the command ran: it was removed$"):
                settle(kind("lost", -1, reason="it was removed"))

    def test_translate(self) -> None:
        class GoneError(RuntimeError):
            pass

        cases: list[tuple[FumehoodError, type[Exception]]] = [
            (UnavailableError("x"), GoneError),
            (BrokenError("x"), GoneError),
            (StaleError("x"), GoneError),
            (InfrastructureError("x"), InfrastructureError),
            (ConfigError("x"), ConfigError),
        ]
        for error, kind in cases:
            with self.subTest(type(error).__name__):
                with self.assertRaisesRegex(kind, "x") as raised, translate(GoneError):
                    raise error
                if kind is GoneError:
                    self.assertEqual((str(raised.exception), raised.exception.__cause__), ("fumehood: x", error))


class TestText(unittest.TestCase):
    def test_mark_missing(self) -> None:
        self.assertEqual(mark_missing(Output(b"abc", 3)), b"abc")
        self.assertEqual(mark_missing(Output(b"c", 3)), b"[2 bytes of output are missing: more than is kept]\nc")

    def test_explain(self) -> None:
        settings = {"--allow-read": "allow_read", "--allow-unsafe": "allow_unsafe"}
        error = FumehoodError("refused", hint="allow it (--allow-unsafe)")
        self.assertEqual(explain(error, settings, "Options allow"), f"{error}\nOptions allow it: allow_unsafe")
        self.assertEqual(explain(FumehoodError("x"), settings, "Options allow"), "x")


def trio_run() -> Callable[..., None] | None:
    try:
        import trio
    except ImportError:
        return None
    return trio.run


class TestLoops(unittest.TestCase):
    def test_running(self) -> None:
        """Each loop has its own value, which ends with the loop, also if it refers to the loop."""
        runs: list[Callable[..., None]] = [lambda work: asyncio.run(work())]
        if trio := trio_run():
            runs.append(trio)
        for run in runs:
            loops = Loops(Clients)
            made: list[weakref.ref[Clients]] = []

            async def work(loops: Loops[Clients] = loops, made: list[weakref.ref[Clients]] = made) -> None:
                value = loops.running()
                self.assertIs(value, loops.running())
                gc.collect()
                self.assertEqual([ref() for ref in made], [None] * len(made))
                made.append(weakref.ref(value))

            with self.subTest(run):
                for _ in range(3):
                    run(work)

    def test_client(self) -> None:
        clients = Clients(["--some"])
        self.assertIs(clients.client(), clients.client())
        self.assertIsNot(clients.client("--more"), clients.client())
        asyncio.run(clients.close())
        self.assertEqual(clients.clients, {})

    @needs_server
    def test_ended(self) -> None:
        """A server of a loop that ended without a close ends when the next loop begins."""
        loops = Loops(lambda: Clients(["--provider", "local"]))

        async def forget() -> None:
            await loops.running().client().connect()

        async def begin() -> None:
            with self.assertWarnsRegex(ResourceWarning, "unclosed client"):
                loops.running()
                gc.collect()
            await loops.running().client().connect()
            await loops.running().close()

        asyncio.run(forget())
        asyncio.run(begin())


if __name__ == "__main__":
    unittest.main()
