"""Folders in both directions, with real sandboxes, and archives that no honest server sends."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import tracemalloc
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import fumehood
from fumehood import AsyncClient, Client, FolderProgress, _copies, _extraction
from fumehood._globs import Globs
from fumehood._version import API
from tests.fake import Fake, Got, answer
from tests.real import IMAGE, OnProvider, needs_server

try:
    import trio
except ImportError:
    trio = None  # type: ignore[assignment]

MIB = 1 << 20

# What hostile code leaves in the folder that is its argument. It prints what could not be made.
HOSTILE = r"""
import os, socket, sys
os.chdir(sys.argv[1])
def do(make, *args):
    try:
        make(*args)
    except OSError as e:
        print(make.__name__, args, e)
for name in (b"plain", b"new\nline", b"\xff\xfe", b" ", b"-rf", b"\\", b"\x1b[31m", b"n" * 255):
    with open(name, "wb") as f:
        f.write(name)
os.mkdir("d")
os.mkdir("d/locked")
with open("d/locked/in", "w") as f:
    f.write("in")
links = {
    "absolute": "/etc/passwd", "relative": "../outside", "d/up": "..", "d/out": "../..", "inside": "d/locked/in",
    "self": "self", "chain0": ".", "chain1": "chain0/..", "chain2": "d/up/..", "root": "/", "dangling": "nothing",
    "d/file": "../plain",
}
for name, target in links.items():
    do(os.symlink, target, name)
do(os.mkfifo, "fifo")
do(os.mkfifo, "d/fi\nfo")
s = socket.socket(socket.AF_UNIX)
s.bind("sock")
do(os.mknod, "null", 0o666 | 0o020000, os.makedev(1, 3))
os.chmod("plain", 0o4755)
os.chmod("d/locked/in", 0o000 if os.geteuid() == 0 else 0o400)
os.chmod("d/locked", 0o500)
with open("sparse", "wb") as f:
    f.write(b"begin")
    f.truncate(64 << 20)
    f.seek(0, 2)
    f.write(b"end")
deep = "deep"
for _ in range(3000):  # the guest lists what is below 250 folders, the client what is below 100 of them
    os.mkdir(deep)
    os.chdir(deep)
