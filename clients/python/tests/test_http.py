"""The framing of HTTP: what is read, what is refused, and that no bytes make it fail in another way."""

from __future__ import annotations

import os
import random
import unittest

from fumehood import _http
from fumehood._errors import ConnectionLostError, ProtocolError
from fumehood._io import finish


class Pieces(_http.Reader):
    """A reader of a connection that ends after some pieces."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self.waiting = [*pieces, b""]

    async def receive(self, size: int, deadline: float | None) -> bytes:
        if not self.waiting:
            raise AssertionError("the reader asks for more after the connection's end")
        return self.waiting.pop(0)


def read(pieces: list[bytes], method: str = "GET") -> tuple[int, bytes, bool]:
    """Read one response from pieces of a connection, which then ends."""
    reader = Pieces(*pieces)
    reader.begin(method)
    status = finish(reader.head())
    body = b""
    while piece := finish(reader.read()):
        body += piece
    return status, body, reader.reusable


def outcome(pieces: list[bytes], method: str = "GET") -> object:
    """Return what a response is read as, or the class of its error."""
    try:
        return read(pieces, method)
    except (ProtocolError, ConnectionLostError) as e:
        return type(e)


OK = b"HTTP/1.1 200 OK\r\n"

VALID: dict[str, tuple[bytes, tuple[int, bytes, bool]]] = {
    "length": (OK + b"Content-Length: 2\r\n\r\nhi", (200, b"hi", True)),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length:0\r\n\r\n", (200, b"", True)),
    "close": (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nhi", (200, b"hi", False)),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        (200, b"hi0123456789", True),
    ),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: y\r\nZ: 1\r\n\r\n", (200, b"a", True)),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"", True)),
    "continue": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx", (200, b"x", True)),
    "spaces": (OK + b"Content-Length: \t 1 \t\r\n\r\nx", (200, b"x", True)),
    "more than one": (OK + b"Content-Length: 1\r\n\r\nxHTTP", (200, b"x", False)),
}

INVALID: dict[str, bytes] = {
    "both lengths": OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
    "two lengths": OK + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    "negative length": OK + b"Content-Length: -1\r\n\r\n",
    "signed length": OK + b"Content-Length: +1\r\n\r\nx",
    "no length": OK + b"\r\n",
    "gzip": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
    "old": b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "folded": OK + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "space before colon": OK + b"Content-Length : 0\r\n\r\n",
    "line feeds": b"HTTP/1.1 200 OK\nContent-Length: 0\n\nHTTP/1.1 200 OK\r\n\r\n",
    "NUL": OK + b"X: \0\r\nContent-Length: 0\r\n\r\n",
    "bare return": OK + b"X: a\rY: b\r\nContent-Length: 0\r\n\r\n",
    "chunk size": OK + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\nhi\r\n0\r\n\r\n",
    "chunk too long": OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nhi\r\n0\r\n\r\n",
    "many trailers": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 101 + b"\r\n",
    "invalid trailer": OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX\r\n\r\n",
    "many headers": OK + b"X: y\r\n" * 101 + b"Content-Length: 0\r\n\r\n",
    "large head": OK + b"X: " + b"y" * (65 << 10) + b"\r\n\r\n",
    "endless head": OK + b"X: " + b"y" * (65 << 10),
    "endless chunk line": OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"y" * 2000,
    "many interim": b"HTTP/1.1 100 Continue\r\n\r\n" * 9,
    "empty line first": b"\r\n" + OK + b"Content-Length: 0\r\n\r\n",
}


class TestReader(unittest.TestCase):
    def test_valid(self) -> None:
        for name, (data, want) in VALID.items():
            with self.subTest(name):
                self.assertEqual(read([data]), want)

    def test_invalid(self) -> None:
        for name, data in INVALID.items():
            with self.subTest(name), self.assertRaises(ProtocolError):
                read([data])

    def test_split_anywhere(self) -> None:
        for name, data in [(n, v[0]) for n, v in VALID.items()] + list(INVALID.items()):
            if len(data) > 4096 or name == "more than one":
                continue
            whole = outcome([data])
            with self.subTest(name):
                self.assertEqual(outcome([data[i : i + 1] for i in range(len(data))]), whole)
                for cut in range(1, len(data)):
                    self.assertEqual(outcome([data[:cut], data[cut:]]), whole)

    def test_cut_short(self) -> None:
        for name in ("length", "chunked", "trailers", "continue"):
            data = VALID[name][0]
            for end in range(len(data)):
                with self.subTest(name, end=end):
                    self.assertIs(outcome([data[:end]] if end else []), ConnectionLostError)

    def test_head_has_no_body(self) -> None:
        self.assertEqual(read([OK + b"Content-Length: 9\r\n\r\n"], "HEAD"), (200, b"", True))

    def test_many_on_one_connection(self) -> None:
        bodies = [b"x" * n for n in range(3)]
        reader = Pieces(*(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body for body in bodies))
        for body in bodies:
            reader.begin("GET")
            self.assertEqual(finish(reader.head()), 200)
            if body:
                self.assertEqual(finish(reader.read()), body)
            self.assertEqual(finish(reader.read()), b"")
            self.assertTrue(reader.reusable)
        reader.begin("GET")
        with self.assertRaises(ConnectionLostError):
            finish(reader.head())
        self.assertFalse(reader.reusable)

    def test_body_of_the_one_before(self) -> None:
        reader = Pieces()
        reader.begin("GET")
        with self.assertRaises(ProtocolError):
            reader.begin("GET")


class TestFuzz(unittest.TestCase):
    """Mutated responses. FUMEHOOD_FUZZ is the number of rounds; a failure names its seed."""

    def test_mutations(self) -> None:
        rounds = int(os.environ.get("FUMEHOOD_FUZZ", "3000"))
        texts = [v[0] for v in VALID.values()] + [t for t in INVALID.values() if len(t) < 4096]
        words = [
            b"\r\n",
            b"\r",
            b"\n",
            b"0",
            b":",
            b" ",
            b"chunked",
            b"Content-Length: ",
            b"ffffffffffffffff",
            b"\0",
            b"\xff",
        ]
        for seed in range(rounds):
            dice = random.Random(seed)
            data = bytearray(dice.choice(texts))
            for _ in range(dice.randint(1, 6)):
                at = dice.randrange(len(data) + 1)
                kind = dice.randrange(4)
                if kind == 0:
                    data[at:at] = dice.choice(words)
                elif kind == 1:
                    del data[at : at + dice.randint(1, 8)]
                elif kind == 2 and at < len(data):
                    data[at] = dice.randrange(256)
                else:
                    data += dice.choice(texts)
            pieces = []
            left = bytes(data)
            while left:
                size = dice.randint(1, 40)
                pieces.append(left[:size])
                left = left[size:]
            with self.subTest(seed=seed):
                # Bytes after the response make the connection useless. In a later piece they are not seen yet.
                whole, split = outcome([bytes(data)] if data else []), outcome(pieces)
                self.assertEqual(seen(whole), seen(split))


def seen(result: object) -> object:
    """Return an outcome without whether the connection can be used again."""
    return result[:2] if isinstance(result, tuple) else result


class TestHead(unittest.TestCase):
    def test_request(self) -> None:
        got = _http.head(_http.start("POST", "/v1/x?a=b", [("Host", "localhost")]), [], 3)
        self.assertEqual(got, b"POST /v1/x?a=b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n")
        self.assertIn(b"Transfer-Encoding: chunked\r\n", _http.head(_http.start("PUT", "/", []), [], -1))
        self.assertNotIn(b"Length", _http.head(_http.start("GET", "/", []), []))

    def test_injection(self) -> None:
        for method, target, name, value in [
            ("GET\r\n", "/", "A", "b"),
            ("GET", "/ HTTP/1.1\r\nX: y", "A", "b"),
            ("GET", "x", "A", "b"),
            ("GET", "/\u00e9", "A", "b"),
            ("GET", "/", "A:", "b"),
            ("GET", "/", "A", "b\r\nX: y"),
            ("GET", "/", "A", "\u00e9"),
        ]:
            with self.subTest(method=method, target=target, name=name):
                with self.assertRaises(ValueError):
                    _http.start(method, target, [(name, value)])
                if name != "A" or value != "b":
                    with self.assertRaises(ValueError):
                        _http.head(_http.start("GET", "/", []), [(name, value)])

    def test_secret_not_in_error(self) -> None:
        with self.assertRaises(ValueError) as caught:
            _http.start("GET", "/", [("Authorization", "Bearer s3cr\net")])
        self.assertNotIn("s3cr", str(caught.exception))

    def test_chunk(self) -> None:
        self.assertEqual(_http.chunk(b"0123456789abcdef"), b"10\r\n0123456789abcdef\r\n")
        self.assertEqual(_http.chunk(b""), b"")


if __name__ == "__main__":
    unittest.main()
