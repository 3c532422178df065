"""Evaluations: the samples of a task, each in its own sandbox, and the runs that they leave."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypedDict

from ._calls import Request
from ._core import Core, Place
from ._errors import ConfigError, ConnectionLostError, ProtocolError, TooLargeError, from_json
from ._files import content
from ._process import Lines
from ._runs import AsyncRunBase, RunInfo, RunSummary, SampleResult
from ._sync import Blocking, Iteration, Journal, blocking, direct
from ._types import JSON, Data
from ._values import Check, StrPath, absolute, called, checked, flag, instance, integer, paths, texts, without_zeros

if TYPE_CHECKING:
    from typing_extensions import Unpack

DEFAULT_RUNS = "fumehood-runs"  # in the working directory, as of the command line
MAX_SAMPLES = 256 << 20  # bytes of the samples of a task that is given as data


@dataclass(frozen=True)
class EvaluationProgress(Data):
    """How many attempts there are in each state, of those that are to be made."""

    total: int = 0
    queued: int = 0
    starting: int = 0
    running: int = 0
    passed: int = 0
    failed: int = 0
    errors: int = 0  # without a score


@dataclass(frozen=True)
class BuildStep(Data):
    """A step of the build of an image, before the first attempt."""

    image: str
    step: str = ""


OnStep = Callable[[EvaluationProgress | BuildStep], None] | None


class ResumeOptions(TypedDict, total=False):
    """The options of a run that is resumed, see AsyncRun.resume."""

    shuffle: int | None
    max_sandboxes: int
    max_starting: int
    retries: int | None
    fail_fast: bool
    retry_errors: bool
    retry_failed: bool
    allow_read: Sequence[StrPath]
    allow_unsafe: bool
    progress: OnStep


class EvaluateOptions(ResumeOptions, total=False):
    """The options of an evaluation, see AsyncClient.evaluate."""

    sample_ids: Sequence[str]
    limit: int
    epochs: int


def _whole(given: object, name: str) -> int | None:
    return None if given is None else integer(given, name)


def _progress(given: OnStep, name: str) -> OnStep:
    called(given, name)
    return given


def _paths(given: object, name: str) -> list[str]:
    return [absolute(each, name) for each in paths(given, name)]


_RESUME_CHECKS: dict[str, Check] = {
    "shuffle": _whole,
    "max_sandboxes": integer,
    "max_starting": integer,
    "retries": _whole,
    "fail_fast": flag,
    "retry_errors": flag,
    "retry_failed": flag,
    "allow_read": _paths,
    "allow_unsafe": flag,
    "progress": _progress,
}
_CHECKS: dict[str, Check] = {**_RESUME_CHECKS, "sample_ids": texts, "limit": integer, "epochs": integer}


def options_of(checks: Mapping[str, Check], options: Mapping[str, Any]) -> tuple[JSON, OnStep]:
    """Return options as the server's JSON, and the function that is called with the progress."""
    given = checked(checks, options)
    progress, shuffle, retries = given.pop("progress", None), given.pop("shuffle", None), given.pop("retries", None)
    again, samples = given.pop("retry_errors", True), given.pop("sample_ids", ())
    body = without_zeros(samples=samples, retries=-1 if retries == 0 else retries, **given)
    if shuffle is not None:
        body["shuffle"] = shuffle
    if not again:
        body["retry_errors"] = False
    return body, progress


