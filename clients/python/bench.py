"""Measures the client for `make bench`, which compares it with the library and docker.

Usage: python3 bench.py ADDRESS IMAGE KEPT, the last being the name of a kept sandbox. Each line of standard input is a
JSON object: call, a method of Bench, and args, its keyword arguments. Each answer is one too: ns, how long the call
took, and size, the bytes that it returned. The program ends with its standard input.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter_ns
from typing import TypeVar

from fumehood import AsyncClient, Client, Result, Sandbox

T = TypeVar("T")
TRUE = ["true"]


def timed(work: Callable[[], T]) -> tuple[int, T]:
    """Return how long a call took, in nanoseconds, and its result."""
    began = perf_counter_ns()
    result = work()
    return perf_counter_ns() - began, result


def size_of(result: Result) -> int:
    """Return the bytes that a command printed. It must have succeeded."""
    if not result.success:
        raise RuntimeError(f"{result.outcome} with code {result.exit_code}: {result.stderr.text}")
    return result.stdout.total + result.stderr.total


class Bench:
    """The calls. Each returns a time and a size."""

    def __init__(self, address: str, image: str, kept: str) -> None:
        self.address, self.image, self.kept = address, image, kept
        self.client = Client(address)
        self.box = self.client.get(kept)
        self.content = b""
        self.holder: Client | None = None

    def close(self) -> None:
        """Remove all sandboxes."""
        self.release()
        self.client.close()

    def start(self) -> tuple[int, int]:
        """Start the sandbox that the next calls use."""
        ns, self.box = timed(lambda: self.client.start(self.image))
        return ns, 0

    def remove(self) -> tuple[int, int]:
        """Remove it."""
        return timed(self.box.close)[0], 0

    def run(self, command: list[str]) -> tuple[int, int]:
        """Run a command."""
        ns, result = timed(lambda: self.box.run(command))
        return ns, size_of(result)

    def write(self, path: str, size: int) -> tuple[int, int]:
        """Write a file."""
        if len(self.content) != size:
            self.content = os.urandom(size)
        return timed(lambda: self.box.write(path, self.content))[0], 0

    def read(self, path: str) -> tuple[int, int]:
        """Read a file."""
        ns, content = timed(lambda: self.box.read(path))
        return ns, len(content)

    def crowd(self, runs: int, at_once: int) -> tuple[int, int]:
        """Run many commands over asyncio, in a new sandbox and on connections that are open."""
        return asyncio.run(self._crowd(runs, at_once)), 0

    async def _crowd(self, runs: int, at_once: int) -> int:
        async with AsyncClient(self.address) as client, await client.start(self.image) as box:
            size_of(await box.run(TRUE))
            await asyncio.gather(*(client.get(box.info.id) for _ in range(at_once)))  # each opens a connection
            tokens = iter(range(runs))

            async def worker() -> None:
                for _ in tokens:
                    size_of(await box.run(TRUE))

            began = perf_counter_ns()
            await asyncio.gather(*(worker() for _ in range(at_once)))
            return perf_counter_ns() - began

    def once(self) -> tuple[int, int]:
        """Start a server, a sandbox and a command, and remove all of it."""

        def whole() -> None:
            with Client(env={}) as client, client.start(self.image) as box:
                size_of(box.run(TRUE))

        return timed(whole)[0], 0

    def cold(self) -> tuple[int, int]:
        """Start a server, a sandbox and a command. What removes them is not measured."""
        began = perf_counter_ns()
        with Client(env={}) as client, client.start(self.image) as box:
            size_of(box.run(TRUE))
            return perf_counter_ns() - began, 0

    def warm(self) -> tuple[int, int]:
        """Connect to a server that has a sandbox, and run a command in it."""
        began = perf_counter_ns()
        with Client(self.address) as client:
            size_of(client.get(self.kept).run(TRUE))
            return perf_counter_ns() - began, 0

    def hold(self, address: str, count: int, at_once: int) -> tuple[int, int]:
        """Start sandboxes at another server, and run a command in each."""
        client = self.holder = Client(address)

        def one(_: int) -> Sandbox:
            box = client.start(self.image)
            size_of(box.run(TRUE))
            return box

        with ThreadPoolExecutor(at_once) as pool:
            return timed(lambda: list(pool.map(one, range(count))))[0], 0

    def release(self) -> tuple[int, int]:
        """Remove them."""
        if self.holder:
            self.holder.close()
            self.holder = None
        return 0, 0


def main(address: str, image: str, kept: str) -> None:
    """Answer calls."""
    bench = Bench(address, image, kept)
    try:
        for line in sys.stdin:
            question = json.loads(line)
            ns, size = getattr(bench, question["call"])(**question.get("args") or {})
            sys.stdout.write(json.dumps({"ns": ns, "size": size}) + "\n")
            sys.stdout.flush()
    finally:
        bench.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
