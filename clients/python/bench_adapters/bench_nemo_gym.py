"""NeMo Gym: `exec` of a sandbox, and the client's own `run`, in turn in the same sandbox. It has no Docker provider."""

from __future__ import annotations

import asyncio
from time import perf_counter

from nemo_gym.sandbox import AsyncSandbox, SandboxSpec
from table import head, row

from fumehood.nemo_gym import FumehoodProvider

TIMES = 1000


async def calls() -> None:
    """Measure."""
    async with AsyncSandbox(FumehoodProvider(), SandboxSpec(image="fumehood-test/python")) as sandbox:
        await sandbox.start()
        box = sandbox._handle.raw.sandbox
        own, adapter = [], []
        for _ in range(TIMES):
            began = perf_counter()
            await box.run(["bash", "-c", "true"])
            between = perf_counter()
            await sandbox.exec("true")
            own.append((between - began) * 1000)
            adapter.append((perf_counter() - between) * 1000)
        row("NeMo Gym `exec`", own, adapter, "+0.5 ms")


if __name__ == "__main__":
    head("the client's `run`")
    asyncio.run(calls())
