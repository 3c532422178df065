"""The blocking client with real sandboxes, on Docker, on the native and on the local provider."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import threading
import unittest
from pathlib import Path
from typing import Any

import fumehood
from fumehood import Chunk, Client, End, Event, Rlimits
from tests.real import IMAGE, WAITS, OnProvider, containers


class Commands(OnProvider):
    def test_outcomes(self) -> None:
        r = self.sb.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
        self.assertEqual((r.outcome, r.exit_code, r.stdout.text, r.stderr.text), ("exited", 3, "out\n", "err\n"))
        self.assertFalse(r.success)
        r = self.sb.run(["sh", "-c", "kill -9 $$"])
        self.assertEqual((r.outcome, r.signal, r.exit_code), ("signaled", 9, 137))
        r = self.sb.run(["sh", "-c", "echo before; sleep 60"], timeout=0.3, grace=0)
        self.assertEqual((r.outcome, r.exit_code, r.stdout.text, r.timed_out), ("timed-out", -1, "before\n", True))
        self.assertGreaterEqual(r.duration, 0.3)
        self.assertEqual(pickle.loads(pickle.dumps(r)), r)

    def test_not_started(self) -> None:
        self.sb.write(f"{self.folder}/text", "no program", mode=0o644)
        cases: list[tuple[Any, dict[str, Any], type[Exception], type[Exception]]] = [
            (["no-such-program"], {}, fumehood.ProgramNotFoundError, FileNotFoundError),
            ([f"{self.folder}/text"], {}, fumehood.NotExecutableError, PermissionError),
            (["true"], {"cwd": "/nowhere"}, fumehood.DirectoryNotFoundError, FileNotFoundError),
            (["true", "a\0b"], {}, fumehood.ConfigError, ValueError),
            (["true", "\ud800"], {}, fumehood.ConfigError, ValueError),
            (["true"], {"env": {b"A\xff=B": "c"}}, fumehood.ConfigError, ValueError),
            ([], {}, fumehood.ConfigError, ValueError),
            (["true"], {"timeout": 0}, fumehood.ConfigError, ValueError),
            (["true"], {"env": {"A=B": "c"}}, fumehood.ConfigError, ValueError),
        ]
        for args, options, kind, standard in cases:
            expected: type[Exception] = standard
            with self.subTest(args=args), self.assertRaises(expected) as caught:
                self.sb.run(args, **options)
            self.assertIsInstance(caught.exception, kind)
        with self.assertRaises(TypeError):
            self.sb.run(["true"], tiemout=1)  # type: ignore[call-arg]

    def test_bytes(self) -> None:
        text, raw = "caf\udce9", b"caf\xe9"
        given: list[tuple[Any, bytes]] = [
            (b"hi", b"hi"),
            (raw, raw),
            (text, raw),
            (Path("/a/é"), "/a/é".encode()),
            ("é", "é".encode()),
        ]
        for arg, want in given:
            with self.subTest(arg=arg):
                self.assertEqual(self.sb.run(["printf", "%s", arg]).stdout.data, want)
                self.assertEqual(self.sb.run(["printenv", "A"], env={"A": arg}).stdout.data, want + b"\n")
        variables: dict[bytes, Any] = {raw: b"1=\xff", b"B": Path("2")}
        found = self.sb.run(["env"], env=variables).stdout.data.split(b"\n")
        self.assertLessEqual({raw + b"=1=\xff", b"B=2"}, set(found))
        self.sb.mkdir(f"{self.folder}/{text}")
        r = self.sb.run(["pwd"], cwd=f"{self.folder}/{text}")
        self.assertEqual(r.stdout.data, os.fsencode(self.folder) + b"/caf\xe9\n")
        with self.sb.start(["sleep", raw]).events() as events:
            list(events)
        self.assertIn(("sleep", text), [each.info.args for each in self.sb.processes()])

    def test_input(self) -> None:
        path = self.temporary() / "input"
        path.write_bytes(b"\0\xff of a file")
        inputs: list[tuple[fumehood.Stdin | None, bytes]] = [
            (None, b""),
            ("é", "é".encode()),
            (b"\xff\0", b"\xff\0"),
            (bytearray(b"a"), b"a"),
            (memoryview(b"b"), b"b"),
            (path, path.read_bytes()),
            (io.BytesIO(b"c"), b"c"),
        ]
        for given, want in inputs:
            with self.subTest(given=given):
                self.assertEqual(self.sb.run(["cat"], stdin=given).stdout.data, want)

    def test_options(self) -> None:
        r = self.sb.run(["sh", "-c", 'echo "$A"; pwd'], env={"A": "b c"}, cwd=self.folder)
        self.assertEqual(r.stdout.text, f"b c\n{self.folder}\n")
        r = self.sb.run(["sh", "-c", "echo 12345; echo 12345 >&2"], stdout_cap=3, stderr_cap=-1)
        self.assertEqual((r.stdout.data, r.stdout.total, r.stdout.truncated), (b"45\n", 6, True))
        self.assertEqual((r.stderr.data, r.stderr.total), (b"", 6))
        r = self.sb.run(["sh", "-c", "ulimit -n"], rlimits=Rlimits(open_files=40))
        self.assertEqual(r.stdout.text, "40\n")

    def test_process(self) -> None:
        process = self.sb.start(["sh", "-c", "while read line; do echo got $line; done; exit 5"], stdin_open=True)
        events = process.events()
        process.write("one\n")
        event = next(events)
        assert isinstance(event, Chunk)
        self.assertEqual((event.stream, event.text, event.offset, event.skipped), ("stdout", "got one\n", 0, 0))
        events.close()
        process.write(b"two\n")
        process.close_stdin()
        result = process.wait(timeout=WAITS)
        self.assertEqual((result.exit_code, result.stdout.text), (5, "got one\ngot two\n"))
        again = list(process.events(stdout=4))
        self.assertEqual(text_of(again, "stdout"), "one\ngot two\n")
        self.assertEqual(again[-1], End(result))
        self.assertTrue(next(p for p in self.sb.processes() if p.id == process.id).info.ended)

    def test_late_events(self) -> None:
        for cap, skipped in ((0, 0), (1000, 4_999_000)):
            process = self.sb.start(["head", "-c", "5000000", "/dev/zero"], timeout=WAITS, stdout_cap=cap)
            result = process.wait(timeout=2 * WAITS)
            self.assertEqual((result.outcome, result.stdout.total), ("exited", 5_000_000))
            chunks = [event for event in process.events() if isinstance(event, Chunk)]
            found = sum(len(each.data) for each in chunks), sum(each.skipped for each in chunks)
            self.assertEqual(found[0] + found[1], 5_000_000)
            self.assertLessEqual(found[1], skipped)

    def test_signals(self) -> None:
        process = self.sb.start(["sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"])
        with process.events() as events:
            next(events)
        with self.assertRaisesRegex(fumehood.RequestTimeoutError, "timeout of 0.1 s expired"):
            process.wait(timeout=0.1)  # and the command runs on
        process.signal(15)
        self.assertEqual(process.wait(timeout=WAITS).exit_code, 7)
        process = self.sb.start(["sleep", "100"])
        process.kill()
        result = process.wait(timeout=WAITS)
        self.assertEqual((result.outcome, result.reason), ("signaled", "killed by the caller"))

    def test_stream(self) -> None:
        with self.sb.stream(["sh", "-c", "echo a; echo b >&2; exit 2"]) as stream:
            events = list(stream)
        self.assertEqual((text_of(events, "stdout"), text_of(events, "stderr")), ("a\n", "b\n"))
        end = events[-1]
        assert isinstance(end, End)
        self.assertEqual(end.result.exit_code, 2)
        self.assertEqual(list(stream), [])

    def test_stream_text(self) -> None:
        script = r"for b in 303 251 360 237 216 211 303; do printf \\$b; sleep 0.05; done"
        with self.sb.stream(["sh", "-c", script]) as events:
            *chunks, end = list(events)
        texts = [event.text for event in chunks if isinstance(event, Chunk)]
        self.assertEqual("".join(texts), "é🎉\ufffd")
        assert isinstance(end, End)
        self.assertEqual(end.result.stdout.text, "é🎉\ufffd")

    def test_stream_left_early(self) -> None:
        with self.sb.stream(["sh", "-c", "echo $$; exec sleep 100"]) as stream:
            event = next(iter(stream))
        assert isinstance(event, Chunk)
        self.assertNotEqual(self.sb.run(["kill", "-0", event.text.strip()]).exit_code, 0)

    def test_stream_closed(self) -> None:
        stream = self.sb.stream(["sh", "-c", "echo $$; exec sleep 100"])
        event = next(stream)
        stream.close()
        assert isinstance(event, Chunk)
        self.assertNotEqual(self.sb.run(["kill", "-0", event.text.strip()]).exit_code, 0)

    def test_stream_of_much(self) -> None:
        size = 8 << 20  # more than the server holds
        with self.sb.stream(["head", "-c", str(size), "/dev/zero"]) as stream:
            got, end = 0, None
            for event in stream:
                if isinstance(event, Chunk):
                    self.assertEqual((event.offset, event.skipped), (got, 0))
                    got += len(event.data)
                else:
                    end = event.result
        self.assertEqual(got, size)
        assert end
        self.assertEqual(end.stdout.total, size)

    def test_threads(self) -> None:
        wrong: list[object] = []

        def work(n: int) -> None:
            for i in range(20):
                got = self.sb.run(["echo", f"{n} {i}"])
                if got.stdout.text != f"{n} {i}\n":
                    wrong.append(got)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_fork(self) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.sb.run(["true"])
            except fumehood.ForkError:
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertTrue(self.sb.run(["true"]).success)


def text_of(events: list[Event], stream: str) -> str:
    """Return the output of a stream."""
    return "".join(e.text for e in events if isinstance(e, Chunk) and e.stream == stream)


class Files(OnProvider):
    def test_content(self) -> None:
        path = f"{self.folder}/a/b c?#%é"
        for data in (b"", b"\0\xff\r\n", os.urandom(5 << 20)):
            self.sb.write(path, data)
            self.assertEqual(self.sb.read(path), data)
        self.assertEqual(self.sb.read(path, offset=3, length=4), data[3:7])
        self.assertEqual(self.sb.read(path, offset=len(data) - 2), data[-2:])
        self.assertEqual(self.sb.read(path, offset=len(data) + 1), b"")
        self.assertEqual(self.sb.read(path, length=0), b"")
        self.sb.write(path, "é\r\n", mode=0o600, atomic=True)
        self.assertEqual((self.sb.read_text(path), self.sb.stat(path).mode), ("é\r\n", 0o600))
        self.sb.write(path, b"\xff")
        with self.assertRaises(UnicodeDecodeError):
            self.sb.read_text(path)

    def test_names_not_utf8(self) -> None:
        top = os.fsencode(f"{self.folder}/d")
        names = ["caf\udce9", "caf\udcea", "café"]
        self.sb.mkdir(top)
        for n, name in enumerate(names):
            self.sb.write(top + b"/" + os.fsencode(name), str(n))
        found = [each.name for each in self.sb.listdir(top)]
        self.assertEqual(sorted(found), sorted(names))
        paths = [f"{self.folder}/d/{name}" for name in names]
        self.assertEqual([self.sb.read(path) for path in paths], [b"0", b"1", b"2"])
        self.assertEqual({each.path for each in self.sb.walk(Path(self.folder, "d"))}, {".", *names})
        self.sb.rename(paths[0], paths[0] + "2")
        self.sb.chmod(paths[0] + "2", 0o600)
        self.assertEqual(self.sb.stat(os.fsencode(paths[0]) + b"2").mode, 0o600)
        self.sb.run(["ln", "-s", b"to\xff", top + b"/link"])
        self.assertEqual(self.sb.stat(f"{self.folder}/d/link").target, "to\udcff")
        self.sb.remove(paths[0] + "2")
        with self.assertRaises(FileNotFoundError) as caught:
            self.sb.read(paths[0])
        self.assertEqual(caught.exception.filename, paths[0])
        self.assertIn("caf\\xe9", str(caught.exception))
        with self.assertRaises(fumehood.ConfigError):
            self.sb.read(f"{self.folder}/\ud800")

    def test_errors(self) -> None:
        path = f"{self.folder}/missing"
        for call in (self.sb.read, self.sb.stat, self.sb.listdir, self.sb.remove):
            with self.assertRaises(FileNotFoundError) as caught:
                call(path)
            self.assertEqual((type(caught.exception), caught.exception.filename), (fumehood.NotFoundError, path))
        with self.assertRaises(IsADirectoryError):
            self.sb.read(self.folder)
        self.sb.write(path, b"")
        with self.assertRaises(NotADirectoryError):
            self.sb.read(f"{path}/x")
        with self.assertRaises(FileExistsError):
            self.sb.mkdir(path)
        with self.assertRaises(fumehood.NotEmptyError):
            self.sb.remove(self.folder)

    def test_transfers(self) -> None:
        here, data = self.temporary(), os.urandom(3 << 20)
        (here / "from").write_bytes(data)
        there = f"{self.folder}/file"
        read, write = os.pipe()  # of unknown length
        os.write(write, b"piped")
        os.close(write)
        with os.fdopen(read, "rb", buffering=0) as pipe:
            self.sb.upload(pipe, there)
        self.assertEqual(self.sb.read(there), b"piped")
        self.sb.upload(here / "from", there, mode=0o750)
        self.sb.download(there, here / "to")
        self.assertEqual((here / "to").read_bytes(), data)
        self.assertEqual(self.sb.stat(there).mode, 0o750)
        file = io.BytesIO(b"skipped, sent")
        file.seek(9)
        self.sb.upload(file, there)
        target = io.BytesIO()
        self.sb.download(there, target)
        self.assertEqual(target.getvalue(), b"sent")
        with self.assertRaises(FileNotFoundError):
            self.sb.download(f"{self.folder}/missing", here / "to")
        with self.assertRaises(FileNotFoundError):
            self.sb.upload(here / "missing", there)
        with self.assertRaises(ValueError):
            self.sb.upload(io.StringIO("text"), there)  # type: ignore[arg-type]
        self.assertEqual((sorted(p.name for p in here.iterdir()), (here / "to").read_bytes()), (["from", "to"], data))

    def test_transfer_limits(self) -> None:
        here, there = self.temporary(), f"{self.folder}/sparse"
        self.sb.run(["sh", "-c", f"printf begin >{there}; truncate -s 64M {there}; printf end >>{there}"])
        self.sb.download(there, here / "to")
        status = (here / "to").stat()
        self.assertEqual((status.st_size, status.st_blocks * 512 < 1 << 20), ((64 << 20) + 3, True))
        self.assertEqual((here / "to").read_bytes(), b"begin".ljust(64 << 20, b"\0") + b"end")
        self.sb.get_archive(there, here / "tar", max_bytes=-1)
        with tarfile.open(here / "tar") as tar:
            self.assertEqual(tar.getnames(), ["sparse"])
        self.assertLess((here / "tar").stat().st_blocks * 512, 1 << 20)
        for copy in (self.sb.download, self.sb.get_archive):
            with self.assertRaises(fumehood.TooLargeError) as caught:
                copy(there, here / "none", max_bytes=1 << 20)
            self.assertIn("more than 1048576 bytes", str(caught.exception))
            self.assertIn("raise max_bytes", str(caught.exception))
        self.assertEqual(sorted(p.name for p in here.iterdir()), ["tar", "to"])

    def test_archives(self) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            info = tarfile.TarInfo("d/f")
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
        archive.seek(0)
        self.sb.put_archive(self.folder, archive)
        self.assertEqual(self.sb.read(f"{self.folder}/d/f"), b"abc")
        got = io.BytesIO()
        self.sb.get_archive(f"{self.folder}/d", got)
        got.seek(0)
        with tarfile.open(fileobj=got) as tar:
            self.assertEqual(sorted(tar.getnames()), ["d", "d/f"])
        with self.assertRaises(FileNotFoundError):
            self.sb.get_archive(f"{self.folder}/missing", io.BytesIO())

    def test_directories(self) -> None:
        self.sb.mkdir(f"{self.folder}/a/b", parents=True)
        self.sb.write(f"{self.folder}/a/f", b"1234")
        self.sb.run(["ln", "-s", "f", f"{self.folder}/a/l"])
        listed = self.sb.listdir(f"{self.folder}/a")
        self.assertEqual(
            [(f.name, f.type, f.size) for f in listed], [("b", "directory", 0), ("f", "file", 4), ("l", "symlink", 0)]
        )
        self.assertEqual((listed[2].target, listed[0].is_dir, listed[1].is_file), ("f", True, True))
        self.assertIsNotNone(listed[1].modified)
        self.assertEqual([f.path for f in self.sb.walk(self.folder)], [".", "a", "a/b", "a/f", "a/l"])
        self.sb.rename(f"{self.folder}/a/f", f"{self.folder}/g")
        self.sb.chmod(f"{self.folder}/g", 0o4711)
        self.assertEqual(self.sb.stat(f"{self.folder}/g").mode, 0o4711)
        self.sb.remove(f"{self.folder}/a", recursive=True)
        self.assertEqual([f.name for f in self.sb.listdir(self.folder)], ["g"])
        with self.assertRaises(FileNotFoundError):
            list(self.sb.walk(f"{self.folder}/missing"))


class DockerCommands(Commands):
    provider = "docker"


class DockerFiles(Files):
    provider = "docker"


class NativeCommands(Commands):
    provider = "native"


class NativeFiles(Files):
    provider = "native"


class KubernetesCommands(Commands):
    provider = "kubernetes"


class KubernetesFiles(Files):
    provider = "kubernetes"


class LocalCommands(Commands):
    provider = "local"


class LocalFiles(Files):
    provider = "local"


del Commands, Files  # they are run by their subclasses


class TestSandboxes(OnProvider):
    provider = "docker"

    def test_list(self) -> None:
        self.assertEqual([s.name for s in self.client.sandboxes()], [self.sb.info.name])
        self.assertEqual(self.client.get(self.sb.info.name).info, self.sb.info)
        with self.assertRaises(fumehood.SandboxNotFoundError) as caught:
            self.client.get("no-such-sandbox")
        self.assertNotIsInstance(caught.exception, fumehood.UnavailableError)

    def test_closed(self) -> None:
        with self.start() as sb:
            self.assertEqual(sb.service("default").run(["echo", "hi"]).stdout.text, "hi\n")
            with self.assertRaises(fumehood.ConfigError):
                sb.service("other")
        sb.close()
        for call in (lambda: sb.run(["true"]), sb.connection, sb.service("default").listdir, lambda: sb.renew(60)):
            with self.assertRaisesRegex(fumehood.ClosedError, f"^sandbox {sb.name}: closed$") as closed:
                call()
            self.assertNotIsInstance(closed.exception, fumehood.UnavailableError)

    def test_removed(self) -> None:
        sb = self.start()
        self.client.get(sb.name).close()
        with self.assertRaises(fumehood.SandboxNotFoundError):
            sb.run(["true"])
        sb.close()

    def test_closed_client(self) -> None:
        client = Client(provider="docker")
        sb = client.start(IMAGE)
        client.close()
        for call in (lambda: sb.run(["true"]), client.sandboxes, client.connect):
            with self.assertRaisesRegex(fumehood.ClosedError, "^client: closed$"):
                call()
        sb.close()

    def test_refused(self) -> None:
        cases: list[tuple[dict[str, Any], str, str]] = [
            ({"network": "bridge"}, "allow-egress", "allow_egress=True"),
            ({"mounts": [fumehood.Mount("/etc", "/x")]}, "allow-host-path", "allow_host_paths=[...]"),
            ({"keep": True, "ttl": 60.0}, "allow-kept", "allow_kept=True"),
            ({"allow_unsafe": True}, "allow-unsafe", "allow_unsafe=True"),
        ]
        core = self.client._async._opened
        assert core
        with Client(str(core.address)) as remote:
            for options, flag, argument in cases:
                for client, advice in ((self.client, f"Client({argument})"), (remote, f"--{flag}")):
                    with self.subTest(options=options, advice=advice), self.assertRaises(PermissionError) as caught:
                        client.start(IMAGE, **options)
                    self.assertIn(advice, str(caught.exception))
                    self.assertEqual(caught.exception.flag, flag)  # type: ignore[attr-defined]
        with Client(provider="docker", max_memory="64MiB", max_sandboxes=1) as limited:
            with self.assertRaisesRegex(fumehood.LimitError, r"Client\(max_memory=...\)"):
                limited.start(IMAGE, limits=fumehood.Limits(memory="65MiB"))
            with limited.start(IMAGE), self.assertRaisesRegex(fumehood.LimitError, r"Client\(max_sandboxes=...\)"):
                limited.start(IMAGE)
        with self.assertRaises(fumehood.FumehoodError) as failed:
            self.client.start("fumehood-test/no-such-image")
        self.assertIn("no-such-image", str(failed.exception))

    def test_options(self) -> None:
        with self.client.start(
            IMAGE,
            env={"A": "b"},
            cwd="/tmp",
            labels={"x": "y"},
            limits=fumehood.Limits(memory="64MiB", cpus=0.5, pids=64),
            shm_size="32MiB",
            tmpfs=["/scratch:size=8m,mode=0750"],
        ) as sb:
            self.assertRegex(sb.run(["df", "-m", "/dev/shm"]).stdout.text, r"\s32\s")
            shown = sb.run(["sh", "-c", "stat -c %a /scratch; df -m /scratch"]).stdout.text
            self.assertRegex(shown, r"^750\n[^\0]*\s8\s")
            self.assertEqual(sb.run(["sh", "-c", "echo $A; pwd"]).stdout.text, "b\n/tmp\n")
            self.assertEqual(dict(sb.info.labels), {"x": "y"})
            self.assertEqual(sb.run(["id", "-u"], user="7").stdout.text, "7\n")
            self.assertEqual(sb.as_user("8").run(["id", "-u"]).stdout.text, "8\n")
            code = "x = bytearray(512 << 20)"
            self.assertEqual(sb.run(["python3", "-c", code]).outcome, "out-of-memory")
            r = sb.run(["sh", "-c", "while :; do :; done"], cpu_time=0.3, timeout=WAITS)
            self.assertEqual((r.outcome, r.exit_code, r.timed_out), ("cpu-time-exceeded", -1, False))
            self.assertGreater(r.usage.user + r.usage.system, 0.3)

    def test_prepare(self) -> None:
        images = self.client.prepare(IMAGE)
        self.assertEqual(list(images), ["default"])
        with self.client.start(IMAGE, images=images) as sb:
            self.assertTrue(sb.run(["true"]).success)
        with self.assertRaises(fumehood.FumehoodError):
            self.client.prepare("fumehood-test/no-such-image")

    def test_renew(self) -> None:
        with Client(provider="docker", allow_kept=True) as client:
            sb = client.start(IMAGE, keep=True, ttl=60)
            try:
                before = sb.info.expires
                sb.renew(600)
                assert before and sb.info.expires
                self.assertGreater((sb.info.expires - before).total_seconds(), 300)
                sb.renew(60)  # never earlier
                self.assertGreater((client.get(sb.info.name).info.expires or before), before)
            finally:
                sb.close()
            self.assertEqual(containers(sb.info.name), [])
        with self.assertRaises(fumehood.UnsupportedError):
            self.sb.renew(60)

    def test_kept_elsewhere(self) -> None:
        with Client(provider="docker", allow_kept=True) as client, Client(provider="docker", allow_kept=True) as other:
            sb = client.start(IMAGE, keep=True, ttl=60)
            try:
                self.assertEqual(other.get(sb.name).info.expires, sb.info.expires)
                sb.renew(600)
                self.assertEqual(other.get(sb.name).info.expires, sb.info.expires)
                with self.assertRaises(fumehood.SandboxNotFoundError) as refused:
                    self.client.get(sb.name)
                self.assertIn("Client(allow_kept=True)", str(refused.exception))
            finally:
                sb.close()
            for each in (client, other):
                with self.assertRaises(fumehood.SandboxNotFoundError):
                    each.get(sb.name)

    def test_progress(self) -> None:
        steps: list[fumehood.Progress] = []
        with self.client.start(IMAGE, progress=steps.append) as sb:
            self.assertTrue(sb.run(["true"]).success)
        with self.assertRaises(fumehood.FumehoodError):
            self.client.prepare("fumehood-test/no-such-image", progress=steps.append)
        self.assertTrue(all(step.image for step in steps))

    def test_wrong_flag(self) -> None:
        with self.assertRaisesRegex(fumehood.ConfigError, "^server: allow_images .* is not a pattern$"):
            Client(allow_images=["["]).connect()

    def test_not_a_client(self) -> None:
        client = Client(binary="/nonexistent")
        with self.assertRaises(fumehood.ConfigError):
            client.connect()
        client.close()


if __name__ == "__main__":
    unittest.main()
