"""What the adapters of frameworks share: how a command ended, the clients of event loops, and advice about refusals."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import unittest
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fumehood import (
    AsyncClient,
    BrokenError,
    ClosedError,
    ConfigError,
    DirectoryNotFoundError,
    FumehoodError,
    InfrastructureError,
    IsDirectoryError,
    LimitError,
    NotExecutableError,
    NotStartedError,
    Output,
    ProgramNotFoundError,
    Result,
    SandboxNotFoundError,
    StaleError,
    TooLargeError,
    UnavailableError,
    UserNotFoundError,
)
from fumehood._adapter import (
    Clients,
    Loops,
    Shared,
    download_file,
    ended,
    ended_blocking,
    explain,
    mark_missing,
    settle,
    start_failure,
    translate,
    upload_file,
)
from fumehood._errors import from_json
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
            (BrokenError("x", op="exec"), 126),
        ]:
            with self.subTest(type(error).__name__):
                result = start_failure(error)
                self.assertEqual((result.outcome, result.exit_code, result.success), ("exited", code, False))
                self.assertEqual((result.stdout.text, result.stderr.text), ("", f"{error}\n"))
                self.assertFalse(result.stderr.truncated)

    def test_raised(self) -> None:
        for error in (
            UnavailableError("x", op="exec"),
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
        self.assertEqual(start_failure(error, op="stream").exit_code, 126)
        with self.assertRaises(LimitError):
            start_failure(error)

    def test_own(self) -> None:
        """Errors that a framework has its own for are raised."""
        self.assertEqual(start_failure(NotExecutableError("x"), ProgramNotFoundError).exit_code, 126)
        with self.assertRaises(NotExecutableError):
            start_failure(NotExecutableError("x"), ProgramNotFoundError, NotExecutableError)


class TestEnded(unittest.TestCase):
    def outcome(self, given: object, *own: type[FumehoodError]) -> object:
        """Return what a call that returns or raises something ends as, which is the same if it blocks."""

        def call() -> Any:
            if isinstance(given, FumehoodError):
                raise given
            return given

        async def later() -> Any:
            return call()

        try:
            found = asyncio.run(ended(later(), *own))
        except FumehoodError as e:
            with self.assertRaises(type(e)):
                ended_blocking(call, *own)
            raise
        if isinstance(given, (Result, FumehoodError)):
            self.assertEqual(ended_blocking(call, *own), found)
        return found

    def test_ends(self) -> None:
        lost = Result("lost", -1, reason="x", caused_inside=True)
        for given, code in [(Result("exited", 3), 3), (lost, 137), (ProgramNotFoundError("x"), 127)]:
            with self.subTest(given):
                found = self.outcome(given)
                assert isinstance(found, Result)
                self.assertEqual(found.exit_code, code)
        for error in (Result("lost", -1, reason="x"), UnavailableError("x"), InfrastructureError("x")):
            with self.subTest(error), self.assertRaises((UnavailableError, InfrastructureError)):
                self.outcome(error)
        with self.assertRaises(DirectoryNotFoundError):
            self.outcome(DirectoryNotFoundError("x"), DirectoryNotFoundError)

    def test_process(self) -> None:
        """A command that runs is left alone."""
        self.assertEqual(self.outcome("a process"), "a process")


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
            (SandboxNotFoundError("x"), GoneError),
            (ClosedError("x"), GoneError),
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


class TestShared(unittest.TestCase):
    def test_users(self) -> None:
        """All users have one client, which ends with the last one; the next one has another."""
        shared = Shared(["--some"])
        client = shared.acquire()
        self.assertIs(shared.acquire(), client)
        shared.release()
        self.assertIs(shared.acquire(), client)
        shared.release()
        shared.release()
        with self.assertRaisesRegex(ClosedError, "client: closed"):
            client.connect()
        self.assertIsNot(shared.acquire(), client)
        shared.release()


class TestText(unittest.TestCase):
    def test_mark_missing(self) -> None:
        self.assertEqual(mark_missing(Output(b"abc", 3)), b"abc")
        self.assertEqual(mark_missing(Output(b"c", 3)), b"[2 bytes of output are missing: more than is kept]\nc")

    def test_explain(self) -> None:
        settings = {"--allow-read": "allow_read", "--allow-unsafe": "allow_unsafe"}
        error = FumehoodError("refused", hint="allow it (--allow-unsafe)")
        self.assertEqual(explain(error, settings, "Options allow"), f"{error}\nOptions allow it: allow_unsafe")
        self.assertEqual(explain(FumehoodError("x"), settings, "Options allow"), "x")
        refused = {"class": "permission-denied", "message": "refused", "hint": "start it so", "flag": "allow-unsafe"}
        for own in (True, False):
            error = from_json(refused, 403, own)
            self.assertEqual(explain(error, settings, "Options allow"), "refused\nOptions allow it: allow_unsafe")


def trio_run() -> Callable[..., None] | None:
    try:
        import trio
    except ImportError:
        return None
    return trio.run


@needs_server
class TestFiles(unittest.TestCase):
    """Copies of single files, where a path has a folder."""

    def test_files(self) -> None:
        async def work(here: Path) -> None:
            there = here / "there"  # the local provider's files are those of this machine
            (here / "source").write_bytes(b"x" * (3 << 20))
            async with AsyncClient(provider="local") as client, await client.start() as sb:
                await upload_file(sb, here / "source", f"{there}/new/file", mode=0o600)
                self.assertEqual((await sb.stat(f"{there}/new/file")).mode & 0o777, 0o600)
                await download_file(sb, f"{there}/new/file", here / "target")
                self.assertEqual((here / "target").read_bytes(), b"x" * (3 << 20))
                with self.assertRaises(IsADirectoryError):
                    await upload_file(sb, here, f"{there}/none")
                with self.assertRaises(IsDirectoryError):
                    await download_file(sb, f"{there}/new", here / "target")
                with self.assertRaises(TooLargeError):
                    await download_file(sb, f"{there}/new/file", here / "target", max_bytes=1 << 20)

        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            asyncio.run(work(here))
            self.assertEqual((here / "target").stat().st_size, 3 << 20)  # as it was
            self.assertEqual(sorted(path.name for path in here.iterdir()), ["source", "target", "there"])


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
