"""Arguments and values: what is accepted and refused before anything is sent, and how values are shown."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import io
import json
import pydoc
import tempfile
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, cast

import fumehood
from fumehood import (
    AsyncClient,
    AsyncProcess,
    Chunk,
    Client,
    Compose,
    ConfigError,
    End,
    Limits,
    Mount,
    Output,
    Port,
    Process,
    Result,
    Rlimits,
    ServiceInfo,
    session,
)
from fumehood._data import Shown
from fumehood._errors import _PERMITS, from_json
from fumehood._files import writing
from fumehood._flags import FLAGS, serve_flags
from fumehood._sync import blocking_text
from fumehood._types import Decoders
from fumehood._values import parse_duration, parse_size
from fumehood.session import Asset, AsyncRuntime, AsyncSession, Input, WorkspaceLimits
from tests.fake import Fake, Got, answer

GRAMMAR = json.loads((Path(__file__).parent / "grammar.json").read_text("utf-8"))
BOX = {"id": "box", "name": "box", "services": [{"name": "default"}]}
WRONG = object()  # of no type that an argument has


class TestGrammar(unittest.TestCase):
    """The texts are those of the command line: a test in Go reads the same cases."""

    def test_sizes(self) -> None:
        for text, want in GRAMMAR["sizes"].items():
            self.assertEqual(parse_size(text, "x"), want, text)
        for text in [*GRAMMAR["wrong_sizes"], "9" * 1_000_000]:
            with self.assertRaisesRegex(ConfigError, "^memory: .* is not a size", msg=text):
                parse_size(text, "memory")

    def test_durations(self) -> None:
        for text, want in GRAMMAR["durations"].items():
            self.assertEqual(round(parse_duration(text, "x") * 1e9), want, text)
        for text in [*GRAMMAR["wrong_durations"], "1s" * 1_000_000]:
            with self.assertRaisesRegex(ConfigError, "^timeout: .* is not a duration", msg=text):
                parse_duration(text, "timeout")

    def test_fields(self) -> None:
        self.assertEqual(Limits(memory="256MiB", disk="none"), Limits(256 << 20, disk=-1))
        self.assertEqual(Rlimits(cpu="1m", file_size="1g"), Rlimits(60, 1 << 30))
        self.assertEqual(WorkspaceLimits(bytes="1GiB", stored="none"), WorkspaceLimits(1 << 30, -1))
        self.assertEqual(Compose(ready_timeout="1m30s").encode(), {"ready_timeout_ms": 90_000})
        given = Compose(files=[Path("/a/b.yaml"), "c"], dir=Path("/a"), allow_read=(Path("/d"),)).encode()
        self.assertEqual(given, {"files": ["/a/b.yaml", "c"], "dir": "/a", "allow_read": ["/d"]})
        self.assertEqual(Mount(Path("/a"), Path("/b")).encode(), {"host": "/a", "container": "/b"})
        self.assertEqual(Asset(Path("a")), Asset("a"))

    def test_wrong_fields(self) -> None:
        cases: list[tuple[Any, dict[str, Any], str, type[Exception]]] = [
            (Limits, {"memory": 1.5}, "Limits.memory", TypeError),
            (Limits, {"memory": True}, "Limits.memory", TypeError),
            (Limits, {"memory": "lots"}, "Limits.memory", ConfigError),
            (Limits, {"memory": -2}, "Limits.memory", ConfigError),
            (Limits, {"cpus": "1"}, "Limits.cpus", TypeError),
            (Limits, {"cpus": float("nan")}, "Limits.cpus", ConfigError),
            (Limits, {"pids": "64"}, "Limits.pids", TypeError),
            (Rlimits, {"cpu": "1.5s"}, "Rlimits.cpu", ConfigError),
            (Rlimits, {"file_size": "none"}, "Rlimits.file_size", ConfigError),
            (Port, {"container": "80"}, "Port.container", TypeError),
            (Mount, {"host": 1, "container": "/a"}, "Mount.host", TypeError),
            (Mount, {"host": "/a", "container": "/a", "writable": 1}, "Mount.writable", TypeError),
            (Compose, {"files": "compose.yaml"}, "Compose.files", TypeError),
            (Compose, {"env": {"A": 1}}, "Compose.env: the value of A", TypeError),
            (Compose, {"pull_timeout": -1}, "Compose.pull_timeout", ConfigError),
            (Input, {"path": "a", "content": 3}, "Input.content", TypeError),
            (Asset, {"path": 3}, "Asset.path", TypeError),
        ]
        for kind, fields, name, error in cases:
            with self.subTest(kind=kind, fields=fields), self.assertRaisesRegex(error, f"^{name}: "):
                kind(**fields)


def values_of(name: str) -> Any:
    """Return a right value of a required argument."""
    rights = {
        "args": ["true"],
        "data": b"",
        "source": io.BytesIO(b""),
        "target": io.BytesIO(),
        "mode": 0o600,
        "signal": 9,
        "rows": 1,
        "cols": 1,
        "ttl": 60,
        "sandbox_port": 80,
        "environment": "type: local",
    }
    return rights.get(name, "x")


def last(fake: Fake, path: str) -> Any:
    """Return the JSON of the last POST to a path."""
    bodies = [got.body for got in fake.got if got.method == "POST" and got.target.partition("?")[0].endswith(path)]
    return json.loads(bodies[-1])


class TestArguments(unittest.TestCase):
    """No argument of a wrong type is sent, and the error names the argument."""

    UNCHECKED = frozenset({"AsyncSession.resolve.value"})  # any JSON
    GIVEN: ClassVar[
        Mapping[str, Mapping[str, Any]]
    ] = {  # by method: an argument that it needs, though it has a default
        "AsyncClient.build": {"dockerfile": "FROM x"},
        "AsyncClient.evaluate": {"task": {"name": "x"}},
    }

    async def each(self, objects: list[Any]) -> list[str]:
        """Give each argument of each method a wrong value. Return what was not refused."""
        wrong: list[str] = []
        for found in objects:
            for name, method in inspect.getmembers(type(found), inspect.isfunction):
                if not name.startswith("_"):
                    wrong += [
                        f"{type(found).__name__}.{name}.{which}: {problem}"
                        for which, arguments, options in self.calls(method)
                        if (problem := await self.refused(getattr(found, name), which, arguments, options))
                    ]
        return wrong

    def calls(self, method: Callable[..., Any]) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
        _, *parameters = inspect.signature(method).parameters.values()
        required = [p for p in parameters if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
        rights = [values_of(p.name) for p in required]
        for p in parameters:
            if p.kind is p.VAR_KEYWORD:
                kind = str(p.annotation).removeprefix("Unpack[").removesuffix("]")
                for name in (getattr(session, kind, None) or getattr(fumehood, kind)).__annotations__:
                    yield name, rights, {name: WRONG}
            elif p.kind is p.VAR_POSITIONAL:
                yield p.name, [WRONG], {}
            elif p in required:
                at = required.index(p)
                yield p.name, [*rights[:at], WRONG, *rights[at + 1 :]], {}
            elif f"{method.__qualname__}.{p.name}" not in self.UNCHECKED:
                yield p.name, rights, {**self.GIVEN.get(method.__qualname__, {}), p.name: WRONG}

    async def refused(self, method: Callable[..., Any], name: str, arguments: list[Any], options: Any) -> str:
        if f"{method.__qualname__}.{name}" in self.UNCHECKED:
            return ""
        try:
            made = method(*arguments, **options)
            if hasattr(made, "next"):
                made = made.next()
            if inspect.isawaitable(made):
                await made
        except TypeError as e:
            return "" if str(e).startswith(name) else str(e)
        except Exception as e:  # noqa: BLE001  # all are reported
            return repr(e)
        return "no error"

    def test_wrong_types(self) -> None:
        def handler(got: Got) -> bytes:
            return answer({"version": "v", "api": 1, "id": "lease", **({} if "leases" in got.target else BOX)})

        async def main() -> None:
            with Fake(handler) as fake:
                async with AsyncClient(f"unix:{fake.path}") as client:
                    box = await client.start("x")
                    process = AsyncProcess(box._sandbox, fumehood.ProcessInfo("1"))
                    place = await client._place()
                    opened = AsyncSession(place.below("sessions", "s"), {"id": "s"})
                    runtime = AsyncRuntime(opened._at, session.RuntimeInfo("r", ServiceInfo("default")))
                    before = len(fake.got)
                    self.assertEqual(await self.each([client, box, process, opened, runtime]), [])
                    sent = [each.target for each in fake.got[before:] if not each.target.endswith("/hold")]
                    self.assertEqual(sent, [])

        with self.subTest("all"):
            asyncio.run(main())

    def test_blocking(self) -> None:
        body = {"version": "v", "api": 1, "id": "lease", **BOX}
        with Fake(lambda got: answer(body)) as fake, Client(f"unix:{fake.path}") as client:
            box = client.get("box")
            sent = len(fake.got)
            cases: list[tuple[Callable[[], Any], str, type[Exception]]] = [
                (lambda: box.run("ls"), 'args: a list is required, not str: \\["sh", "-c", TEXT\\] runs', TypeError),
                (lambda: box.run(["true", 1]), "args: ", TypeError),  # type: ignore[list-item]
                (lambda: box.run(["true"], env={"A": 1}), "env: the value of A", TypeError),  # type: ignore[arg-type]
                (lambda: box.run(["true"], timeout="abc"), "timeout: 'abc' is not a duration", ConfigError),
                (lambda: box.run(["true"], timeout=float("nan")), "timeout: ", ConfigError),
                (lambda: box.run(["true"], timeout=True), "timeout: ", TypeError),
                (lambda: box.run(["true"], cpu_time="-1s"), "cpu_time: '-1s' is not positive", ConfigError),
                (lambda: box.run(["true"], grace=-1), "grace: -1 is negative", ConfigError),
                (lambda: box.run(["true"], stdout_cap="1 apple"), "stdout_cap: ", ConfigError),
                (lambda: box.write("/a", 3), "data: bytes, a str or a file object", TypeError),  # type: ignore[arg-type]
                (lambda: box.download("/a", io.BytesIO(), max_bytes="x"), "max_bytes: ", ConfigError),
                (lambda: client.start("x", ports=["80"]), "ports: ", TypeError),  # type: ignore[list-item]
                (lambda: client.start("x", ports="80"), "ports: ", TypeError),  # type: ignore[arg-type]
                (lambda: client.start("x", limits=5), "limits: Limits or None", TypeError),  # type: ignore[arg-type]
                (lambda: client.start("x", shm_size="1 bit"), "shm_size: ", ConfigError),
                (lambda: client.start("x", ttl="1 day", keep=True), "ttl: ", ConfigError),
                (lambda: client.start("x", timeout="soon"), "timeout: ", ConfigError),
            ]
            for call, message, kind in cases:
                with self.subTest(message), self.assertRaisesRegex(kind, f"^{message}"):
                    call()
            self.assertEqual([got.target for got in fake.got[sent:] if not got.target.endswith("/hold")], [])

    def test_texts_are_sent_as_numbers(self) -> None:
        body = {"version": "v", "api": 1, "id": "lease", "outcome": "exited", **BOX}
        with Fake(lambda got: answer(body)) as fake, Client(f"unix:{fake.path}") as client:
            box = client.start("x", shm_size="1GiB", ttl="2h", keep=True, limits=Limits(memory="64m"))
            started = last(fake, "/sandboxes")
            self.assertEqual((started["shm_size"], started["ttl_ms"]), (1 << 30, 7_200_000))
            self.assertEqual(started["limits"], {"memory": 64 << 20})
            box.run(["true"], timeout="1m30s", cpu_time="500ms", grace="0", stdout_cap="1k", cwd=Path("/tmp"))
            self.assertEqual(
                last(fake, "/run"),
                {
                    "args": ["true"],
                    "dir": "/tmp",
                    "timeout_ms": 90_000,
                    "cpu_time_ms": 500,
                    "grace_ms": -1,
                    "stdout_cap": 1024,
                },
            )
            box.chmod("/a", 0)
            self.assertEqual(last(fake, "/chmod"), {"path": "/a", "mode": 0})


class TestWrong(unittest.TestCase):
    """What a person easily gets wrong is an error in the words of this package, before anything is sent."""

    def test_wrong(self) -> None:
        def handler(got: Got) -> bytes:
            return answer({"version": "v", "api": 1, "id": "lease", **({} if "leases" in got.target else BOX)})

        with Fake(handler) as fake, Client(f"unix:{fake.path}") as client, client.start("x") as box:
            process = Process(AsyncProcess(box._async._sandbox, fumehood.ProcessInfo("1")))
            before, text = len(fake.got), cast("BinaryIO", io.StringIO())
            wrong: list[tuple[Callable[[], object], str]] = [
                (lambda: box.write("a", "b", mode=755), "mode: 755 is not a file's mode: .* such as 0o755"),
                (lambda: box.chmod("a", 0o17777), "mode: 8191 is not a file's mode"),
                (lambda: box.run([]), "args: no program"),
                (lambda: process.signal(99), "signal: 99 is not the number of a signal"),
                (lambda: box.start(["x"], stdin="a", stdin_open=True), "stdin: it excludes stdin_open"),
                (lambda: box.journal(after=-1), "after: -1 is negative"),
                (lambda: box.download("a", text), "target: opened in text mode"),
                (lambda: client.start("x", keep=True), "ttl: a kept sandbox needs one"),
                (lambda: client.start("x", ttl="1h"), "ttl: a kept sandbox needs one"),
                (lambda: client.build("Dockerfile"), "dockerfile: 'Dockerfile' is no Dockerfile's text .* as a Path"),
            ]
            for call, message in wrong:
                with self.subTest(message), self.assertRaisesRegex(fumehood.ConfigError, message):
                    call()
            with self.assertRaisesRegex(TypeError, "unknown options: timout"):
                box.stream(["x"], timout=1)  # type: ignore[call-arg]
            with self.assertRaisesRegex(AttributeError, "'Sandbox' object has no attribute 'exec'"):
                box.exec(["x"])  # type: ignore[attr-defined]
            self.assertEqual(len(fake.got), before)
            with tempfile.TemporaryDirectory() as folder:
                missing = f"{folder}/missing/file"
                for target, kind in ((missing, FileNotFoundError), (folder, IsADirectoryError)):
                    with self.assertRaises(kind) as caught, writing(target):
                        pass
                    self.assertEqual(caught.exception.filename, target)

    def test_words(self) -> None:
        """Hints of an own server have the words of this package."""
        error = {"class": "config", "message": "x", "hint": "raise the limit (--pids), or start it so (-i)"}
        self.assertEqual(
            from_json(error, own=True).hint, "raise the limit (Limits(pids=...)), or start it so (stdin_open=True)"
        )
        self.assertEqual(from_json(error).hint, error["hint"])


class TestProvider(unittest.TestCase):
    """Where the Docker Engine refuses the server's user, the client warns once, at the caller's line."""

    def test_warning(self) -> None:
        body = {"version": "v", "api": 1, "id": "lease", **BOX, "provider_reason": "this user may not use the socket"}

        async def main(url: str) -> None:
            async with AsyncClient(url) as client:
                await client.start("x")
                await client.start("x")

        def blocking(url: str) -> None:
            with Client(url) as client:
                client.start("x")
                client.start("x")

        def running(url: str) -> None:
            asyncio.run(main(url))

        for work in (blocking, running):
            with (
                self.subTest(work),
                Fake(lambda got: answer(body)) as fake,
                warnings.catch_warnings(record=True) as found,
            ):
                warnings.simplefilter("always", RuntimeWarning)
                work(f"unix:{fake.path}")
                messages = [(str(each.message), each.filename) for each in found if each.category is RuntimeWarning]
                self.assertEqual(len(messages), 1, messages)
                self.assertIn("this user may not use the socket: sandboxes run with the native", messages[0][0])
                self.assertIn('Client(provider="native")', messages[0][0])
                self.assertEqual(messages[0][1], __file__)


class TestServeFlags(unittest.TestCase):
    def test_flags(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            client = Client(
                provider="native",
                allow_egress=True,
                allow_host_paths=[Path(folder), "."],
                allow_images=["python:*"],
                max_sandboxes=3,
                max_memory="1GiB",
                idle="1m",
                pull_secrets=["one", "two"],
                workers_ca=Path("ca.pem"),
                reserve_cpus=0.5,
                arguments=["--strict-prereqs"],
            )
        self.assertEqual(
            client._async._launch[1],
            (
                "--strict-prereqs",
                "--provider=native",
                "--workers-ca=ca.pem",
                "--pull-secrets=one,two",
                "--reserve-cpus=0.5",
                "--allow-egress",
                f"--allow-host-path={folder}",
                f"--allow-host-path={Path.cwd()}",
                "--allow-image=python:*",
                "--max-sandboxes=3",
                f"--max-memory={1 << 30}",
                "--idle=60000000000ns",
            ),
        )
        self.assertEqual(serve_flags({"allow_kept": False, "allow_images": (), "max_body": None}), [])

    def test_wrong(self) -> None:
        cases: list[tuple[str, object, type[Exception]]] = [
            ("provider", "dokcer", ConfigError),
            ("provider", 1, TypeError),
            ("allow_egress", "yes", TypeError),
            ("allow_host_paths", ["/no/such/path"], ConfigError),
            ("allow_host_paths", "/tmp", TypeError),
            ("allow_images", "python", TypeError),
            ("max_sandboxes", 0, ConfigError),
            ("max_sandboxes", "many", TypeError),
            ("max_memory", "much", ConfigError),
            ("idle", 0, ConfigError),
            ("runtime", 1, TypeError),
            ("workers", "https://worker:8420", TypeError),
            ("workers", ["https://one,https://two"], ConfigError),
            ("workers_token_file", True, TypeError),
            ("workers_ca", 1, TypeError),
            ("namespace", 1, TypeError),
            ("guest_image", 1, TypeError),
            ("kube_context", 1, TypeError),
            ("pull_secrets", ["", "two"], ConfigError),
            ("reserve_memory", 0, ConfigError),
            ("reserve_cpus", "one", TypeError),
            ("pending", 0, ConfigError),
            ("arguments", "--allow-egress", TypeError),
            ("env", {"A": 1}, TypeError),
            ("binary", 1, TypeError),
            ("timeout", "x", ConfigError),
            ("token", 1, TypeError),
        ]
        for name, value, kind in cases:
            options: dict[str, Any] = {name: value}
            with self.subTest(name=name, value=value), self.assertRaisesRegex(kind, f"^{name}: "):
                Client(**options)
        for name in (*FLAGS, "binary", "arguments"):
            given: dict[str, Any] = {
                "provider": "docker", "runtime": "runc", "allow_host_paths": ["/"], "allow_images": ["*"],
                "binary": "/x", "arguments": ["--strict-prereqs"], "max_sandboxes": 1, "max_commands": 1,
                "max_memory": 1, "max_body": 1, "max_upload": 1, "idle": 1, "workers": ["unix:/x"],
                "workers_token_file": "t", "workers_ca": "c", "namespace": "n", "kube_context": "c",
                "guest_image": "g", "pull_secrets": ["s"], "reserve_memory": 1, "reserve_cpus": 1, "pending": 1,
            }  # fmt: skip
            with self.subTest(name), self.assertRaisesRegex(ConfigError, f"^{name}: .* url"):
                Client("unix:/x", **{name: given.get(name, True)})

    def test_every_argument(self) -> None:
        arguments = set(inspect.signature(Client).parameters)
        self.assertLessEqual(set(FLAGS), arguments)
        for flag, advice in _PERMITS.items():
            name = advice.partition("Client(")[2].partition("=")[0]
            self.assertEqual(FLAGS[name][0], flag)


class TestShown(unittest.TestCase):
    def test_chunks(self) -> None:
        data = ("€" * 200_000).encode()
        for whole in (data, data[:-1], data[:-1] + b"\xff", b"\xff" + data):
            decoders, texts = Decoders(), []
            for at in range(0, len(whole), 65_521):  # which three does not divide
                texts.append(decoders.decode("stdout", whole[at : at + 65_521]))
            texts += [text for _, text in decoders.rest()]
            self.assertEqual("".join(texts), whole.decode("utf-8", "replace"))

    def test_text(self) -> None:
        self.assertEqual(str(Output("né".encode(), 3)), "né")
        self.assertEqual(f"{Output(b'x', 1)}", "x")

    def test_short(self) -> None:
        much = Output(b"a\n" * (5 << 20), 10 << 20)
        for value in (
            Result("exited", 0, stdout=much, stderr=much),
            Chunk("stdout", much.data),
            End(Result("exited", 0, stdout=much)),
            much,
            Compose("x" * 10_000, files=["f" * 1000] * 1000, env={str(n): "v" * 1000 for n in range(1000)}),
            fumehood.ProcessInfo("1", ("a" * 10_000,) * 1000),
            fumehood.SandboxInfo("i", "n", services=(ServiceInfo("s" * 1000),) * 100, labels={"a" * 9999: "b" * 9999}),
            Input("p" * 1000, b"c" * 1000),
        ):
            shown = repr(value)
            with self.subTest(shown):
                self.assertLessEqual(len(shown), 300)
                self.assertNotIn("\n", shown)
        self.assertEqual(repr(Result("exited", 0)), "Result(outcome='exited', exit_code=0)")
        shown = repr(Result("exited", 3, stdout=Output(b"hi\n", 3)))
        self.assertEqual(shown, "Result(outcome='exited', exit_code=3, stdout=<3 bytes: b'hi\\n'>)")
        self.assertIn("of which the end is kept", repr(Output(b"x", 9)))

    def test_every_type(self) -> None:
        for module in (fumehood, session):
            for name, kind in vars(module).items():
                public = name in fumehood.__all__ or getattr(kind, "__module__", "") == session.__name__
                if isinstance(kind, type) and dataclasses.is_dataclass(kind) and public:
                    self.assertTrue(issubclass(kind, Shown), name)


class TestInterface(unittest.TestCase):
    def test_all(self) -> None:
        public = {
            name
            for name, value in vars(fumehood).items()
            if name == "__version__" or not (name.startswith("_") or isinstance(value, types.ModuleType))
        }
        self.assertEqual(set(fumehood.__all__), public)
        self.assertEqual(list(fumehood.__all__), sorted(fumehood.__all__))

    def test_all_of_session(self) -> None:
        public = {name for name, value in vars(session).items() if getattr(value, "__module__", "") == session.__name__}
        public = {name for name in public if name[0].isupper()}
        self.assertEqual(set(session.__all__), public | {"Phase", "SessionEvent"})
        self.assertEqual(list(session.__all__), sorted(session.__all__))

    def test_help(self) -> None:
        names = [(module, name) for module in (fumehood, session) for name in module.__all__ if name[:5] == "Async"]
        self.assertEqual(len(names), 17)
        for module, asynchronous in names:
            kind, over = getattr(module, asynchronous[5:]), getattr(module, asynchronous)
            text = pydoc.plain(pydoc.render_doc(kind))
            with self.subTest(kind.__name__):
                self.assertNotRegex(text, r"Async|async def|oroutine|await|asyncio|its task")
            for name, method in inspect.getmembers(over, inspect.isfunction):
                if name.startswith("_") or name in ("next", "parse", "fetch", "request", "encode"):
                    continue
                with self.subTest(f"{kind.__name__}.{name}"):
                    found = inspect.signature(getattr(kind, name))
                    self.assertEqual(list(found.parameters), list(inspect.signature(method).parameters))
                    self.assertFalse(inspect.iscoroutinefunction(getattr(kind, name)))
                    self.assertEqual(inspect.getdoc(getattr(kind, name)), blocking_text(inspect.getdoc(method)))
        start = inspect.signature(fumehood.Sandbox.start)
        self.assertEqual(start.return_annotation, "Process")
        for name, returned in (("forward", "Forward"), ("open_port", "PortStream"), ("journal", "Journal")):
            self.assertEqual(inspect.signature(getattr(fumehood.Sandbox, name)).return_annotation, returned)
        self.assertEqual(inspect.signature(Client.evaluate).return_annotation, "Evaluation")
        self.assertEqual(inspect.signature(Client.runs).return_annotation, "list[Run]")
        self.assertEqual(inspect.signature(Client.start).return_annotation, "Sandbox")
        self.assertEqual(fumehood.Sandbox.run.__qualname__, "Service.run")
        self.assertIn("allow_egress", inspect.signature(Client).parameters)


if __name__ == "__main__":
    unittest.main()