class TaskData:
    """A task that is given as data: its files are written into the folder of the new run, from which it is resumed."""

    def __init__(
        self,
        task: Mapping[str, Any],
        samples: Iterable[Mapping[str, Any]] | None,
        files: Mapping[str, Any],
        runs: StrPath,
    ) -> None:
        label = re.sub("[^A-Za-z0-9_]", "-", str(task.get("name", "")))[:60].strip("-") or "task"
        self.name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{label}-{secrets.token_hex(4)}"
        self.folder = Path(absolute(runs, "runs")) / self.name
        self._task, self._samples, self._files = dict(task), samples, files
        self._first = not self.folder.parent.exists()  # of the runs

    def write(self) -> None:
        """Write the task's files. Samples are read one by one, and none is held."""
        source = self.folder / "source"
        try:
            source.mkdir(0o700, parents=True)
            if self._samples is not None:
                named = self._task.get("samples_from") or []
                self._task["samples_from"] = [*([named] if isinstance(named, str) else named), "samples.jsonl"]
                self._write_samples(source / "samples.jsonl")
            for name, given in self._files.items():
                self._write_file(source, name, given)
            # Each JSON is YAML, but for a few characters that only its escapes may stand for.
            text = re.sub(
                "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]", _escaped, _dump(self._task, "task", ascii_only=False)
            )
            (source / "task.yaml").write_bytes(content(text))
        except BaseException:
            self.discard()
            raise

    def _write_samples(self, path: Path) -> None:
        assert self._samples is not None
        size = 0
        with path.open("x", encoding="ascii") as file:
            for number, sample in enumerate(self._samples, 1):
                if not isinstance(sample, Mapping):
                    raise ConfigError(f"samples: number {number} is not a mapping: {type(sample).__name__}")
                size += file.write(_dump(dict(sample), f"samples: number {number}") + "\n")
                if size > MAX_SAMPLES:
                    hint = "give large contents as files, or write several files of samples"
                    raise TooLargeError(f"samples: more than {MAX_SAMPLES} bytes", hint=hint)

    def _write_file(self, source: Path, name: str, given: object) -> None:
        path = PurePosixPath(name)
        if (
            path.is_absolute()
            or not path.parts
            or ".." in path.parts
            or path.parts[0] in ("task.yaml", "samples.jsonl")
        ):
            raise ConfigError(f"files: not a name of a file in the task's folder: {name!r}")
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(given, PathLike):
            if Path(given).is_dir():
                shutil.copytree(given, target)
            else:
                shutil.copy(given, target)
        elif isinstance(given, (str, bytes)):
            target.write_bytes(content(given))
        else:
            raise ConfigError(f"files: {name!r} is neither a text, bytes nor a path: {type(given).__name__}")

    def discard(self) -> None:
        """Remove the files, unless a run has begun in their folder."""
        if not (self.folder / "run.json").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            if self._first:
                with contextlib.suppress(OSError):  # it has other runs by now
                    self.folder.parent.rmdir()


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def _dump(value: object, name: str, ascii_only: bool = True) -> str:
    try:
        return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as e:
        raise ConfigError(f"{name}: it cannot be written as JSON: {e}") from None


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, PathLike):
        return str(Path(value))
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} in the place of a text, a number or a list")


class AsyncEvaluation(Lines[SampleResult]):
    """Runs an evaluation and iterates over its results as they are recorded. It starts when it is first iterated.

    Use it as a context manager, or iterate to the end: leaving it early cancels the evaluation. A connection that
    breaks is opened again where the iteration was, and no result is lost, however slow the iteration is. If the
    evaluation itself fails, the iteration raises, and summary covers what was recorded.
    """

    resumes = True
    _events: Place | None = None
    _begun: Core | None = None
    _from = 0  # events that have been read
    _closed = False

    def __init__(
        self,
        place: Callable[[], Coroutine[Any, Any, Place]],
        body: JSON,
        data: TaskData | None = None,
        progress: OnStep = None,
    ) -> None:
        self._place, self._body, self._data, self._report = place, body, data, progress
        self._run: AsyncRun | None = None
        self.progress = EvaluationProgress()  # as of the last event that was read
        self.recorded = 0  # results that a resumed run had already, and does not repeat
        self.summary: RunSummary | None = None  # of the whole run, when the iteration has ended

    def __del__(self) -> None:
        if self._events is not None and not self._closed and self._core.usable:
            message = (
                f"unclosed evaluation {self._events.path.rpartition('/')[2]}: it runs on until its client is closed"
            )
            warnings.warn(message, ResourceWarning, stacklevel=2)

    @property
    def run(self) -> AsyncRun | None:
        """The run, which is known once the iteration has begun. It can be resumed after the end."""
        return self._run

    async def _begin(self) -> None:
        place = await self._place()
        self._core = self._begun = place.core
        data = self._data
        if data is not None:
            if not place.core.address.path:
                hint = "put the task's files on the server's machine, and name the task by its path"
                raise ConfigError("task: data needs a server of this machine, on a unix socket", hint=hint)
            await place.core.io.made(data.write, lambda _: data.discard())
        started = await place.run("evaluations", self._body)
        self._events = place.below("evaluations", str(started.get("id")))

    def request(self) -> Request:
        """Return the request of the events that are still to come."""
        assert self._events is not None
        return self._events.request("GET", "events", **{"from": self._from})

    async def fetch(self) -> JSON | None:
        """Return the next event. The first call starts the evaluation."""
        if self._events is None:
            await self._begin()
            self._request, self._deadline = self.request(), None
        elif self.summary is not None:
            with contextlib.suppress(ConnectionLostError):  # its connection can be used again
                await self._answer.read() if self._answer else None
            return None
        try:
            line = await super().fetch()
        except ConnectionLostError:
            if self._closed:  # it was canceled meanwhile
                return None
            raise
        if line is None and not self._closed:
            raise ConnectionLostError("evaluation: its events ended before the last one")
        if line is not None and line.get("event") != "heartbeat":
            self._from += 1
        return line

    def parse(self, line: JSON) -> SampleResult | None:
        """Return the result of an event. The other events have none."""
        assert self._events is not None
        event = line.get("event")
        if event == "result":
            return SampleResult.parse(line.get("result"))
        if event == "start":
            self.recorded = int(line.get("recorded") or 0)
            folder = str(line.get("run"))
            info = RunInfo.parse({**line, "run": PurePosixPath(folder).name, "folder": folder, "state": "running"})
            self._run = AsyncRun(self._events, info)
        elif event in ("progress", "building"):
            step = EvaluationProgress.parse(line) if event == "progress" else BuildStep.parse(line)
            if isinstance(step, EvaluationProgress):
                self.progress = step
            if self._report:
                self._report(step)
        elif event in ("end", "error"):
            if line.get("summary") is not None:
                self.summary = RunSummary.parse(line["summary"])
            if event == "error":
                raise from_json(line.get("error"))
            if self.summary is None:
                raise ProtocolError("evaluation: its end has no summary")
        return None

    async def next(self) -> SampleResult | None:
        """Return the next result, or None after the last one."""
        item = await super().next()
        if item is None:
            await self.close()
        return item

    async def cancel(self) -> None:
        """Cancel the evaluation if it runs, and wait until its sandboxes are removed.

        Results that were recorded stay in the run, which can be resumed. A run without any is removed.
        """
        await self.close()

    async def close(self) -> None:
        """Cancel the evaluation if it runs. The same as cancel."""
        if self._closed:
            return
        self._closed = True
        await super().close()
        if self._events is not None:
            await self._core.io.shielded(self._events.remove)
        if self._data is not None and self._begun is not None:
            await self._begun.io.thread(self._data.discard)


