"""The sandbox client."""

from __future__ import annotations

import uuid

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import BaseSandboxClient, Dependencies, Instrumentation, SandboxSession, SandboxSessionState
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot

from .. import AsyncClient
from .._adapter import Clients, Loops
from ._session import FumehoodSandboxClientOptions, FumehoodSandboxSession, FumehoodSandboxSessionState, find, start

# The server serves only this process. What a sandbox may reach is decided by its options and its manifest.
_FLAGS = ("--allow-egress", "--allow-kept", "--allow-host-path", "/")


class FumehoodSandboxClient(BaseSandboxClient[FumehoodSandboxClientOptions]):
    """Creates, resumes and deletes sandboxes of Fumehood.

    Without a client it starts a server for each event loop, which ends with close, or with the process in any case.
    """

    backend_id = "fumehood"

    def __init__(
        self,
        client: AsyncClient | None = None,
        *,
        instrumentation: Instrumentation | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        """Make a client. client is one that the caller closes; its server must allow what sandboxes request."""
        super().__init__()
        self._given = client
        self._loops = Loops(lambda: Clients(_FLAGS))
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies

    async def close(self) -> None:
        """End the server of the running event loop, with all sandboxes that are not kept."""
        await self._loops.running().close()

    def _client(self) -> AsyncClient:
        return self._given or self._loops.running().client()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: FumehoodSandboxClientOptions,
    ) -> SandboxSession:
        """Start a sandbox. Its workspace is made when the session starts."""
        manifest, key = self._validate_manifest_for_create(manifest or Manifest()), uuid.uuid4()
        snapshot = resolve_snapshot(snapshot, str(key))
        state = FumehoodSandboxSessionState(
            session_id=key, snapshot=snapshot, manifest=manifest, exposed_ports=options.exposed_ports, options=options
        )
        session = FumehoodSandboxSession(self._client(), state, await start(self._client(), state))
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """Return a session over the sandbox of a state or, if that is gone, over a new one with its snapshot."""
        if not isinstance(state, FumehoodSandboxSessionState):
            raise TypeError("FumehoodSandboxClient.resume expects a FumehoodSandboxSessionState")
        state.assert_path_grants_rebound()
        found = await find(client := self._client(), state)
        session = FumehoodSandboxSession(client, state, found or await start(client, state))
        session._set_start_state_preserved(found is not None)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Remove the sandbox of a session, also a kept one."""
        if not isinstance(inner := session._inner, FumehoodSandboxSession):
            raise TypeError("FumehoodSandboxClient.delete expects a FumehoodSandboxSession")
        try:
            await inner.shutdown()
        finally:
            await inner.remove()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """Return the state that serialize_session_state has made JSON of."""
        return self._deserialize_session_state_payload(payload, FumehoodSandboxSessionState)
