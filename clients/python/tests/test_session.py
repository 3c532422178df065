"""Sessions, the progress of images and renewals: with a fake server, and with real providers."""

from __future__ import annotations

import asyncio
import base64
import inspect
import io
import json
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any, ClassVar

import fumehood
from fumehood import AsyncClient, Client, Progress, Provider, session
from fumehood._sync import blocking_text
from fumehood.session import Asset, AsyncRuntime, AsyncSession, Input, Runtime, Session, SessionChunk, SessionEnd
from tests.fake import Cut, Fake, Got, answer, failure
from tests.real import BINARY, IMAGE, WAITS, needs

RESULT = {
    "outcome": "exited",
    "exit_code": 3,
    "stdout": {"text": "a", "bytes": 1},
    "setup_ended": False,
    "duration_ms": 2,
}


def lines(*found: dict[str, Any]) -> bytes:
    """Return an answer of lines."""
    body = b"".join(json.dumps(line).encode() + b"\n" for line in found)
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Server:
    """Answers that are given by method and path, and what was asked."""

    def __init__(self, **answers: bytes | Cut) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str | None] = []
        self.ended = threading.Event()

    def __call__(self, got: Got) -> bytes | Cut:
        name = f"{got.method} {got.target}"
        if got.target == "/v1/version":
            return answer({"api": 1})
        if got.target == "/v1/leases":
            return answer({"id": "l"})
        if got.target.endswith("/hold"):
            self.ended.wait(WAITS)
            return failure("stale", 410)
        if got.target == "/v1/leases/l":
            self.ended.set()
            return answer()
        if got.fields["fumehood-lease"] != "l":
            return failure("config")
        self.asked.append((name, json.loads(got.body) if got.body else {}))
        self.keys.append(got.fields.get("idempotency-key"))
        return self.answers.get(name, failure("unavailable", 404))


