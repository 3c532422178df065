"""Code that runs over private copies of workspaces, as benchmarks of coding agents do. Client.open_session opens one.

The names are those of the Go package session.
"""

from ._session import Asset as Asset
from ._session import AsyncCheckpoint as AsyncCheckpoint
from ._session import AsyncRuntime as AsyncRuntime
from ._session import AsyncSession as AsyncSession
from ._session import AsyncSessionStream as AsyncSessionStream
from ._session import Change as Change
from ._session import Entry as Entry
from ._session import ExecuteOptions as ExecuteOptions
from ._session import Input as Input
from ._session import SessionChunk as SessionChunk
from ._session import SessionEnd as SessionEnd
from ._session import SessionEvent as SessionEvent
from ._session import SessionResult as SessionResult
from ._session import SpawnOptions as SpawnOptions
from ._session import WorkspaceLimits as WorkspaceLimits
from ._sync import Checkpoint as Checkpoint
from ._sync import Runtime as Runtime
from ._sync import Session as Session
from ._sync import SessionStream as SessionStream
