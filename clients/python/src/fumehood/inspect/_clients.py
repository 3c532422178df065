"""The clients of an event loop, each with a server of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeVar

import anyio
from anyio.lowlevel import RunVar

from .. import AsyncClient
from ._config import Plan

T = TypeVar("T")

# The server serves only this process, which may read what its user may. What a project may read, and whether it reaches
# anything, is decided for each one by its FumehoodConfig.
_FLAGS = ("--allow-egress", "--allow-host-path", "/", "--max-body", "1GiB")


@dataclass
class _Loop:
    """The clients of one event loop, by the flags of their servers."""

    clients: dict[tuple[str, ...], AsyncClient] = field(default_factory=dict)
    images: dict[str, dict[str, str]] = field(default_factory=dict)  # prepared images, by the key of the plan
    folders: set[str] = field(default_factory=set)  # of the tasks
    tasks: int = 0  # started configurations


_loops: RunVar[_Loop] = RunVar("fumehood")


def this_loop() -> _Loop:
    """Return what belongs to the running event loop."""
    try:
        return _loops.get()
    except LookupError:
        _loops.set(loop := _Loop())
        return loop


def client_for(plan: Plan) -> AsyncClient:
    """Return the client for a plan. It starts its server when it is first used."""
    clients = this_loop().clients
    if plan.flags not in clients:
        clients[plan.flags] = AsyncClient(arguments=[*_FLAGS, *plan.flags])
    return clients[plan.flags]


async def close_clients() -> None:
    """End the servers of the running event loop, with all sandboxes that are not kept."""
    loop = this_loop()
    clients, loop.clients = list(loop.clients.values()), {}
    loop.images.clear()
    loop.folders.clear()
    with anyio.CancelScope(shield=True):
        for client in clients:
            await client.close()


@contextlib.asynccontextmanager
async def kept_client() -> AsyncIterator[AsyncClient]:
    """Return a client that reaches the kept sandboxes of this user."""
    async with AsyncClient(arguments=["--allow-kept"]) as client:
        yield client