class TestRequests(unittest.TestCase):
    def client(self, server: Server) -> Client:
        fake = Fake(server)
        self.addCleanup(fake.__exit__)
        client = Client(f"unix:{fake.path}")
        self.addCleanup(client.close)
        return client

    def opened(self, **answers: bytes | Cut) -> tuple[Server, Session]:
        server = Server(
            **{
                "POST /v1/sessions": answer({"id": "s", "kind": "agent", "workspace": "/copy"}),
                "POST /v1/sessions/s/runtimes": answer({"id": "s-1", "service": {"name": "default"}}),
                **answers,
            }
        )
        opened = self.client(server).open_session({"type": "local"}, workspace="work")
        self.addCleanup(opened.close)
        return server, opened

    def test_open(self) -> None:
        server, opened = self.opened()
        self.assertEqual((opened.id, opened.workspace, repr(opened)), ("s", "/copy", "<Session s>"))
        here = str(Path("work").absolute())
        want = {"environment": '{"type": "local"}', "workspace": here, "kind": "agent"}
        self.assertEqual(server.asked, [("POST /v1/sessions", want)])
        self.assertTrue((server.keys[0] or "").startswith("l-"))
        opened.close()
        self.assertEqual(server.asked[-1][0], "DELETE /v1/sessions/s")

    def test_open_options(self) -> None:
        server = Server(**{"POST /v1/sessions": answer({"id": "s"})})
        client = self.client(server)
        small = client.open_session(
            "type: local", snapshot="/snap", kind="evaluation", huid="1", limits=session.WorkspaceLimits(9)
        )
        large = client.open_session(
            Path("/env.yaml"),
            workspace="/w",
            asset_dir=Path("/assets"),
            assets={"a": "x", "b": Asset("y", "z")},
            inputs=[Input("in", "é"), Input("empty", b"", 0o755)],
            allow_read=["/r"],
            allow_unsafe=True,
        )
        first, second = (body for _, body in server.asked)
        for each in (small, large):
            each.close()
        self.assertEqual(
            first,
            {
                "environment": "type: local",
                "snapshot": "/snap",
                "kind": "evaluation",
                "huid": "1",
                "limits": {"bytes": 9},
            },
        )
        self.assertEqual(
            second,
            {
                "file": "/env.yaml",
                "workspace": "/w",
                "kind": "agent",
                "asset_dir": "/assets",
                "assets": {"a": {"path": "x"}, "b": {"path": "y", "save_path": "z"}},
                "inputs": [
                    {"path": "in", "content": base64.b64encode("é".encode()).decode(), "mode": 0o644},
                    {"path": "empty", "content": "", "mode": 0o755},
                ],
                "allow_read": ["/r"],
                "allow_unsafe": True,
            },
        )

    def test_spawn_and_execute(self) -> None:
        runtime = "/v1/sessions/s/runtimes/s-1"
        server, opened = self.opened(
            **{
                f"POST {runtime}/execute": answer(RESULT),
                f"GET {runtime}": answer({"id": "s-1", "service": {"name": "default"}, "exit_code": 3}),
            }
        )
        spawned = opened.spawn(ports=[80, fumehood.Port(81, 8081)], env={"A": "b"}, disable_setup=True)
        ports = [{"container": 80, "protocol": "tcp"}, {"container": 81, "host": 8081, "protocol": "tcp"}]
        self.assertEqual(server.asked[-1][1], {"ports": ports, "env": {"A": "b"}, "disable_setup": True})
        r = spawned.execute("true", stdin=["a", b"b"], timeout=1.5, entry="e")
        self.assertEqual(
            (r.exit_code, r.stdout.text, r.duration, r.timed_out, r.setup_ended), (3, "a", 0.002, False, False)
        )
        self.assertEqual(
            server.asked[-1][1], {"command": "true", "stdin": ["YQ==", "Yg=="], "timeout_ms": 1500, "entry": "e"}
        )
        self.assertTrue(server.keys[-1])
        self.assertEqual(spawned.poll(), 3)
        spawned.cleanup()
        spawned.kill()
        self.assertEqual([name for name, _ in server.asked[-2:]], [f"DELETE {runtime}", f"DELETE {runtime}?kill=true"])
        with self.assertRaises(TypeError):
            spawned.execute("true", tiemout=1)  # type: ignore[call-arg]
        with self.assertRaises(fumehood.ConfigError):
            spawned.execute("true", timeout=0)

    def test_exec_cleans_up(self) -> None:
        server, opened = self.opened()
        with self.assertRaises(fumehood.UnavailableError):
            opened.exec("true")
        self.assertEqual(server.asked[-1][0], "DELETE /v1/sessions/s/runtimes/s-1")

    def test_stream(self) -> None:
        path = "POST /v1/sessions/s/runtimes/s-1/stream"
        chunk = {"type": "output", "phase": "setup", "stream": "stderr", "data": "YQ=="}
        server, opened = self.opened(
            **{path: lines({"type": "heartbeat"}, chunk, {"type": "new"}, {"type": "end", "result": RESULT})}
        )
        with opened.spawn().stream("true") as events:
            first, last = events
        assert isinstance(first, SessionChunk) and isinstance(last, SessionEnd)
        self.assertEqual((first, first.text), (SessionChunk("stderr", b"a", "setup"), "a"))
        self.assertEqual(last.result.exit_code, 3)
        self.assertIsNone(server.keys[-1])
        for body, kind in (
            (lines(chunk, {"type": "error", "error": {"class": "limit", "message": "busy"}}), fumehood.LimitError),
            (lines(chunk), fumehood.ConnectionLostError),
            (Cut(), fumehood.ConnectionLostError),
        ):
            server.answers[path] = body
            server.asked.clear()
            with self.subTest(kind), self.assertRaises(kind), opened.spawn().stream("true") as events:
                list(events)
            self.assertEqual([name for name, _ in server.asked].count(path), 1)  # never repeated

    def test_checkpoint(self) -> None:
        entry = {
            "path": "a",
            "type": "file",
            "mode": "0644",
            "size": 4,
            "mtime": "2026-11-27T14:31:00Z",
            "sha256": "ff",
        }
        found = {"path": "a", "kind": "added", "before": None, "after": entry, "hunks": "+one"}
        server, opened = self.opened(
            **{
                "POST /v1/sessions/s/checkpoints": answer({"number": 1, "snapshot": "/p", "changes": [found]}),
                "GET /v1/sessions/s/checkpoints/1/snapshot": b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsnap",
                "POST /v1/sessions/s/files": answer({"files": {"a": "YQ=="}}),
                "POST /v1/sessions/s/resolve": answer({"value": [1]}),
                "POST /v1/sessions/s/reset": answer(),
            }
        )
        checkpoint = opened.checkpoint()
        self.assertTrue(server.keys[-1])
        self.assertEqual((checkpoint.number, checkpoint.snapshot, checkpoint.archive), (1, "/p", ""))
        (change,) = checkpoint.changes
        assert change.after
        self.assertEqual((change.kind, change.before, change.after.size, change.hunks), ("added", None, 4, "+one"))
        with tempfile.TemporaryDirectory() as folder:
            checkpoint.save(Path(folder, "snap"))
            self.assertEqual(Path(folder, "snap").read_bytes(), b"snap")
        self.assertEqual(opened.read_files("*"), {"a": b"a"})
        self.assertEqual(opened.resolve({"x": 1}), [1])
        opened.reset()

    def test_prepare(self) -> None:
        step = {"type": "progress", "image": "i", "layer": "abc", "status": "Downloading", "current": 1, "total": 2}
        build = {"type": "progress", "image": "w", "status": "Step 1/3", "build": True}
        end = {"type": "end", "images": {"default": "sha256:1"}}
        server = Server(**{"POST /v1/images": lines(step, {"type": "heartbeat"}, build, end)})
        client, steps = self.client(server), list[Progress]()
        self.assertEqual(client.prepare("i", progress=steps.append), {"default": "sha256:1"})
        self.assertEqual(steps, [Progress("i", "Downloading", "abc", 1, 2), Progress("w", "Step 1/3", build=True)])
        self.assertEqual(client.prepare("i"), {"default": "sha256:1"})
        with self.assertRaises(fumehood.UnavailableError):
            client.start("i", progress=steps.append)
        self.assertEqual(server.asked[-1], ("POST /v1/sandboxes", {"image": "i", "images": {"default": "sha256:1"}}))
        self.assertEqual(len(steps), 4)

        def fail(step: Progress) -> None:
            raise KeyError(step.image)

        with self.assertRaises(KeyError):
            client.prepare("i", progress=fail)
        server.answers["POST /v1/images"] = lines({"type": "error", "error": {"class": "config", "message": "no"}})
        with self.assertRaises(fumehood.ConfigError):
            client.prepare("i")

    def test_prepare_repeated(self) -> None:
        first = lines({"type": "progress", "image": "i"})
        server = Server()

        def handler(got: Got) -> bytes | Cut:
            server.answers["POST /v1/images"] = Cut(first) if not server.asked else lines({"type": "end", "images": {}})
            return server(got)

        with Fake(handler) as fake, Client(f"unix:{fake.path}") as client:
            self.assertEqual(client.prepare("i"), {})
        self.assertEqual(len(server.asked), 2)

    def test_renew(self) -> None:
        box = {"id": "x", "name": "x", "kept": True, "services": [{"name": "default"}]}
        renewed = answer({**box, "expires": "2026-11-27T14:31:00Z"})
        server = Server(**{"POST /v1/sandboxes": answer(box), "POST /v1/sandboxes/x/renew": renewed})
        sb = self.client(server).start("i")
        sb.renew(1.5)
        self.assertEqual(server.asked[-1], ("POST /v1/sandboxes/x/renew", {"ttl_ms": 1500}))
        self.assertIsNotNone(sb.info.expires)

    def test_host_paths(self) -> None:
        with self.assertRaises(fumehood.ConfigError):
            Client("unix:/x", allow_host_paths=["/"])
        self.assertEqual(Client(allow_host_paths=["."])._async._launch[1], (f"--allow-host-path={Path.cwd()}",))