class AsyncRun(AsyncRunBase):
    __doc__ = AsyncRunBase.__doc__

    def resume(self, **options: Unpack[ResumeOptions]) -> AsyncEvaluation:
        """Make the attempts that are missing, with the task and samples that the run was started with.

        The task must not have changed. Options, besides those of AsyncClient.evaluate:

        - retry_errors: repeat attempts that ended in an infrastructure error; by default True.
        - retry_failed: repeat attempts with a score below 1, or with an error of the task. New results replace the old
          ones, so that scores are not those of one attempt each.
        """
        body, progress = options_of(_RESUME_CHECKS, options)
        at = Place(self._at.core, self._at.lease, "/v1")

        async def place() -> Place:
            return at

        return AsyncEvaluation(place, {"resume": self.folder, **body}, progress=progress)


def evaluation_of(
    place: Callable[[], Coroutine[Any, Any, Place]],
    task: StrPath | Mapping[str, Any] | None,
    samples: Iterable[Mapping[str, Any]] | None,
    files: Mapping[str, str | bytes | PathLike[str]] | None,
    runs: StrPath,
    resume: StrPath | AsyncRun | Run | None,
    options: EvaluateOptions,
) -> AsyncEvaluation:
    """Return the evaluation of AsyncClient.evaluate."""
    body, progress = options_of(_CHECKS, options)
    instance(samples, (Iterable, type(None)), "samples")
    instance(files, (Mapping, type(None)), "files")
    data = None
    if resume is not None:
        body["resume"] = resume.folder if isinstance(resume, (AsyncRun, Run)) else absolute(resume, "resume")
    elif task is None:
        raise ConfigError("evaluate: neither a task nor a run to resume")
    else:
        body["runs"] = absolute(runs, "runs")
    if isinstance(task, Mapping):
        if resume is not None:
            raise ConfigError("evaluate: a run of a task that was given as data has the task", hint="leave out task")
        data = TaskData(task, samples, files or {}, runs)
        body.update(name=data.name, task=str(data.folder / "source" / "task.yaml"))
    elif samples is not None or files:
        raise ConfigError("evaluate: samples and files belong to a task that is given as data")
    elif task is not None:
        body["task"] = absolute(task, "task")
    return AsyncEvaluation(place, body, data, progress)


class Results(Iteration[SampleResult]):
    """Iterates over the results of a run that are recorded when it begins."""


class Evaluation(Iteration[SampleResult]):
    __doc__ = AsyncEvaluation.__doc__
    if TYPE_CHECKING:
        _async: AsyncEvaluation

    progress: EvaluationProgress  # as of the last event that was read
    recorded: int  # results that a resumed run had already, and does not repeat
    summary: RunSummary | None  # of the whole run, when the iteration has ended

    @property
    def run(self) -> Run | None:
        """The run, which is known once the iteration has begun. It can be resumed after the end."""
        return Run(self._async.run) if self._async.run else None

    cancel = blocking(AsyncEvaluation.cancel)
    close = blocking(AsyncEvaluation.close)


class Run(Blocking[AsyncRun]):
    __doc__ = AsyncRunBase.__doc__

    info: RunInfo  # as it was when it was found
    name: str  # of its folder
    folder: str  # its path on the server's machine

    summary = blocking(AsyncRun.summary)
    pass_at_k = blocking(AsyncRun.pass_at_k)
    group_by = blocking(AsyncRun.group_by)
    results = direct(AsyncRun.results, Results)
    journal = direct(AsyncRun.journal, Journal)
    export = blocking(AsyncRun.export)
    resume = direct(AsyncRun.resume, Evaluation)
