"""Results and errors as values."""

from __future__ import annotations

import errno
import pickle
import unittest
from datetime import datetime, timezone

from fumehood import _errors
from fumehood._types import Limits, Output, Port, Result, parse_time


class TestOutput(unittest.TestCase):
    def test_text(self) -> None:
        euro = "€".encode()
        for data, total, want in [
            (b"hi", 2, "hi"),
            (b"\xff\xfe", 2, "\ufffd\ufffd"),
            (euro[1:] + b"x", 100, "x"),  # the cap cut the character
            (euro[1:] + b"x", 3, "\ufffd\ufffdx"),  # the program wrote it so
            (b"\x80\x80\x80\x80x", 100, "\ufffdx"),  # at most three bytes belong to a cut character
            (b"", 5, ""),
        ]:
            with self.subTest(data=data, total=total):
                self.assertEqual(Output(data, total).text, want)

    def test_parse(self) -> None:
        self.assertEqual(Output.parse({"text": "é", "bytes": 2}), Output("é".encode(), 2))
        self.assertEqual(Output.parse({"text": "\ufffd", "base64": "/w==", "bytes": 1}).data, b"\xff")
        self.assertTrue(Output.parse({"text": "x", "bytes": 9}).truncated)
        with self.assertRaises(_errors.ProtocolError):
            Output.parse({"base64": "!"})
        with self.assertRaises(_errors.ProtocolError):
            Output.parse({"bytes": "1"})


class TestResult(unittest.TestCase):
    def test_parse(self) -> None:
        got = Result.parse(
            {
                "outcome": "signaled",
                "exit_code": 137,
                "signal": 9,
                "stdout": {"text": "a", "bytes": 1},
                "started": "2026-11-27T14:31:00.123456789Z",
                "duration_ms": 1500.5,
                "usage": {"user_ms": 2, "max_rss": 7},
                "a field of a later server": [],
            }
        )
        self.assertEqual(
            (got.outcome, got.exit_code, got.signal, got.stdout.text, got.duration), ("signaled", 137, 9, "a", 1.5005)
        )
        self.assertEqual(got.started, datetime(2026, 11, 27, 14, 31, 0, 123456, timezone.utc))
        self.assertEqual((got.usage.user, got.usage.max_rss, got.stderr.data), (0.002, 7, b""))
        self.assertFalse(got.success)

    def test_times(self) -> None:
        self.assertIsNone(parse_time("0001-01-01T00:00:00Z"))
        self.assertIsNone(parse_time("yesterday"))
        self.assertIsNone(parse_time("2026-13-01T00:00:00Z"))
        later = parse_time("2026-01-01T02:00:00.5+02:00")
        assert later
        self.assertEqual(later.astimezone(timezone.utc), datetime(2026, 1, 1, 0, 0, 0, 500000, timezone.utc))

    def test_encode(self) -> None:
        self.assertEqual(Limits(memory=5).encode(), {"memory": 5})
        self.assertEqual(Port(80).encode(), {"container": 80, "protocol": "tcp"})


class TestErrors(unittest.TestCase):
    def test_every_code(self) -> None:
        for code, kind in _errors._kinds.items():
            with self.subTest(code):
                error = _errors.from_json({"class": code, "message": "m", "op": "read", "path": "/p", "hint": "h"}, 400)
                self.assertIs(type(error), kind)
                self.assertEqual(
                    (error.code, error.op, error.path, error.hint, error.status), (code, "read", "/p", "h", 400)
                )
                copy = pickle.loads(pickle.dumps(error))
                self.assertEqual((type(copy), copy.__dict__, str(copy)), (kind, error.__dict__, "m (h)"))

    def test_os_errors(self) -> None:
        error: BaseException = _errors.from_json({"class": "not-found", "message": "m", "path": "/p"})
        assert isinstance(error, FileNotFoundError)
        self.assertEqual((error.errno, error.strerror, error.filename), (errno.ENOENT, "m", "/p"))

    def test_malformed(self) -> None:
        bodies: tuple[object, ...] = (None, [], "x", {"class": 1}, {"class": ["config"]})
        for body in bodies:
            with self.subTest(body=body):
                self.assertIs(type(_errors.from_json(body, 500)), _errors.InfrastructureError)

    def test_hint_said_once(self) -> None:
        self.assertEqual(str(_errors.ConfigError("a (b)", hint="b")), "a (b)")


if __name__ == "__main__":
    unittest.main()
