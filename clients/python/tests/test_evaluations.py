"""Evaluations and their runs, on real servers."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import re
import subprocess
import tempfile
import unittest
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

import fumehood
from fumehood import AsyncClient, AsyncEvaluation, AsyncRun, Client, Evaluation, Run, SampleResult
from fumehood._evaluations import TaskData
from fumehood._runs import Format
from fumehood._sync import blocking_text
from fumehood._version import API
from tests.fake import Cut, Fake, Got, answer
from tests.real import BINARY, IMAGE, Proxy, needs, wait_for

try:
    import trio
except ImportError:
    trio = None  # type: ignore[assignment]

ODD = "\u2028 \ufeff \x7f\x85 \U0001f600 \\u0041"
SLOW: dict[str, Any] = {"name": "slow", "command": "sleep 0.5; echo 42", "expect": {"stdout": {"trimmed": "42"}}}


class Evaluations(unittest.TestCase):
    """Subclasses name the provider and the environment of the samples."""

    provider: ClassVar[str] = ""
    environment: ClassVar[dict[str, Any]] = {"image": IMAGE}
    files: ClassVar[dict[str, str]] = {}
    client: ClassVar[Client]
    folder: ClassVar[Path]

    @classmethod
    def setUpClass(cls) -> None:
        if not BINARY:
            raise unittest.SkipTest("FUMEHOOD_BINARY names no program: run make test-client")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        needs(cls.provider)
        cls.client = Client(arguments=cls.arguments())
        cls.addClassCleanup(cls.client.close)

    @classmethod
    def arguments(cls) -> list[str]:
        return ["--provider", cls.provider, "--allow-host-path", str(cls.folder)]

    def setUp(self) -> None:
        self.runs = self.folder / self.id().rsplit(".", 1)[1]

    def task(self, base: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"environment": self.environment, "limits": {"memory": "64MiB"}, **base, **more}

    def cli(self, *args: str) -> bytes:
        return subprocess.run([BINARY, *args], capture_output=True, check=True).stdout

    def test_results(self) -> None:
        broken = {"id": "no grader", "grader": {"command": "echo no; exit 3", "on_failure": "error"}}
        samples = [
            {"id": "right", "command": "echo 42", "metadata": {"level": "easy", "odd": ODD}},
            {"id": "half", "command": "echo é$RANDOM >&2; echo 41", "metadata": {"level": "hard"}},
        ]
        if self.provider != "local":  # which has no second sandbox
            samples.append({**broken, "command": "true"})
        steps = list[object]()
        task = self.task({"name": "sums", "expect": {"stdout": {"exact": "42\n"}}}, samples=samples)
        evaluation = self.client.evaluate(task, files=self.files, runs=self.runs, epochs=2, progress=steps.append)
        self.assertIsNone(evaluation.run)
        results = {(r.sample, r.epoch): r for r in evaluation}
        self.assertEqual(len(results), 2 * len(samples))
        right, half = results["right", 1], results["half", 2]
        self.assertEqual(
            (right.verdict, right.passed, right.error, right.metadata["level"]), ("passed", True, None, "easy")
        )
        self.assertEqual(
            (right.steps[0].outcome, right.steps[0].stdout.text, right.steps[0].name), ("exited", "42\n", "1")
        )
        self.assertEqual(right.metadata["odd"], ODD)
        assert half.score
        self.assertEqual((half.verdict, half.score.value, half.tries), ("failed", 0.0, 1))
        self.assertIn("expected", half.score.reasons[0])
        self.assertGreater(right.phases["solve"], 0)
        assert evaluation.summary and evaluation.run
        self.assertEqual((evaluation.summary.passed, evaluation.summary.failed), (2, 2))
        self.assertIsInstance(steps[-1], fumehood.EvaluationProgress)
        self.assertEqual((evaluation.progress.passed, evaluation.progress.running), (2, 0))
        if self.provider != "local":
            error = results["no grader", 1].error
            assert error
            self.assertEqual((error.code, error.phase, results["no grader", 1].verdict), ("config", "score", "error"))
            self.assertEqual(evaluation.summary.errors, {"config": 2})
        self.check_run(evaluation.run, results)

    def check_run(self, run: Run, results: dict[tuple[str, int], SampleResult]) -> None:
        """Check that a run has results, and what the command line has of it."""
        self.assertEqual([(r.sample, r.epoch) for r in run.results()], list(results))
        self.assertEqual({(r.sample, r.epoch): r for r in run.results()}, results)
        (found,) = self.client.runs(self.runs)
        self.assertEqual((found.name, found.info.state, found.info.attempts), (run.name, "finished", len(results)))
        self.assertEqual(self.client.get_run(run.folder).info, found.info)
        shown = json.loads(self.cli("runs", "show", run.folder, "--json", "--pass-at=1,2", "--by=metadata.level"))
        summary = run.summary(pass_at=[1, 2], by="metadata.level")
        self.assertEqual([p.value for p in summary.pass_at], [p["value"] for p in shown["pass_at"]])
        self.assertEqual(run.pass_at_k(2), summary.pass_at[1])
        self.assertEqual(run.pass_at_k(3), fumehood.PassAt(3))
        groups = run.group_by("metadata.level")
        self.assertEqual([(g.value, g.passed, g.failed) for g in groups if g.value], [("easy", 2, 0), ("hard", 0, 2)])
        self.assertEqual(
            [(g["value"], g["recorded"]) for g in shown["groups"]], [(g.value, g.recorded) for g in groups]
        )
        self.assertEqual(summary.phases["solve"].total, shown["phases"]["solve"]["total"])
        for result in results.values():
            entries = list(run.journal(result))
            ends = [entry.outcome for entry in entries if isinstance(entry, fumehood.JournalEnd)]
            self.assertEqual(ends[: len(result.steps)], [step.outcome for step in result.steps])
            self.assertEqual(list(run.journal(result.sandbox, after=1, limit=2)), entries[1:3])
        with self.assertRaises(fumehood.ConfigError):
            list(run.journal("../run"))
        formats: tuple[Format, ...] = ("csv", "json", "junit")
        for each in formats:
            target = io.BytesIO()
            run.export(each, target)
            self.assertEqual(target.getvalue(), self.cli("runs", "export", run.folder, "--format", each))
        with self.assertRaises(fumehood.ConfigError):
            run.summary(by="typo")
        with self.assertRaises(fumehood.ConfigError):
            run.pass_at_k(0)

    def check_resumed(self, first: list[SampleResult], run: Run, again: Evaluation, count: int) -> None:
        """Resume a run to its end, and check that no attempt is made twice."""
        done = {r.sample: r for r in first if not r.error}
        rest = list(again)
        self.assertEqual(again.recorded, count - len(rest))
        self.assertEqual({r.sample for r in rest} & done.keys(), set())
        final = {r.sample: r for r in run.results()}
        self.assertEqual(len(final), count)
        self.assertEqual({name: final[name] for name in done}, done)
        self.assertTrue(all(r.passed for r in final.values()))
        self.assertEqual(run.summary().recorded, count)

    def test_cancel_and_resume(self) -> None:
        samples = [{"id": str(n)} for n in range(6)]
        with self.client.evaluate(
            self.task(SLOW), samples=samples, files=self.files, runs=self.runs, max_sandboxes=2
        ) as evaluation:
            first = [next(evaluation)]
            run = evaluation.run
        assert run
        self.assertEqual(list(evaluation), [])
        self.assertEqual(self.client.sandboxes(), [])
        (found,) = self.client.runs(self.runs)
        self.assertEqual(found.info.state, "interrupted")
        self.check_resumed(first, run, self.client.evaluate(resume=found, max_sandboxes=2), 6)
        for again in (run.resume(), self.client.evaluate(resume=found.folder)):
            self.assertEqual((list(again), again.recorded), ([], 6))

    def test_broken_connection(self) -> None:
        self.client.connect()
        opened = self.client._async._opened
        assert opened
        with Proxy(opened.address.path) as proxy, Client(f"unix:{proxy.path}") as client:
            samples = ({"id": str(n)} for n in range(4))
            got = list[str]()
            evaluation = client.evaluate(
                self.task(SLOW), samples=samples, files=self.files, runs=self.runs, max_sandboxes=2
            )
            for result in evaluation:
                got.append(result.sample)
                proxy.drop()
            self.assertEqual(sorted(got), ["0", "1", "2", "3"])

    def test_refused(self) -> None:
        for given in ({"runs": "/etc"}, {"resume": "/etc"}):
            with self.subTest(given), self.assertRaises(PermissionError) as caught:
                list(self.client.evaluate(self.folder, **given))  # type: ignore[arg-type]
            self.assertIn("Client(allow_host_paths=[...])", str(caught.exception))
        with self.assertRaises(PermissionError):
            self.client.runs("/etc")
        with tempfile.TemporaryDirectory() as folder:
            runs = Path(folder, "new", "runs")
            with self.assertRaisesRegex(PermissionError, re.escape(f'"{runs}"')):
                list(self.client.evaluate({"name": "x"}, samples=[{"id": "a"}], runs=runs))
            self.assertFalse(runs.exists())
        evaluation = self.client.evaluate({"name": "x", "typo": 1}, samples=[{"id": "a"}], runs=self.runs)
        with self.assertRaises(fumehood.ConfigError) as failed:
            list(evaluation)
        self.assertIn("typo", str(failed.exception))
        self.assertFalse(self.runs.exists())

    def run_async(self, run: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        async def main() -> None:
            async with AsyncClient(arguments=self.arguments()) as client:
                samples = [{"id": str(n)} for n in range(3)]
                async with client.evaluate(
                    self.task(SLOW), samples=iter(samples), files=self.files, runs=self.runs, max_sandboxes=2
                ) as evaluation:
                    first = await evaluation.__anext__()
                    await evaluation.cancel()
                    self.assertEqual([r async for r in evaluation], [])
                self.assertEqual(await client.sandboxes(), [])
                (found,) = await client.runs(self.runs)
                rest = [r.sample async for r in found.resume()]
                self.assertNotIn(first.sample, rest)
                async with found.results() as results:
                    self.assertEqual(len([r async for r in results]), 3)
                self.assertEqual((await found.pass_at_k(1)).value, 1)

        run(main)

    def test_asyncio(self) -> None:
        self.run_async(lambda main: asyncio.run(main()))

    @unittest.skipIf(trio is None, "trio is not installed")
    def test_trio(self) -> None:
        self.run_async(trio.run)


class TestDocker(Evaluations):
    provider = "docker"


class TestNative(Evaluations):
    provider = "native"


class TestLocal(Evaluations):
    provider = "local"
    environment: ClassVar[dict[str, Any]] = {"file": "env.yaml"}
    files: ClassVar[dict[str, str]] = {"env.yaml": "type: local\n"}

    def task(self, base: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"environment": self.environment, **base, **more}

    def test_many(self) -> None:
        written = 0

        def generate() -> Iterator[dict[str, Any]]:
            nonlocal written
            for n in range(200):
                written += 1
                yield {"id": str(n), "stdin": f"{n}\n", "expect": {"stdout": {"exact": f"{n}\n"}}}

        evaluation = self.client.evaluate(
            self.task({"name": "many", "command": "cat"}), samples=generate(), files=self.files, runs=self.runs
        )
        self.assertEqual(written, 0)
        self.assertEqual(sorted(int(r.sample) for r in evaluation if r.passed), list(range(200)))

    def test_slow_reader(self) -> None:
        samples = ({"id": str(n), "command": "head -c 16000 /dev/zero | tr '\\0' x"} for n in range(40))
        evaluation = self.client.evaluate(
            self.task({"name": "slow-reader"}), samples=samples, files=self.files, runs=self.runs
        )
        results = [next(evaluation)]
        run = evaluation.run
        assert run
        self.assertTrue(wait_for(lambda: self.client.get_run(run.folder).info.state == "finished", 60))
        results.extend(evaluation)
        self.assertEqual(len({r.sample for r in results}), 40)
        self.assertEqual({len(r.steps[0].stdout.data) for r in results}, {16000})

    def test_task_cancelled(self) -> None:
        async def main() -> None:
            async with AsyncClient(arguments=self.arguments()) as client:
                hangs = self.task({"name": "hangs", "command": "sleep 100"})
                evaluation = client.evaluate(hangs, samples=[{"id": "a"}], files=self.files, runs=self.runs)
                task = asyncio.create_task(evaluation.__anext__())
                while evaluation.progress.running == 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(await client.sandboxes(), [])

        asyncio.run(main())

    def test_folder_files(self) -> None:
        (self.folder / "given").mkdir()
        (self.folder / "given" / "in.txt").write_text("42\n")
        task = self.task({"name": "files", "command": "cat in.txt && cat more"})
        sample = {"id": "a", "files": {"in.txt": {"file": "given/in.txt"}, "more": {"file": "bytes"}}}
        task["samples"] = [sample]
        files: dict[str, Any] = {**self.files, "given": self.folder / "given", "bytes": b"\xff"}
        (result,) = self.client.evaluate(task, files=files, runs=self.runs)
        self.assertEqual(result.steps[0].stdout.data, b"42\n\xff")

    def test_task_file(self) -> None:
        project = self.folder / "project"
        project.mkdir()
        (project / "env.yaml").write_text("type: local\n")
        samples = "[{id: a, command: 'true'}, {id: b, command: 'false'}]"
        text = f"{{name: path, environment: {{file: env.yaml}}, samples: {samples}}}"
        (project / "task.yaml").write_text(text)
        evaluation = self.client.evaluate(project, runs=self.runs, sample_ids=["b"], shuffle=0, retries=0)
        self.assertEqual([(r.sample, r.verdict) for r in evaluation], [("b", "failed")])
        assert evaluation.run
        again = evaluation.run.resume(retry_failed=True)
        self.assertEqual([r.sample for r in again], ["b"])
        (project / "task.yaml").write_text(text.replace("false", "true"))
        with self.assertRaises(fumehood.ConfigError):
            list(evaluation.run.resume())


del Evaluations  # its subclasses run it


class TestRequests(unittest.TestCase):
    def test_options(self) -> None:
        client = Client("unix:/x")
        wrong: list[dict[str, Any]] = [{}, {"task": "x", "samples": []}, {"task": "x", "files": {"a": ""}}]
        for given in [*wrong, {"task": {"name": "x"}, "resume": "r"}]:
            with self.subTest(given), self.assertRaises(fumehood.ConfigError):
                client.evaluate(**given)
        with self.assertRaises(TypeError):
            client.evaluate("x", typo=1)  # type: ignore[call-arg]
        options: dict[str, Any] = {
            "sample_ids": ["a"],
            "shuffle": 0,
            "retries": 0,
            "retry_errors": False,
            "allow_read": ["/r"],
        }
        evaluation = client.evaluate("/t", runs="/r", limit=2, max_sandboxes=3, fail_fast=True, **options)
        self.assertEqual(
            evaluation._async._body,
            {
                "task": "/t",
                "runs": "/r",
                "samples": ["a"],
                "shuffle": 0,
                "retries": -1,
                "retry_errors": False,
                "allow_read": ["/r"],
                "limit": 2,
                "max_sandboxes": 3,
                "fail_fast": True,
            },
        )

    def test_data(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for samples, files in (
                ([1], {}),
                ([{"id": float("nan")}], {}),
                ([{"id": object()}], {}),
                (None, {"../x": ""}),
                (None, {"/x": ""}),
                (None, {"task.yaml": ""}),
                (None, {"a": 1}),
            ):
                given: Any = samples
                with self.subTest(samples=samples, files=files), self.assertRaises(fumehood.ConfigError):
                    TaskData({"name": "x"}, given, files, folder).write()
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_endless_samples(self) -> None:
        def endless() -> Iterator[dict[str, str]]:
            while True:
                yield {"id": "x" * 1000}

        with tempfile.TemporaryDirectory() as folder:
            with mock.patch("fumehood._evaluations.MAX_SAMPLES", 1 << 20), self.assertRaises(fumehood.TooLargeError):
                TaskData({"name": "x"}, endless(), {}, folder).write()
            self.assertEqual(list(Path(folder).iterdir()), [])

    def test_events_end_early(self) -> None:
        def handler(got: Got) -> bytes | Cut:
            if got.target in ("/v1/leases", "/v1/version"):
                return answer({"id": "i-1", "api": API})
            if got.target.endswith("/hold"):
                return Cut()
            if got.target == "/v1/evaluations":
                return answer({"id": "e", "ended": False})
            if "/events" in got.target:
                event = (
                    json.dumps({"event": "start", "run": "/runs/r", "task": "t", "attempts": 1, "recorded": 0}) + "\n"
                )
                return f"HTTP/1.1 200 OK\r\nContent-Length: {len(event)}\r\n\r\n{event}".encode()
            return answer()

        with Fake(handler) as fake, Client(f"unix:{fake.path}") as client:
            with self.assertRaises(fumehood.ConnectionLostError):
                list(client.evaluate("/t", runs="/runs"))
            self.assertIn(("DELETE", "/v1/evaluations/e"), [(g.method, g.target) for g in fake.got])

    def test_results_resume(self) -> None:
        lines = [json.dumps({"result": {"sample": str(n), "epoch": 1, "score": {"value": 1}}}) + "\n" for n in range(3)]

        def handler(got: Got) -> bytes | Cut:
            if "/results" not in got.target:
                return (
                    answer({"id": "i-1", "api": API, "run": "r", "folder": "/r"}) if "hold" not in got.target else Cut()
                )
            start = int(got.target.rpartition("from=")[2])
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            chunk = f"{len(lines[start]):x}\r\n{lines[start]}\r\n".encode()
            return head + chunk + b"0\r\n\r\n" if start == 2 else Cut(head + chunk)

        with Fake(handler) as fake, Client(f"unix:{fake.path}") as client:
            self.assertEqual([r.sample for r in client.get_run("/r").results()], ["0", "1", "2"])


class TestNames(unittest.TestCase):
    def test_same_names(self) -> None:
        pairs: list[tuple[type[Any], type[Any]]] = [(Run, AsyncRun)]
        for blocking, asynchronous in pairs:
            names = {name for name in dir(asynchronous) if not name.startswith("_")}
            self.assertEqual({name for name in dir(blocking) if not name.startswith("_")}, names)
            for name in names:
                one, other = getattr(blocking, name), getattr(asynchronous, name)
                self.assertEqual(inspect.getdoc(one), blocking_text(inspect.getdoc(other)))
                self.assertEqual(str(inspect.signature(one)), blocking_text(str(inspect.signature(other))))
        self.assertEqual(Evaluation.__doc__, blocking_text(AsyncEvaluation.__doc__))


if __name__ == "__main__":
    unittest.main()
