"""Run untrusted code in disposable sandboxes, and learn exactly how each command ended.

    from fumehood import Client

    with Client() as c:
        with c.start(image="python:3.12-slim") as sb:
            r = sb.run(["python3", "-c", "print(6*7)"])
            print(r.outcome, r.exit_code, r.stdout.text)

AsyncClient has the same methods for asyncio and trio. A program's end is a value, see Result. Failures of Fumehood are
exceptions, see FumehoodError.
"""

from ._client import AsyncClient as AsyncClient
from ._client import Client as Client
from ._command import CommandOptions as CommandOptions
from ._command import Stdin as Stdin
from ._copies import DownloadResult as DownloadResult
from ._copies import FolderProgress as FolderProgress
from ._copies import SkippedFile as SkippedFile
from ._copies import UploadResult as UploadResult
from ._errors import BrokenError as BrokenError
from ._errors import CanceledError as CanceledError
from ._errors import ClosedError as ClosedError
from ._errors import ConfigError as ConfigError
from ._errors import ConnectionLostError as ConnectionLostError
from ._errors import DirectoryNotFoundError as DirectoryNotFoundError
from ._errors import ExistsError as ExistsError
from ._errors import ForkError as ForkError
from ._errors import FumehoodError as FumehoodError
from ._errors import InfrastructureError as InfrastructureError
from ._errors import IsDirectoryError as IsDirectoryError
from ._errors import LimitError as LimitError
from ._errors import NotDirectoryError as NotDirectoryError
from ._errors import NotEmptyError as NotEmptyError
from ._errors import NotExecutableError as NotExecutableError
from ._errors import NotFoundError as NotFoundError
from ._errors import NotRegularError as NotRegularError
from ._errors import NotStartedError as NotStartedError
from ._errors import PermissionDeniedError as PermissionDeniedError
from ._errors import ProgramNotFoundError as ProgramNotFoundError
from ._errors import ProtocolError as ProtocolError
from ._errors import RequestTimeoutError as RequestTimeoutError
from ._errors import SandboxNotFoundError as SandboxNotFoundError
from ._errors import StaleError as StaleError
from ._errors import TooLargeError as TooLargeError
from ._errors import UnavailableError as UnavailableError
from ._errors import UnsupportedError as UnsupportedError
from ._errors import UserNotFoundError as UserNotFoundError
from ._errors import VersionError as VersionError
from ._evaluations import AsyncEvaluation as AsyncEvaluation
from ._evaluations import AsyncRun as AsyncRun
from ._evaluations import BuildStep as BuildStep
from ._evaluations import EvaluateOptions as EvaluateOptions
from ._evaluations import Evaluation as Evaluation
from ._evaluations import EvaluationProgress as EvaluationProgress
from ._evaluations import Results as Results
from ._evaluations import ResumeOptions as ResumeOptions
from ._evaluations import Run as Run
from ._flags import Provider as Provider
from ._forward import AsyncForward as AsyncForward
from ._forward import AsyncPortStream as AsyncPortStream
from ._journal import AsyncJournal as AsyncJournal
from ._journal import JournalCommand as JournalCommand
from ._journal import JournalEnd as JournalEnd
from ._journal import JournalEntry as JournalEntry
from ._journal import JournalFile as JournalFile
from ._journal import JournalLost as JournalLost
from ._journal import JournalNetwork as JournalNetwork
from ._journal import JournalPhase as JournalPhase
from ._journal import JournalSandbox as JournalSandbox
from ._journal import JournalService as JournalService
from ._process import AsyncEvents as AsyncEvents
from ._process import AsyncProcess as AsyncProcess
from ._process import AsyncStream as AsyncStream
from ._process import AsyncWalk as AsyncWalk
from ._runs import AsyncResults as AsyncResults
from ._runs import Failure as Failure
from ._runs import Group as Group
from ._runs import PassAt as PassAt
from ._runs import PhaseTimes as PhaseTimes
from ._runs import Rate as Rate
from ._runs import RunInfo as RunInfo
from ._runs import RunSummary as RunSummary
from ._runs import SampleResult as SampleResult
from ._runs import Score as Score
from ._runs import StepResult as StepResult
from ._service import AsyncSandbox as AsyncSandbox
from ._service import AsyncService as AsyncService
from ._sync import Events as Events
from ._sync import Forward as Forward
from ._sync import Journal as Journal
from ._sync import PortStream as PortStream
from ._sync import Process as Process
from ._sync import Sandbox as Sandbox
from ._sync import Service as Service
from ._sync import Stream as Stream
from ._sync import Walk as Walk
from ._types import Chunk as Chunk
from ._types import Compose as Compose
from ._types import ConnectInfo as ConnectInfo
from ._types import End as End
from ._types import Event as Event
from ._types import FileInfo as FileInfo
from ._types import Limits as Limits
from ._types import Mount as Mount
from ._types import Outcome as Outcome
from ._types import Output as Output
from ._types import Port as Port
from ._types import ProcessInfo as ProcessInfo
from ._types import Progress as Progress
from ._types import Result as Result
from ._types import Rlimits as Rlimits
from ._types import SandboxInfo as SandboxInfo
from ._types import ServiceInfo as ServiceInfo
from ._types import Usage as Usage
from ._version import __version__ as __version__

