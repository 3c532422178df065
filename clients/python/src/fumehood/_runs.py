"""Runs: the folders on the server's machine that hold the results of evaluations. The server computes everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, get_args

from ._calls import Request
from ._core import Place
from ._errors import ConfigError, FumehoodError, from_json
from ._files import Target
from ._journal import AsyncJournal
from ._process import Lines
from ._types import JSON, Data, Result
from ._values import integer, items, short, text, whole

Verdict = Literal["passed", "failed", "error"]
Format = Literal["csv", "json", "junit"]
State = Literal["running", "finished", "interrupted", "unreadable"]


@dataclass(frozen=True)
class Score(Data):
    """The score of an attempt."""

    value: float = 0.0  # from 0 to 1; 1 passes
    parts: Mapping[str, float] = field(default_factory=dict)  # named scores, from 0 to 1
    reasons: tuple[str, ...] = ()  # why points were lost

    @property
    def passed(self) -> bool:
        """Whether the score is full."""
        return self.value >= 1


@dataclass(frozen=True)
class Failure(Data):
    """Why an attempt has no score. It is never caused by the program that is evaluated."""

    code: str  # "infrastructure", "config", "limit" or "canceled"
    phase: str = ""  # "start", "solve" or "score"
    text: str = ""

    @classmethod
    def parse(cls, value: object) -> Failure:
        if isinstance(value, dict):
            value = {**value, "code": value.get("class")}
        return super().parse(value)


@dataclass(frozen=True)
class StepResult(Result):
    """How a command of an attempt ended, with the ends of its output, 16 KiB at most."""

    name: str = ""


@dataclass(frozen=True)
class SampleResult(Data):
    """The result of one attempt at a sample: it has a score or an error."""

    sample: str
    epoch: int = 1
    score: Score | None = None
    error: Failure | None = None  # a grader's own failure too: its phase is "score"
    tries: int = 0  # sandboxes that were used; 0 if none was started
    sandbox: str = ""  # the name of the last one
    steps: tuple[StepResult, ...] = ()  # of the last try
    grader: StepResult | None = None  # the grader's command, if there was one
    metadata: Mapping[str, str] = field(default_factory=dict)  # the sample's
    started: datetime | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds: "acquire", "setup", "solve", "score", "remove"

    @property
    def passed(self) -> bool:
        """Whether the attempt has a full score."""
        return self.score is not None and self.score.passed

    @property
    def verdict(self) -> Verdict:
        """The verdict: "passed", "failed" (a score below 1) or "error" (no score)."""
        return "error" if self.score is None else "passed" if self.passed else "failed"


@dataclass(frozen=True)
class Rate(Data):
    """A part of the attempts, with its 95 % confidence interval by Wilson's score method."""

    value: float = 0.0
    low: float = 0.0
    high: float = 0.0
    of: int = 0  # attempts


@dataclass(frozen=True)
class PassAt(Data):
    """An estimate of pass@k: the probability that at least one of k attempts at a sample passes.

    It is without bias (1 - C(n-c, k) / C(n, k)), from attempts that have a score, and averaged over samples.
    """

    k: int
    value: float | None = None  # None if no sample has k attempts with a score
    samples: int = 0  # samples that have them; others do not count


@dataclass(frozen=True)
class Group(Data):
    """A summary of the results that have one value."""

    value: str  # of what they are grouped by; empty if they have none
    recorded: int = 0
    passed: int = 0
    failed: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)  # attempts without a score, by class
    pass_rate: Rate | None = None
    pass_rate_all: Rate | None = None
    mean_score: float | None = None
    pass_at: tuple[PassAt, ...] = ()


@dataclass(frozen=True)
class PhaseTimes(Data):
    """The time that attempts spent in a phase, in seconds."""

    total: float = 0.0
    share: float = 0.0  # of all phases, from 0 to 1
    median: float = 0.0
    max: float = 0.0


