"""pydantic-ai: `run` of a workspace, and the client's own, in turn in the same sandbox."""

from __future__ import annotations

import asyncio
from time import perf_counter

from pydantic_ai.workspaces import WorkspaceRef
from table import head, row

from fumehood import AsyncClient
from fumehood.pydantic_ai import PROVIDER, FumehoodWorkspaceBackend

TIMES = 1000
TRUE = ["/bin/sh", "-c", "true"]


async def calls() -> None:
    """Measure."""
    async with AsyncClient() as client, await client.start("fumehood-test/python") as box:
        workspace = FumehoodWorkspaceBackend(client, ref=WorkspaceRef(provider=PROVIDER, id=box.info.name))
        own, adapter = [], []
        for _ in range(TIMES):
            began = perf_counter()
            await box.run(TRUE)
            between = perf_counter()
            await workspace.run(TRUE)
            own.append((between - began) * 1000)
            adapter.append((perf_counter() - between) * 1000)
        row("pydantic-ai `run`", own, adapter, "+0.5 ms")


if __name__ == "__main__":
    head("the client's `run`")
    asyncio.run(calls())