class TestNames(unittest.TestCase):
    def test_same_names(self) -> None:
        pairs: list[tuple[type[Any], type[Any]]] = [(Session, AsyncSession), (Runtime, AsyncRuntime)]
        for blocking, asynchronous in pairs:
            names = {name for name in dir(asynchronous) if not name.startswith("_")}
            self.assertEqual({name for name in dir(blocking) if not name.startswith("_")} - {"service"}, names)
            for name in names - {"spawn", "stream", "checkpoint"}:
                one, other = getattr(blocking, name), getattr(asynchronous, name)
                self.assertEqual(inspect.getdoc(one), blocking_text(inspect.getdoc(other)))
                self.assertEqual(str(inspect.signature(one)), blocking_text(str(inspect.signature(other))))


class Sessions(unittest.TestCase):
    """Real sessions. Subclasses name the provider."""

    provider: ClassVar[Provider | None] = None
    spec: ClassVar[dict[str, Any]] = {}
    client: ClassVar[Client]
    folder: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        if not BINARY:
            raise unittest.SkipTest("FUMEHOOD_BINARY names no program: run make test-client")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "work").mkdir()
        (cls.folder / "work" / "a.txt").write_text("one\n")
        (cls.folder / "assets").mkdir()
        (cls.folder / "assets" / "want").write_text("one\ntwo\n")
        needs(cls.provider)
        cls.client = Client(provider=cls.provider, allow_host_paths=[cls.folder])
        cls.addClassCleanup(cls.client.close)

    def open(self, **options: Any) -> Session:
        spec = {**self.spec, "setup": {"commands": ["echo setup; X=1"]}}
        opened = self.client.open_session(spec, **{"workspace": self.folder / "work", **options})
        self.addCleanup(opened.close)
        return opened

    def test_agent(self) -> None:
        opened = self.open(inputs=[Input("in/b", "two")])
        with opened.spawn(env={"A": "spawned"}) as runtime:
            self.assertIsNone(runtime.poll())
            r = runtime.execute('echo two >>a.txt; echo "$A$X"; cat; exit 3', stdin=["in ", b"pieces"])
            self.assertEqual((r.outcome, r.exit_code, r.stdout.text), ("exited", 3, "spawned1\nin pieces"))
            self.assertEqual((r.setup_stdout.text, r.setup_ended, runtime.poll()), ("setup\n", False, 3))
            checkpoint = opened.checkpoint()
            self.assertEqual([(c.path, c.kind) for c in checkpoint.changes], [("a.txt", "changed")])
            self.assertIn("+two", checkpoint.changes[0].hunks)
            saved = io.BytesIO()
            checkpoint.save(saved)
            checkpoint.save(self.folder / "snapshot.tar.gz")
            self.assertEqual(saved.getvalue(), (self.folder / "snapshot.tar.gz").read_bytes())
            runtime.execute("rm a.txt")
            opened.reset()
            self.assertEqual(opened.read_files("**/*"), {"a.txt": b"one\ntwo\n", "in/b": b"two"})
            self.assertEqual(runtime.service.run(["cat", "in/b"]).stdout.text, "two")
        with self.assertRaises(fumehood.SandboxNotFoundError):
            runtime.execute("true")
        opened.close()
        for call in (opened.reset, lambda: runtime.execute("true"), lambda: runtime.service.run(["true"])):
            with self.assertRaisesRegex(fumehood.ClosedError, f"^session {opened.id}: closed$"):
                call()
        graded = self.open(
            workspace=None,
            snapshot=self.folder / "snapshot.tar.gz",
            kind="evaluation",
            asset_dir=self.folder / "assets",
            assets={"want": "want"},
        )
        want = graded.resolve(["{{static:want}}"])[0]
        self.assertTrue(want.endswith("/want"))
        self.assertTrue(graded.exec(f"cmp a.txt {want}").success)
        with self.assertRaises(fumehood.ConfigError):
            graded.checkpoint()

    def test_stream(self) -> None:
        with self.open() as opened, opened.spawn() as runtime:
            with runtime.stream("echo out; echo err >&2; exit 4") as events:
                *chunks, last = events
            assert isinstance(last, SessionEnd)
            text = {(c.phase, c.stream): c.text for c in chunks if isinstance(c, SessionChunk)}
            self.assertEqual(text.pop(("command", "stdout")), "out\n")
            self.assertEqual(text, {("setup", "stdout"): "setup\n", ("command", "stderr"): "err\n"})
            self.assertEqual((last.result.exit_code, last.result.stdout.text), (4, "out\n"))
            with runtime.stream("echo started; exec sleep 100") as events:
                for event in events:
                    if isinstance(event, SessionChunk) and event.phase == "command":
                        with self.assertRaises(fumehood.LimitError):
                            runtime.execute("true")
                        break
            r = runtime.execute("sleep 100", timeout=0.3)  # the command before was killed
            ended = opened.exec("echo never", spawn={"setup": "exit 0"})
            self.assertEqual((ended.exit_code, ended.setup_ended, ended.success), (0, True, False))
            self.assertTrue(r.timed_out)
            with self.assertRaises(fumehood.FumehoodError), runtime.stream("cat", stdin="x") as events:
                list(events)

    def test_refused(self) -> None:
        with self.assertRaises(PermissionError) as caught:
            self.client.open_session(self.spec, workspace="/etc")
        self.assertIn("Client(allow_host_paths=[...])", str(caught.exception))

    def test_asyncio(self) -> None:
        async def main() -> None:
            async with (
                AsyncClient(provider=self.provider, allow_host_paths=[self.folder]) as client,
                await client.open_session(self.spec, workspace=self.folder / "work") as opened,
                await opened.spawn() as runtime,
            ):
                task = asyncio.create_task(runtime.execute("echo >started; exec sleep 100"))
                while not await opened.read_files("started"):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertTrue((await runtime.execute("cat a.txt")).success)
                async with runtime.stream("echo hi") as events:
                    got = [event async for event in events]
                self.assertEqual([e.text for e in got if isinstance(e, SessionChunk)], ["hi\n"])
                self.assertEqual((await opened.exec("exit 5")).exit_code, 5)
                target = io.BytesIO()
                await (await opened.checkpoint()).save(target)
                self.assertTrue(target.getvalue())

        asyncio.run(main())


class TestLocal(Sessions):
    provider = "local"
    spec: ClassVar[dict[str, Any]] = {"type": "local"}


class TestDocker(Sessions):
    provider: ClassVar[Provider | None] = "docker"
    spec: ClassVar[dict[str, Any]] = {"type": "docker", "docker": {"image": IMAGE}}

    def test_uploaded(self) -> None:
        spec = {"type": "docker", "docker": {"image": IMAGE, "mount_workspace": False}}
        with self.client.open_session(spec, workspace=self.folder / "work") as opened:
            self.assertTrue(opened.exec("echo new >new.txt").success)
            self.assertEqual(opened.read_files("new.txt"), {"new.txt": b"new\n"})


class TestNative(TestDocker):
    provider = "native"


del Sessions  # its subclasses run it


if __name__ == "__main__":
    unittest.main()
