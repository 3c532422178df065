"""Journals of sandboxes, on Docker and on the native provider."""

from __future__ import annotations

import contextlib
import unittest
from typing import Any

import fumehood
from fumehood import Client, JournalCommand, JournalEnd, JournalEntry, JournalFile, JournalPhase, JournalSandbox
from fumehood._journal import parse_entry
from tests.real import IMAGE, OnProvider


class Journals(OnProvider):
    def test_entries(self) -> None:
        with self.client.start(IMAGE, journal=True, labels={"task": "one"}) as sb:
            sb.run(["sh", "-c", "echo out; exit 3"], env={"KEY": "some-secret"}, timeout=50, cwd="/tmp")
            sb.write("/tmp/f", "four")
            with contextlib.suppress(FileNotFoundError):
                sb.read("/tmp/missing")
            with contextlib.suppress(fumehood.ProgramNotFoundError):
                sb.run(["no-such-program", b"\xff", "some-secret"], env={"KEY": "some-secret"})
            entries = list(sb.journal())
            self.assertEqual([each.number for each in entries], list(range(1, len(entries) + 1)))
            self.assertEqual(list(sb.journal(after=2, limit=2)), entries[2:4])
            self.assertEqual(list(sb.journal(after=1000)), [])
        self.assertEqual({each.sandbox for each in entries}, {sb.name})
        self.assertEqual({each.labels["task"] for each in entries}, {"one"})
        started = next(each for each in entries if isinstance(each, JournalSandbox))
        self.assertEqual((started.provider, started.services[0].name), (self.provider, "default"))
        command, failed = (each for each in entries if isinstance(each, JournalCommand))
        self.assertEqual((command.args, command.dir, command.timeout), (("sh", "-c", "echo out; exit 3"), "/tmp", 50))
        self.assertEqual(command.env, {"KEY": "[redacted]"})
        self.assertEqual(failed.args, ("no-such-program", "\udcff", "[redacted KEY]"))
        end, unstarted = (each for each in entries if isinstance(each, JournalEnd))
        self.assertEqual((end.id, end.outcome, end.exit_code, end.stdout_bytes), (command.id, "exited", 3, 4))
        self.assertGreater(end.duration, 0)
        self.assertLess(end.duration, 50)
        assert command.time and end.time
        self.assertLessEqual(command.time, end.time)
        self.assertIsInstance(unstarted.error, fumehood.ProgramNotFoundError)
        self.assertIsNone(unstarted.outcome)
        written, missing = (each for each in entries if isinstance(each, JournalFile))
        self.assertEqual((written.op, written.path, written.bytes), ("write", "/tmp/f", 4))
        self.assertIsInstance(missing.error, FileNotFoundError)
        more = list(sb.journal(after=entries[-1].number))  # it is closed
        self.assertEqual([each.phase for each in more if isinstance(each, JournalPhase)], ["close"])

    def test_none(self) -> None:
        with self.assertRaises(fumehood.ConfigError) as caught:
            list(self.sb.journal())
        self.assertIn("journal=True", caught.exception.hint)
        with self.client.start(IMAGE) as sb:
            pass
        with self.assertRaises(fumehood.SandboxNotFoundError):
            list(sb.journal())
        with Client(provider=self.provider) as other:
            with other.start(IMAGE, journal=True) as theirs:
                self.assertTrue(list(theirs.journal()))
            with self.assertRaises(fumehood.SandboxNotFoundError):
                list(self.client.get(theirs.name).journal())


class TestDocker(Journals):
    provider = "docker"


class TestNative(Journals):
    provider = "native"


class TestKubernetes(Journals):
    provider = "kubernetes"


class TestEntry(unittest.TestCase):
    def test_unknown(self) -> None:
        found = parse_entry(7, {"kind": "new", "sandbox": "box", "more": 1})
        self.assertEqual(found, JournalEntry(7, None, "new", "box"))
        self.assertIsNone(parse_entry(1, {"kind": "end"}).time)
        cases: list[dict[str, Any]] = [{"kind": "end", "id": "1"}, {"kind": "command", "args": 5}, {"labels": []}]
        for wrong in cases:
            with self.subTest(wrong), self.assertRaises(fumehood.ProtocolError):
                parse_entry(1, wrong)


del Journals  # its subclasses run it

if __name__ == "__main__":
    unittest.main()