__all__ = [
    "AsyncClient",
    "AsyncEvaluation",
    "AsyncEvents",
    "AsyncForward",
    "AsyncJournal",
    "AsyncPortStream",
    "AsyncProcess",
    "AsyncResults",
    "AsyncRun",
    "AsyncSandbox",
    "AsyncService",
    "AsyncStream",
    "AsyncWalk",
    "BrokenError",
    "BuildStep",
    "CanceledError",
    "Chunk",
    "Client",
    "ClosedError",
    "CommandOptions",
    "Compose",
    "ConfigError",
    "ConnectInfo",
    "ConnectionLostError",
    "DirectoryNotFoundError",
    "DownloadResult",
    "End",
    "EvaluateOptions",
    "Evaluation",
    "EvaluationProgress",
    "Event",
    "Events",
    "ExistsError",
    "Failure",
    "FileInfo",
    "FolderProgress",
    "ForkError",
    "Forward",
    "FumehoodError",
    "Group",
    "InfrastructureError",
    "IsDirectoryError",
    "Journal",
    "JournalCommand",
    "JournalEnd",
    "JournalEntry",
    "JournalFile",
    "JournalLost",
    "JournalNetwork",
    "JournalPhase",
    "JournalSandbox",
    "JournalService",
    "LimitError",
    "Limits",
    "Mount",
    "NotDirectoryError",
    "NotEmptyError",
    "NotExecutableError",
    "NotFoundError",
    "NotRegularError",
    "NotStartedError",
    "Outcome",
    "Output",
    "PassAt",
    "PermissionDeniedError",
    "PhaseTimes",
    "Port",
    "PortStream",
    "Process",
    "ProcessInfo",
    "ProgramNotFoundError",
    "Progress",
    "ProtocolError",
    "Provider",
    "Rate",
    "RequestTimeoutError",
    "Result",
    "Results",
    "ResumeOptions",
    "Rlimits",
    "Run",
    "RunInfo",
    "RunSummary",
    "SampleResult",
    "Sandbox",
    "SandboxInfo",
    "SandboxNotFoundError",
    "Score",
    "Service",
    "ServiceInfo",
    "SkippedFile",
    "StaleError",
    "Stdin",
    "StepResult",
    "Stream",
    "TooLargeError",
    "UnavailableError",
    "UnsupportedError",
    "UploadResult",
    "Usage",
    "UserNotFoundError",
    "VersionError",
    "Walk",
    "__version__",
]
