"""The conformance suite of pydantic-ai, for root and for another user of the sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

import tests  # noqa: F401
from fumehood import AsyncClient
from fumehood.pydantic_ai import FumehoodWorkspaceBackend
from tests.real import IMAGE


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Suite(WorkspaceBackendSuite):
    options: dict[str, Any]

    @pytest.fixture
    async def client(self) -> AsyncIterator[AsyncClient]:
        async with AsyncClient() as client:
            yield client

    @pytest.fixture
    def fresh_backend(self, client: AsyncClient) -> Callable[[], FumehoodWorkspaceBackend]:
        return lambda: FumehoodWorkspaceBackend(client, IMAGE, options=self.options)

    @pytest.fixture
    def backend(self, fresh_backend: Callable[[], FumehoodWorkspaceBackend]) -> FumehoodWorkspaceBackend:
        return fresh_backend()

    @pytest.fixture
    def attach_backend(self, client: AsyncClient) -> Callable[[WorkspaceRef], FumehoodWorkspaceBackend]:
        return lambda ref: FumehoodWorkspaceBackend(client, ref=ref)

    @pytest.fixture
    def destroy_environment(self, client: AsyncClient) -> Callable[[FumehoodWorkspaceBackend], Awaitable[None]]:
        async def destroy(backend: FumehoodWorkspaceBackend) -> None:
            assert backend.ref
            await (await client.get(backend.ref.id)).close()

        return destroy


class TestRoot(Suite):
    options = {"cwd": "/work"}  # noqa: RUF012


class TestUser(Suite):
    options = {"cwd": "/tmp", "user": "nobody"}  # noqa: RUF012


del Suite