"""

SKIPPED = {
    ("absolute", "link-leads-out"),
    ("relative", "link-leads-out"),
    ("d/out", "link-leads-out"),
    ("chain1", "link-leads-out"),
    ("chain2", "link-leads-out"),
    ("root", "link-leads-out"),
    ("fifo", "pipe"),
    ("d/fi\nfo", "pipe"),
    ("sock", "socket"),
}


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return the modes and contents, or targets, of what is in a folder."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        data = b""
        if stat.S_ISREG(status.st_mode):
            data = path.read_bytes()
        elif stat.S_ISLNK(status.st_mode):
            data = os.fsencode(os.readlink(path))  # noqa: PTH115
        found[str(path.relative_to(folder))] = (0 if stat.S_ISLNK(status.st_mode) else status.st_mode, data)
    return found


def make_tree(folder: Path) -> None:
    """Make what a copy keeps."""
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "empty").mkdir(mode=0o750)
    (folder / "sub/deep/file").write_bytes(os.urandom(3 * MIB + 1))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "private").write_bytes(b"")
    (folder / "private").chmod(0o600)
    (folder / "new\nline").write_bytes(b"x" * 511)
    (folder / "caf\udce9").write_bytes(b"y" * 512)
    (folder / ("long" * 60)).write_bytes(b"z" * 513)
    (folder / "link").symlink_to("sub/deep/file")
    (folder / "sub/deep/up").symlink_to("../../run.sh")
    os.utime(folder / "run.sh", (981173106, 981173106))


class Folders(OnProvider):
    def setUp(self) -> None:
        super().setUp()
        self.here = self.temporary()

    def only(self, *names: str) -> None:
        """Check that nothing else is in the folder of this machine, as a temporary one would be."""
        self.assertEqual(sorted(path.name for path in self.here.iterdir()), sorted(names))

    def test_round_trip(self) -> None:
        (self.here / "from").mkdir()
        make_tree(self.here / "from")
        want = tree(self.here / "from")
        seen: list[FolderProgress] = []
        up = self.sb.upload_dir(self.here / "from", f"{self.folder}/a/b", progress=seen.append)
        size = sum(len(data) for mode, data in want.values() if stat.S_ISREG(mode))
        self.assertEqual((up.entries, up.bytes, up.skipped, up.skipped_count), (len(want), size, (), 0))
        self.assertEqual((seen[-1].entries, seen[-1].bytes), (len(want), size))
        seen.clear()
        down = self.sb.download_dir(f"{self.folder}/a/b", self.here / "to", progress=seen.append)
        self.assertEqual(tree(self.here / "to"), want)
        self.assertEqual((down.entries, down.bytes, down.skipped, down.skipped_count), (len(want), size, (), 0))
        self.assertEqual((seen[-1].entries, seen[-1].bytes), (len(want), size))
        self.assertEqual([each.bytes for each in seen], sorted(each.bytes for each in seen))
        self.assertEqual((self.here / "to/run.sh").stat().st_mtime, 981173106)
        self.only("from", "to")

    def test_either(self) -> None:
        (self.here / "from").mkdir()
        (self.here / "from/f").write_text("text")
        self.assertEqual(self.sb.upload(str(self.here / "from"), f"{self.folder}/d").entries, 1)
        self.assertEqual(self.sb.read(f"{self.folder}/d/f"), b"text")
        down = self.sb.download(f"{self.folder}/d", self.here / "to")
        self.assertEqual((down.entries, down.bytes, (self.here / "to/f").read_text()), (1, 4, "text"))
        file = self.sb.download(f"{self.folder}/d/f", self.here / "f")
        self.assertEqual((file.entries, file.bytes, (self.here / "f").read_text()), (1, 4, "text"))
        self.assertEqual(self.sb.upload(self.here / "f", f"{self.folder}/g").bytes, 4)
        with self.assertRaises(fumehood.ConfigError):
            self.sb.upload(self.here / "from", f"{self.folder}/d", mode=0o600)
        with self.assertRaises(IsADirectoryError):
            self.sb.download(f"{self.folder}/d", io.BytesIO())

    def test_merge(self) -> None:
        (self.here / "from/d").mkdir(parents=True)
        (self.here / "from/d/new").write_text("new")
        (self.here / "from/old").write_text("replaced")
        self.sb.write(f"{self.folder}/t/old", "old")
        self.sb.write(f"{self.folder}/t/d/stays", "stays")
        self.sb.upload_dir(self.here / "from", f"{self.folder}/t")
        self.sb.run(["ln", "-s", "t", f"{self.folder}/link"])
        down = self.sb.download_dir(f"{self.folder}/link", self.here / "to")  # a link to a folder counts as the folder
        self.assertEqual(down.skipped, ())
        self.assertEqual(
            {name: data for name, (_, data) in tree(self.here / "to").items()},
            {"d": b"", "d/new": b"new", "d/stays": b"stays", "old": b"replaced"},
        )

    def test_exclude(self) -> None:
        for name in ("build/a", "sub/build/b", "x.pyc", "sub/y.pyc", "keep", "sub/keep"):
            (self.here / "from" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.here / "from" / name).write_text(name)
        self.sb.upload_dir(self.here / "from", f"{self.folder}/some", exclude=["build", "**/*.pyc"])
        found = {each.path for each in self.sb.walk(f"{self.folder}/some")}
        self.assertEqual(found, {".", "keep", "sub", "sub/build", "sub/build/b", "sub/keep"})
        self.sb.upload_dir(self.here / "from", f"{self.folder}/all")
        self.sb.run(["mkfifo", f"{self.folder}/all/build/pipe"])
        down = self.sb.download_dir(f"{self.folder}/all", self.here / "to", exclude=["build", "**/*.pyc"])
        self.assertEqual(set(tree(self.here / "to")), {"keep", "sub", "sub/build", "sub/build/b", "sub/keep"})
        self.assertEqual((down.entries, down.skipped, down.skipped_count), (5, (), 0))
        for copy in (self.sb.upload_dir, self.sb.download_dir):
            with self.assertRaises(fumehood.ConfigError) as caught:
                copy(self.folder if copy == self.sb.download_dir else self.here, "/nowhere", exclude=["build/"])
            self.assertIn("exclude: the glob 'build/' matches nothing", str(caught.exception))

    def test_hostile(self) -> None:
        made = self.sb.run(["python3", "-c", HOSTILE, self.folder])
        self.assertTrue(made.success, made.stderr.text)
        want = set(SKIPPED)
        if "mknod" not in made.stdout.text:
            want.add(("null", "device"))
        down = self.sb.download_dir(self.folder, self.here / "to")
        too_deep = {(each.path, each.reason) for each in down.skipped if each.reason == "too-deep"}
        self.assertEqual({(each.path, each.reason) for each in down.skipped} - too_deep, want)
        self.assertEqual((len(too_deep), down.skipped_count), (150, 150 + len(want)))
        found = tree(self.here / "to")
        for name in ("new\nline", "\udcff\udcfe", " ", "-rf", "\\", "\x1b[31m", "n" * 255):
            self.assertEqual(found[name][1], os.fsencode(name))
        self.assertEqual(found["plain"], (stat.S_IFREG | 0o755, b"plain"))  # no set-id bit
        links = {name: data for name, (mode, data) in found.items() if not mode}
        self.assertEqual(
            links,
            {
                "d/up": b"..",
                "inside": b"d/locked/in",
                "self": b"self",
                "chain0": b".",
                "dangling": b"nothing",
                "d/file": b"../plain",
            },
        )
        self.assertEqual(found["d/locked"][0], stat.S_IFDIR | 0o700)  # the owner may remove it
        self.assertEqual(found["d/locked/in"], (stat.S_IFREG | 0o400, b"in"))
        status = (self.here / "to/sparse").stat()
        self.assertEqual((status.st_size, status.st_blocks * 512 < MIB), (64 * MIB + 3, True))
        self.assertEqual(found["sparse"][1], b"begin".ljust(64 * MIB, b"\0") + b"end")
        self.only("to")

    def test_limits(self) -> None:
        self.sb.run(["sh", "-c", f"cd {self.folder}; echo a >a; echo b >b; truncate -s 10G sparse; truncate -s 1 more"])
        cases: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({}, fumehood.TooLargeError, "more than 10737418240 bytes (copy less, or raise max_bytes)"),
            ({"max_bytes": 3}, fumehood.TooLargeError, "more than 3 bytes (copy less, or raise max_bytes)"),
            ({"max_entries": 3}, fumehood.LimitError, "more than 3 files, folders and links (copy less, or raise max"),
        ]
        for options, kind, says in cases:
            begin = time.monotonic()
            with self.subTest(options), self.assertRaises(kind) as caught:
                self.sb.download_dir(self.folder, self.here / "to", **options)
            self.assertIn(says, str(caught.exception))
            self.assertLess(time.monotonic() - begin, 60)
            self.only()
        (self.here / "from").mkdir()
        (self.here / "from/a").write_text("1234")
        (self.here / "from/b").write_text("1234")
        for options, kind, _ in cases[1:]:
            options = dict.fromkeys(options, 1)
            with self.subTest(options), self.assertRaises(kind) as caught:
                self.sb.upload_dir(self.here / "from", f"{self.folder}/up", **options)
            self.assertIn("or raise max_", str(caught.exception))

    def test_targets(self) -> None:
        self.sb.write(f"{self.folder}/d/f", "text")
        (self.here / "empty").mkdir()
        (self.here / "link").symlink_to("empty")
        self.sb.download_dir(f"{self.folder}/d", self.here / "link")
        self.assertEqual((self.here / "empty/f").read_text(), "text")
        for target in ("empty", "link", "empty/f"):
            with self.subTest(target), self.assertRaises(FileExistsError) as caught:
                self.sb.download_dir(f"{self.folder}/d", self.here / target)
            self.assertIn("name a new folder, or an empty one", str(caught.exception))
        with self.assertRaises(FileNotFoundError):
            self.sb.download_dir(f"{self.folder}/d", self.here / "missing/to")
        with self.assertRaises(FileNotFoundError) as missing:
            self.sb.download_dir(f"{self.folder}/missing", self.here / "to")
        self.assertEqual(missing.exception.filename, f"{self.folder}/missing")
        with self.assertRaises(NotADirectoryError):
            self.sb.download_dir(f"{self.folder}/d/f", self.here / "to")
        with self.assertRaises(NotADirectoryError):
            self.sb.upload_dir(self.here / "empty/f", f"{self.folder}/up")
        with self.assertRaises(FileNotFoundError):
            self.sb.upload_dir(self.here / "missing", f"{self.folder}/up")
        with self.assertRaises(fumehood.FumehoodError):
            self.sb.upload_dir(self.here / "empty", f"{self.folder}/d/f")
        self.only("empty", "link")

    def test_upload_special(self) -> None:
        source = self.here / "from"
        source.mkdir()
        (source / "file").write_text("text")
        os.mkfifo(source / "pipe")
        with socket.socket(socket.AF_UNIX) as listener:
            before = Path.cwd()
            os.chdir(source)  # the length of a socket's address is limited
            try:
                listener.bind("sock")
            finally:
                os.chdir(before)
        for name, target in (("out", "/etc/passwd"), ("up", "../x"), ("in", "file"), ("around", "in/../..")):
            (source / name).symlink_to(target)
        up = self.sb.upload_dir(source, f"{self.folder}/d")
        self.assertEqual(
            {(each.path, each.reason) for each in up.skipped},
            {
                ("pipe", "pipe"),
                ("sock", "socket"),
                ("out", "link-leads-out"),
                ("up", "link-leads-out"),
                ("around", "link-leads-out"),
            },
        )
        self.assertEqual({each.path for each in self.sb.walk(f"{self.folder}/d")}, {".", "file", "in"})

    def test_interrupted(self) -> None:
        self.sb.run(["sh", "-c", f"cd {self.folder}; for n in 1 2 3 4; do head -c 2000000 /dev/zero >$n; done"])

        def stop(_: FolderProgress) -> None:
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            self.sb.download_dir(self.folder, self.here / "to", progress=stop)
        self.only()
        (self.here / "from").mkdir()
        (self.here / "from/f").write_text("text")
        with self.assertRaises(KeyboardInterrupt):
            self.sb.upload_dir(self.here / "from", f"{self.folder}/up", progress=stop)
        self.assertEqual(self.sb.upload_dir(self.here / "from", f"{self.folder}/up").entries, 1)

    def test_event_loops(self) -> None:
        (self.here / "from").mkdir()
        make_tree(self.here / "from")
        want = tree(self.here / "from")
        runs: list[Callable[..., Any]] = [lambda work: asyncio.run(work())]
        if trio:
            runs.append(trio.run)
        for n, run in enumerate(runs):

            async def copy(n: int = n) -> None:
                image = "" if self.provider == "local" else IMAGE
                async with AsyncClient(provider=self.provider) as client, await client.start(image) as sb:
                    up = await sb.upload_dir(self.here / "from", f"{self.folder}/loop{n}")
                    down = await sb.download_dir(f"{self.folder}/loop{n}", self.here / f"to{n}")
                    self.assertEqual((up.entries, down.entries), (len(want), len(want)))

            run(copy)
            self.assertEqual(tree(self.here / f"to{n}"), want)


class DockerFolders(Folders):
    provider = "docker"

    def test_unreadable(self) -> None:
        """What cannot be read is an error that names it, in both directions, and never missing without a word."""
        self.sb.run(["sh", "-c", f"cd {self.folder}; echo a >a; mkdir d; echo b >d/secret; chmod 600 d/secret"])
        with self.assertRaises(PermissionError) as caught:
            self.sb.as_user("1234").download_dir(self.folder, self.here / "to")
        self.assertIn("d/secret", str(caught.exception))
        self.only()
        # The server has sent a part by the time that it finds out.
        self.sb.run(["sh", "-c", f"head -c 9000000 /dev/urandom >{self.folder}/a"])
        with self.assertRaises(fumehood.ConnectionLostError) as late:
            self.sb.as_user("1234").download_dir(self.folder, self.here / "to")
        self.assertIn("as_user('root')", str(late.exception))
        self.only()
        self.assertEqual(self.sb.download_dir(self.folder, self.here / "to").entries, 3)

    def test_unreadable_here(self) -> None:
        (self.here / "d").mkdir()
        (self.here / "d/secret").write_text("x")
        refused = PermissionError(13, "Permission denied", str(self.here / "d/secret"))
        with mock.patch("fumehood._folders.os.open", side_effect=refused), self.assertRaises(PermissionError) as caught:
            self.sb.upload_dir(self.here / "d", f"{self.folder}/up")
        self.assertEqual(caught.exception.filename, str(self.here / "d/secret"))


class NativeFolders(Folders):
    provider = "native"


class KubernetesFolders(Folders):
    provider = "kubernetes"


class LocalFolders(Folders):
    provider = "local"


del Folders  # its subclasses run it


def member(name: bytes, kind: bytes = b"0", data: bytes = b"", link: bytes = b"", size: int = -1) -> bytes:
    """Return a member of an archive. The name and the link may be anything: they are in PAX records."""
    info = tarfile.TarInfo("x")
    info.type, info.mode, info.size = kind, 0o644, len(data) if size < 0 else size
    return pax({b"path": name, b"linkpath": link}) + info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def pax(values: dict[bytes, bytes]) -> bytes:
    """Return PAX records for the next header."""
    body = b""
    for key, value in values.items():
        rest = b" " + key + b"=" + value + b"\n"
        size = len(rest) + len(str(len(rest)))
        size += len(str(size)) - len(str(len(rest)))
        body += str(size).encode() + rest
    return records(body)


def records(body: bytes, kind: bytes = b"x") -> bytes:
    """Return a header with records, and these."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = kind, len(body)
    return info.tobuf(tarfile.USTAR_FORMAT) + body + bytes(-len(body) % 512)


