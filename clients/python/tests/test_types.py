"""Results and errors as values."""

from __future__ import annotations

import errno
import io
import pickle
import tarfile
import unittest
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fumehood
from fumehood import _errors
from fumehood._files import content, reading
from fumehood._specs import environment_of
from fumehood._types import Decoders, Limits, Output, Port, Result, parse_time


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


class TestDecoders(unittest.TestCase):
    def test_every_cut(self) -> None:
        for data in ("é🎉a" * 3).encode(), b"\xf0\x9f\x8e", b"a\xff\xe2\x82b\xc3":
            for size in range(1, len(data) + 1):
                decoders = Decoders()
                texts = [decoders.decode("stdout", data[at : at + size]) for at in range(0, len(data), size)]
                texts += [decoders.decode("stderr", "é".encode()[:1])]
                rest = dict(decoders.rest())
                self.assertEqual(rest.pop("stderr"), "\ufffd")
                whole = "".join(texts) + rest.get("stdout", "")
                self.assertEqual(whole, data.decode("utf-8", "replace"), (data, size))

    def test_gap(self) -> None:
        decoders = Decoders()
        texts = [decoders.decode("stdout", b"a\xc3"), decoders.decode("stdout", b"\xa9b", gap=True)]
        self.assertEqual(texts, ["a", "\ufffd\ufffdb"])


class TestSources(unittest.TestCase):
    def test_streamed_tar_member(self) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo("a")
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            self.check(tar.extractfile(tar.next() or self.fail()), {-1, 3})

    def test_only_read(self) -> None:
        class Reader:
            def __init__(self) -> None:
                self.pieces = [b"a", bytearray(b"bc")]

            def read(self, _: int) -> object:
                return self.pieces.pop(0) if self.pieces else b""

        self.check(Reader(), {-1})
        self.assertEqual(content(Reader()), b"abc")  # type: ignore[arg-type]

    def test_size(self) -> None:
        file = io.BytesIO(b"..abc")
        file.seek(2)
        self.check(file, {3})

    def test_refused(self) -> None:
        with self.assertRaises(fumehood.ConfigError):
            content(io.StringIO("a"))  # type: ignore[arg-type]
        with self.assertRaises(TypeError):
            content(1)  # type: ignore[arg-type]

    def check(self, source: Any, lengths: set[int]) -> None:
        with reading(source) as (pieces, length):
            self.assertEqual(b"".join(pieces), b"abc")
        self.assertIn(length, lengths)


class TestEnvironment(unittest.TestCase):
    def test_path_or_text(self) -> None:
        cases: dict[Any, dict[str, str]] = {
            "type: local": {"environment": "type: local"},
            "type: local\nname: a.yaml": {"environment": "type: local\nname: a.yaml"},
            "/a/env.yaml": {"file": "/a/env.yaml"},
            "env.yml": {"file": str(Path("env.yml").absolute())},
            Path("/a/env"): {"file": "/a/env"},
        }
        for given, want in cases.items():
            with self.subTest(given=given):
                self.assertEqual(environment_of(given), want)
        self.assertEqual(environment_of({"type": "local"}), {"environment": '{"type": "local"}'})


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