@dataclass(frozen=True)
class RunSummary(Data):
    """A summary of the results of a run."""

    run: str  # name of its folder
    task: str = ""
    created: datetime | None = None
    attempts: int = 0  # planned
    recorded: int = 0
    passed: int = 0
    failed: int = 0
    errors: Mapping[str, int] = field(default_factory=dict)  # attempts without a score, by class
    outcomes: Mapping[str, int] = field(default_factory=dict)  # attempts with a score, by outcome of the last step
    retried: int = 0  # attempts that used more than one sandbox
    duration: float = 0.0  # seconds from the run's creation to the end of its last attempt
    pass_rate: Rate | None = None  # of the attempts with a score
    pass_rate_all: Rate | None = None  # of all recorded ones that were not canceled
    mean_score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)  # means of named scores
    phases: Mapping[str, PhaseTimes] = field(default_factory=dict)
    pass_at: tuple[PassAt, ...] = ()
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True)
class RunInfo(Data):
    """A run as it was when it was listed."""

    run: str  # name of its folder
    folder: str = ""  # its path on the server's machine
    task: str = ""
    created: datetime | None = None
    state: State = "running"
    attempts: int = 0  # planned
    recorded: int = 0  # without canceled ones
    pass_rate: float | None = None  # of the attempts with a score
    duration: float = 0.0  # seconds from the run's creation to its last result
    error: FumehoodError | None = None  # why it is unreadable


class AsyncResults(Lines[SampleResult]):
    """Iterates over the results of a run that are recorded when it begins."""

    resumes = True

    def __init__(self, at: Place, folder: str) -> None:
        self._at, self._folder, self._got = at, folder, 0
        super().__init__(at.core, self.request())

    def request(self) -> Request:
        """Return the request of the results that are still to come."""
        return self._at.request("GET", "results", run=self._folder, **{"from": self._got})

    def parse(self, line: JSON) -> SampleResult:
        """Return the result of a line."""
        if line.get("error") is not None:
            raise from_json(line["error"])
        self._got += 1
        return SampleResult.parse(line.get("result"))


class AsyncRunBase:
    """A run of an evaluation. Its results stay in its folder on the server's machine when the client is closed."""

    def __init__(self, place: Place, info: RunInfo) -> None:
        self._at = Place(place.core, place.lease, "/v1/runs")
        self.info = info
        self.name = info.run
        self.folder = info.folder

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def summary(self, *, pass_at: Sequence[int] = (), by: str = "") -> RunSummary:
        """Summarize the results that are recorded so far, as `fumehood runs show --json`.

        pass_at are numbers of attempts, for pass@k. by is what results are grouped by: "sample", "epoch", "outcome" of
        the last step, or "metadata.KEY" of the sample.
        """
        asked = ",".join(str(integer(each, "pass_at")) for each in items(pass_at, int, "pass_at"))
        return RunSummary.parse(await self._at.get("summary", run=self.folder, pass_at=asked, by=text(by, "by")))

    async def pass_at_k(self, k: int) -> PassAt:
        """Estimate pass@k."""
        (found,) = (await self.summary(pass_at=[integer(k, "k")])).pass_at
        return found

    async def group_by(self, by: str, *, pass_at: Sequence[int] = ()) -> tuple[Group, ...]:
        """Return summaries of groups of results, sorted by value. See summary for by."""
        return (await self.summary(by=by, pass_at=pass_at)).groups

    def results(self) -> AsyncResults:
        """Iterate over the results that are recorded so far, in the order in which the attempts ended."""
        return AsyncResults(self._at, self.folder)

    def journal(self, sandbox: str | SampleResult, *, after: int = 0, limit: int = 0) -> AsyncJournal:
        """Iterate over the entries of the journal of a sandbox of the run, as it is now: what was done for an attempt.

        sandbox is a result, which stands for its last sandbox, or a name. after and limit are those of
        AsyncSandbox.journal. The journals stay with the run.
        """
        name = sandbox.sandbox if isinstance(sandbox, SampleResult) else text(sandbox, "sandbox")
        part = {"after": whole(after, "after") or None, "limit": whole(limit, "limit") or None}
        return AsyncJournal(self._at.core, self._at.request("GET", "journal", run=self.folder, sandbox=name, **part))

    async def export(self, format: Format, target: Target) -> None:  # noqa: A002
        """Write the results to a path of this machine or a file object, as `fumehood runs export --format`."""
        if text(format, "format") not in get_args(Format):
            raise ConfigError(f"format: {short(format)} is not one of {', '.join(get_args(Format))}")
        await self._at.core.save(self._at.request("GET", "export", run=self.folder, format=format), target)