TOP, END = member(b"top/", b"5"), bytes(1024)


class TestForged(unittest.TestCase):
    """Archives that the server's guest never makes, as one would that code in the sandbox has taken over."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = Path(folder.name)
        (self.here / "outside").mkdir()
        self.target = self.here / "to"

    def download(self, archive: bytes, **options: Any) -> fumehood.DownloadResult:
        """Download a forged archive."""

        def handle(got: Got) -> bytes:
            if "/archive" in got.target:
                return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(archive) + archive
            return answer({"id": "x", "name": "x", "version": "x", "api": API})

        with Fake(handle) as fake, Client(f"unix:{fake.path}") as client:
            return client.get("x").download_dir("/top", self.target, **options)

    def outside(self) -> None:
        """Check that there is nothing new outside the target."""
        self.assertEqual(list((self.here / "outside").iterdir()), [])
        self.assertLessEqual({path.name for path in self.here.iterdir()}, {"outside", "to"})

    def test_names(self) -> None:
        link = b"top/l"
        outside = os.fsencode(self.here / "outside")
        cases: dict[str, tuple[bytes, list[tuple[str, str]]]] = {
            "climbs": (member(b"top/../outside/evil"), [("../outside/evil", "invalid-name")]),
            "climbs at once": (member(b"../outside/evil"), [("../outside/evil", "invalid-name")]),
            "is absolute": (member(outside + b"/evil"), [(str(self.here / "outside/evil"), "invalid-name")]),
            "is absolute below": (member(b"top//etc/evil"), [("/etc/evil", "invalid-name")]),
            "is beside": (member(b"topmost/evil"), [("topmost/evil", "invalid-name")]),
            "has a NUL": (member(b"top/a\0b"), [("a\0b", "invalid-name")]),
            "is long": (member(b"top/" + b"n" * 256), [("n" * 256, "invalid-name")]),
            "is empty": (member(b""), [("", "invalid-name")]),
            "has no folder": (member(b"top/d/evil"), [("d/evil", "no-folder")]),
            "goes through a link": (
                member(link, b"2", link=b".") + member(b"top/l/evil") + member(b"top/l/d/", b"5"),
                [("l/evil", "no-folder"), ("l/d", "no-folder")],
            ),
            "goes through a file": (member(link) + member(b"top/l/evil"), [("l/evil", "no-folder")]),
            "replaces a folder by a link": (
                member(b"top/d/", b"5") + member(b"top/d", b"2", link=b".") + member(b"top/d/in", data=b"in"),
                [("d", "exists")],
            ),
            "replaces a link by a folder": (
                member(link, b"2", link=b".") + member(link, b"5") + member(b"top/l/evil"),
                [("l", "exists"), ("l/evil", "no-folder")],
            ),
            "writes through a link": (member(link, b"2", link=b"m") + member(link, data=b"x"), [("l", "exists")]),
            "comes again": (member(link, data=b"1") + member(link, data=b"2"), [("l", "exists")]),
            "is the top again": (member(b"top", b"2", link=outside), [("top", "invalid-name")]),
            "is a link to outside": (member(link, b"2", link=outside), [("l", "link-leads-out")]),
            "is a link up": (member(link, b"2", link=b"../outside"), [("l", "link-leads-out")]),
            "is a link around": (member(link, b"2", link=b"a/../.."), [("l", "link-leads-out")]),
            "is a link with a NUL": (member(link, b"2", link=b"a\0"), [("l", "link-leads-out")]),
            "is a link to nothing": (member(link, b"2", link=b""), [("l", "link-leads-out")]),
            "is a hard link": (member(link, b"1", link=outside + b"/f"), [("l", "hard-link")]),
            "is a device": (member(b"top/c", b"3") + member(b"top/b", b"4"), [("c", "device"), ("b", "device")]),
            "is a pipe": (member(link, b"6"), [("l", "pipe")]),
            "is unknown": (member(link, b"Z"), [("l", "device")]),
            "is deep": (
                b"".join(member(b"top" + b"/d" * n, b"5") for n in range(1, 103)),
                [("d" + "/d" * (n - 1), "too-deep") for n in (101, 102)],
            ),
        }
        for name, (forged, skipped) in cases.items():
            with self.subTest(name):
                down = self.download(TOP + forged + member(b"top/last", data=b"last") + END)
                self.assertEqual([(each.path, each.reason) for each in down.skipped], skipped)
                self.assertEqual(down.skipped_count, len(skipped))
                self.assertEqual((self.target / "last").read_bytes(), b"last")
                self.outside()
                shutil.rmtree(self.target)

    def test_malformed(self) -> None:
        whole = TOP + member(b"top/f", data=b"text" * 1000) + END
        wrong = bytearray(whole)
        wrong[1024 + 150] ^= 1
        long = tarfile.TarInfo("x")
        long.type, long.size = b"x", 1 << 40
        cases: dict[str, tuple[bytes, type[Exception]]] = {
            "nothing": (b"", fumehood.ProtocolError),
            "no entry": (END, fumehood.ProtocolError),
            "no archive": (b"no archive" * 1000, fumehood.ProtocolError),
            "its end is missing": (whole[:-1024], fumehood.ProtocolError),
            "it ends in content": (whole[:3000], fumehood.ProtocolError),
            "another checksum": (bytes(wrong), fumehood.ProtocolError),
            "long records": (TOP + long.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20), fumehood.ProtocolError),
            "a long name": (TOP + member(b"top/" + b"n" * (200 << 10)) + END, fumehood.LimitError),
            "records twice": (TOP + pax({b"path": b"a"}) + member(b"top/f") + END, fumehood.ProtocolError),
            "no records": (TOP + records(b"text") + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a short record": (TOP + records(b"5 a=b\n") + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a long record": (TOP + records(b"7 a=b\n") + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a record of nothing": (TOP + records(b"2 6 a=b\n") + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "global records": (TOP + records(b"6 a=b\n", b"g") + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a size": (TOP + pax({b"size": b"-1"}) + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a time": (TOP + pax({b"mtime": b"1e9"}) + member(b"x")[1024:] + END, fumehood.ProtocolError),
            "a sparse file": (TOP + pax({b"GNU.sparse.major": b"1"}) + member(b"x")[1024:], fumehood.ProtocolError),
            "a folder with content": (TOP + member(b"top/d/", b"5", data=b"x") + END, fumehood.ProtocolError),
            "a huge file": (TOP + member(b"top/f", size=0o77777777777 - 1) + bytes(1000), fumehood.ProtocolError),
            "bytes after it": (whole + bytes(2 << 20), fumehood.ProtocolError),
            "a file first": (member(b"top") + END, NotADirectoryError),
            "a link, and again": (member(b"top", b"2", link=b"x") + END, NotADirectoryError),
        }
        for name, (forged, kind) in cases.items():
            with self.subTest(name), self.assertRaises(kind):
                self.download(forged)
            self.outside()
            self.assertFalse(self.target.exists())

    def test_modes(self) -> None:
        info = tarfile.TarInfo("top/f")
        info.mode, info.mtime = 0o7000, -5
        again = tarfile.TarInfo("top/old")
        again.mode, again.mtime = 0o7777, 1 << 40
        self.download(TOP + info.tobuf(tarfile.PAX_FORMAT) + again.tobuf(tarfile.PAX_FORMAT) + END)
        self.assertEqual((self.target / "f").stat().st_mode, stat.S_IFREG | 0o400)
        self.assertEqual((self.target / "old").stat().st_mode, stat.S_IFREG | 0o777)
        self.assertEqual(self.target.stat().st_mode, stat.S_IFDIR | 0o744)
        self.assertLess((self.target / "old").stat().st_mtime, time.time() + 60)

    def test_skipped(self) -> None:
        """The list of what the guest left out is bounded, and only a list."""
        record = b"70000\0" + b"pipe a\n\0b\0socket ../x\0device \xff\0lie y\0pipe \0" + b"pipe p\0" * 5000
        info = tarfile.TarInfo("x")
        info.type, info.mode = b"5", 0o755
        top = pax({b"path": b"top/", b"FUMEHOOD.skipped": record}) + info.tobuf(tarfile.USTAR_FORMAT)
        down = self.download(TOP + member(b"top/f") + top + END)
        first = [(each.path, each.reason) for each in down.skipped[:4]]
        self.assertEqual(first, [("a\n", "pipe"), ("../x", "socket"), ("\udcff", "device"), ("p", "pipe")])
        self.assertEqual(len(down.skipped), _copies.MAX_SKIPPED)
        self.assertGreater(down.skipped_count, 69_000)
        self.assertEqual([path.name for path in self.target.iterdir()], ["f"])

    def test_skipped_content(self) -> None:
        """Content counts for the limits, also that of a list, and each list is an entry."""
        skipped = pax({b"path": b"top/", b"FUMEHOOD.skipped": b"1\0pipe p"})
        info = tarfile.TarInfo("x")
        info.size = MIB
        with self.assertRaises(fumehood.TooLargeError):
            self.download(TOP + skipped + info.tobuf(tarfile.USTAR_FORMAT) + bytes(MIB) + END, max_bytes=1000)
        info.type, info.size = b"5", 0
        again = skipped + info.tobuf(tarfile.USTAR_FORMAT)
        self.assertEqual(self.download(TOP + member(b"top/f") + again + END, max_entries=1).skipped_count, 1)
        shutil.rmtree(self.target)
        with self.assertRaises(fumehood.LimitError):
            self.download(TOP + again * 20 + END, max_entries=10)
        self.outside()

    def test_pieces(self) -> None:
        """However the archive is cut, the folder is the same."""
        archive = TOP + member(b"top/f", data=b"text" * 300) + member(b"top/d/", b"5") + member(b"top/d/e") + END
        for size in (1, 7, 511, 512, 513, len(archive)):
            work = _extraction.Extraction("download x", self.target, _copies.Rules())
            for at in range(0, len(archive), size):
                work.feed(archive[at : at + size])
            work.place()
            work.close()
            self.assertEqual(set(tree(self.target)), {"f", "d", "d/e"})
            self.assertEqual((self.target / "f").read_bytes(), b"text" * 300)
            shutil.rmtree(self.target)

    def test_closed(self) -> None:
        """What is closed while another thread writes ends with that, and leaves nothing."""
        work = _extraction.Extraction("download x", self.target, _copies.Rules())
        inside, go = threading.Event(), threading.Event()
        real = os.mkdir

        def slow(*args: Any, **options: Any) -> None:
            inside.set()
            go.wait(10)
            real(*args, **options)

        with mock.patch("fumehood._extraction.os.mkdir", slow):
            feeding = threading.Thread(target=work.feed, args=(TOP + member(b"top/d/", b"5"),))
            feeding.start()
            self.assertTrue(inside.wait(10))
            closing = threading.Thread(target=work.close)
            closing.start()
            go.set()
            feeding.join(10)
            closing.join(10)
        work.feed(member(b"top/f"))
        work.place()
        self.outside()
        self.assertFalse(self.target.exists())

    def test_entries(self) -> None:
        """100,000 files take time in proportion, and memory that does not grow with them."""
        count = 100_000 if os.environ.get("FUMEHOOD_TIER") == "all" else 10_000
        archive = TOP + b"".join(member(b"top/%06d" % n, data=b"x") for n in range(count)) + END
        work = _extraction.Extraction("download x", self.target, _copies.Rules())
        begin = time.process_time()
        tracemalloc.start()
        for at in range(0, len(archive), MIB):
            work.feed(archive[at : at + MIB])
        work.place()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        work.close()
        self.assertLess(peak, 8 * MIB)
        self.assertLess(time.process_time() - begin, count / 200)
        self.assertEqual((work.counts[0], len(os.listdir(self.target))), (count, count))  # noqa: PTH208

    def test_sparse(self) -> None:
        """10 GiB of zeros take no space and little memory; by default, one byte more is refused at its header."""
        size = 10 << 30 if os.environ.get("FUMEHOOD_TIER") == "all" else 1 << 30
        head = pax({b"path": b"top/f", b"size": str(size).encode()}) + member(b"top/f")[-512:]
        work = _extraction.Extraction("download x", self.target, _copies.Rules(max_bytes=size))
        work.feed(TOP + head)
        piece, tracing = bytes(MIB), tracemalloc.is_tracing()
        tracemalloc.start()
        for _ in range(size // MIB):
            work.feed(piece)
        work.feed(END)
        peak = tracemalloc.get_traced_memory()[1]
        if not tracing:
            tracemalloc.stop()
        work.place()
        work.close()
        status = (self.target / "f").stat()
        self.assertEqual((status.st_size, status.st_blocks * 512 < MIB), (size, True))
        self.assertLess(peak, 8 * MIB)
        with self.assertRaises(fumehood.TooLargeError):
            self.target = self.here / "more"
            self.download(TOP + pax({b"path": b"top/f", b"size": b"%d" % ((10 << 30) + 1)}) + member(b"top/f")[-512:])


class TestGlobs(unittest.TestCase):
    def test_match(self) -> None:
        cases = [
            ("*.pyc", ["a.pyc", ".pyc", "a.pyc/below"], ["d/a.pyc", "a.py"]),
            ("**/*.pyc", ["a.pyc", "d/a.pyc", "d/e/a.pyc/x"], ["a.py"]),
            ("build", ["build", "build/a/b"], ["d/build", "builds"]),
            ("a/**/z", ["a/z", "a/b/z", "a/b/c/z/below"], ["a", "a/b", "z"]),
            ("a/**", ["a", "a/b", "a/b/c"], ["b", "b/a"]),
            ("**", ["a", "a/b"], []),
            ("a?c", ["abc", "a\nc", "aéc", "a\udcffc"], ["ac", "abbc"]),
            ("a*b*c", ["abc", "axbxc", "abbcc"], ["ab", "abcd", "acb"]),
            ("[a-c]x", ["ax", "cx"], ["dx", "x", "-x"]),
            ("[^a-c]x", ["dx", "-x"], ["ax", "x"]),
            ("[!a]", ["b"], ["a"]),
            ("[]a]", ["]", "a"], ["b"]),
            ("[a-]", ["a", "-"], ["b"]),
            ("[\\]\\^]", ["]", "^"], ["a"]),
            ("{a,b/c}/x", ["a/x", "b/c/x"], ["b/x", "c/x"]),
            ("{a,b{c,d}}e", ["ae", "bce", "bde"], ["be", "ace"]),
            ("x{,y}", ["x", "xy"], ["xz"]),
            ("[{,}]", ["{", ",", "}"], ["a"]),
            ("\\*\\{\\[", ["*{["], ["a{["]),
            ("a.b+", ["a.b+"], ["axb+", "a.bb"]),
            ("***", ["a"], []),
        ]
        for glob, matching, others in cases:
            globs = Globs([glob])
            for path in matching + others:
                with self.subTest(glob=glob, path=path):
                    self.assertEqual(globs.match(path.split("/")), path in matching)

    def test_invalid(self) -> None:
        globs: list[Any] = [
            "", "/a", "a/", "a//b", "./a", "a/..", "{a,..}/b", "[", "[a", "[]", "[b-a]", "a\\", "{a", "a}", "{a,b}}",
            "{a,b}" * 11,
        ]  # fmt: skip
        for glob in globs:
            with self.subTest(glob), self.assertRaises(fumehood.ConfigError) as caught:
                Globs([glob])
            self.assertIn(repr(glob), str(caught.exception))
        with self.assertRaises(fumehood.ConfigError):
            Globs("build")

    def test_time(self) -> None:
        """No name takes long."""
        globs = Globs(["a*a*a*a*a*a*a*a*b", "**/a/**/a/**/a/**/b", "[a-z]*[a-z]*[a-z]*[a-z]*[a-z]*1"])
        begin = time.monotonic()
        self.assertFalse(globs.match(["a" * 255] * 100))
        self.assertLess(time.monotonic() - begin, 5)


@needs_server
class TestMemory(OnProvider):
    provider = "docker"

    def test_stream(self) -> None:
        """A folder of 100 MB is never in memory. Another process measures that."""
        folder = self.temporary()
        with (folder / "big").open("wb") as big:
            for _ in range(100):
                big.write(os.urandom(MIB))
        (folder / "from").mkdir()
        (folder / "big").rename(folder / "from/big")
        code = f"""
import resource, sys
from fumehood import Client
with Client(provider="docker") as c, c.start({IMAGE!r}) as sb:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sb.upload_dir({str(folder / "from")!r}, "/tmp/d")
    sb.download_dir("/tmp/d", {str(folder / "to")!r})
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
        grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertLess(int(grown) << (0 if sys.platform == "darwin" else 10), 32 * MIB)
        self.assertEqual(tree(folder / "to"), tree(folder / "from"))


if __name__ == "__main__":
    unittest.main()
