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
from ._errors import BrokenError as BrokenError
from ._errors import CanceledError as CanceledError
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
from ._errors import StaleError as StaleError
from ._errors import TooLargeError as TooLargeError
from ._errors import UnavailableError as UnavailableError
from ._errors import UnsupportedError as UnsupportedError
from ._errors import UserNotFoundError as UserNotFoundError
from ._errors import VersionError as VersionError
from ._process import AsyncEvents as AsyncEvents
from ._process import AsyncProcess as AsyncProcess
from ._process import AsyncStream as AsyncStream
from ._process import AsyncWalk as AsyncWalk
from ._service import AsyncSandbox as AsyncSandbox
from ._service import AsyncService as AsyncService
from ._service import CommandOptions as CommandOptions
from ._service import Stdin as Stdin
from ._sync import Events as Events
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
