"""Measures the client, beside the docker command run by subprocess. Times are in milliseconds.

Usage: FUMEHOOD_BINARY=bin/fumehood PYTHONPATH=clients/python/src python3 clients/python/bench.py [IMAGE]. It prints a
line of JSON for each measurement, with the 50th and 99th percentiles.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fumehood import AsyncClient, Client, Sandbox

SIZE = 50 << 20
IN_FLIGHT = 64


def report(name: str, times: list[float], **more: float) -> None:
    """Print a measurement."""
    times = sorted(times)
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    line = {"name": name, "n": len(times), "p50_ms": p50 * 1e3, "p99_ms": p99 * 1e3, **more}
    print(json.dumps({k: round(v, 3) if isinstance(v, float) else v for k, v in line.items()}), flush=True)  # noqa: T201


def measure(name: str, n: int, work: Callable[[], object]) -> None:
    """Measure a call, after a tenth as many that are not counted."""
    times = []
    for i in range(n + n // 10):
        began = time.perf_counter()
        work()
        if i >= n // 10:
            times.append(time.perf_counter() - began)
    report(name, times)


def docker(*arguments: str) -> None:
    """Run the docker command."""
    subprocess.run(["docker", *arguments], check=True, capture_output=True)


def cold(image: str) -> None:
    """Measure from nothing to a first result: server, sandbox, command."""
    times = []
    for _ in range(10):
        began = time.perf_counter()
        with Client() as client, client.start(image) as sb:
            sb.run(["true"])
            times.append(time.perf_counter() - began)
    report("cold: server, sandbox, first result", times)


def commands(sb: Sandbox, container: str) -> None:
    """Measure short commands."""
    measure("run true", 500, lambda: sb.run(["true"]))
    measure("docker exec true", 20, lambda: docker("exec", container, "true"))


def files(sb: Sandbox, container: str) -> None:
    """Measure a large file, both ways."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "data")
        here.write_bytes(os.urandom(SIZE))
        measure("upload 50 MiB", 10, lambda: sb.upload(here, "/tmp/data"))
        measure("download 50 MiB", 10, lambda: sb.download("/tmp/data", Path(folder, "back")))
        measure("read 50 MiB", 10, lambda: sb.download("/tmp/data", io.BytesIO()))
        measure("docker cp 50 MiB in", 5, lambda: docker("cp", str(here), f"{container}:/var/tmp/data"))
        measure(
            "docker cp 50 MiB out", 5, lambda: docker("cp", f"{container}:/var/tmp/data", str(Path(folder, "back")))
        )


async def many(image: str) -> None:
    """Measure commands in flight."""
    async with AsyncClient() as client, await client.start(image) as sb:
        limit, times = asyncio.Semaphore(IN_FLIGHT), []

        async def one() -> None:
            async with limit:
                began = time.perf_counter()
                await sb.run(["true"])
                times.append(time.perf_counter() - began)

        await asyncio.gather(*(one() for _ in range(IN_FLIGHT)))
        times.clear()
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(512)))
        report(f"async run true, {IN_FLIGHT} in flight", times, rate=512 / (time.perf_counter() - began))


def main(image: str) -> None:
    """Measure everything."""
    with Client() as client:
        with client.start(image) as sb:
            container = sb.service_info.container
            commands(sb, container)
        docker("run", "-d", "--rm", "--name", f"fumehood-bench-{os.getpid()}", "--init", image, "sleep", "600")
        try:
            with client.start(image) as sb:
                files(sb, f"fumehood-bench-{os.getpid()}")
        finally:
            docker("rm", "-f", f"fumehood-bench-{os.getpid()}")
    asyncio.run(many(image))
    cold(image)
    measure("docker run true", 10, lambda: docker("run", "--rm", image, "true"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "fumehood-test/python")
