"""The clients of an event loop, each with a server of its own, which environments share."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from .. import AsyncClient

# The server serves only this process, which may read what its user may. What a task may read, and whether it reaches
# anything, is decided for each one by its project.
_FLAGS = ("--allow-egress", "--allow-host-path", "/", "--max-body", "1GiB")


@dataclass
class _Shared:
    """A client and the number of its users."""

    client: AsyncClient
    users: int = 0


# Clients refer to their loop, so that of a loop that ended without a release stays until the next acquire.
_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[bool, _Shared]] = WeakKeyDictionary()


def acquire(allow_unsafe: bool) -> AsyncClient:
    """Return a client of the running event loop. It starts its server when it is first used. See release."""
    for loop in list(_loops):
        if loop.is_closed():
            _loops.pop(loop, None)  # its servers end
    clients = _loops.setdefault(asyncio.get_running_loop(), {})
    if allow_unsafe not in clients:
        flags = ["--allow-unsafe"] if allow_unsafe else []
        clients[allow_unsafe] = _Shared(AsyncClient(arguments=[*_FLAGS, *flags]))
    shared = clients[allow_unsafe]
    shared.users += 1
    return shared.client


async def release(allow_unsafe: bool) -> None:
    """Give up a client. The last user ends its server, with all that it started."""
    clients = _loops[asyncio.get_running_loop()]
    shared = clients[allow_unsafe]
    shared.users -= 1
    if not shared.users:
        del clients[allow_unsafe]
        await asyncio.shield(asyncio.create_task(shared.client.close()))
