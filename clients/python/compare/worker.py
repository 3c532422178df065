"""Runs one peer. Each line of standard input is a JSON object with a call and its arguments, each answer is one too.

Usage: python3 worker.py PEER IMAGE LIMIT, the last being the seconds that its commands may run by default.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import metadata
from time import perf_counter
from typing import Any

from peers import PEERS, Peer

PATH = "/tmp/compared"  # of the file that is written and read


class Worker:
    """The calls. Each returns what it saw."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.data = os.urandom(1 << 19).hex().encode()  # 1 MiB of text: not each package takes bytes

    def about(self) -> dict[str, Any]:
        """Describe the peer."""
        kind = type(self.peer)
        return {
            "title": kind.title,
            "mode": kind.mode,
            "files": kind.files,
            "limits": kind.limits,
            "version": version(kind.distribution),
        }

    def start(self) -> None:
        """Start a sandbox."""
        self.peer.start()

    def close(self) -> None:
        """Remove it."""
        self.peer.close()

    def true(self) -> str:
        """Run true."""
        return self.peer.shell("true")

    def python(self) -> None:
        """Run print(1)."""
        if (got := self.peer.python("print(1)").strip()) != "1":
            raise RuntimeError(f"print(1) printed {got!r}")

    def eight(self) -> None:
        """Run true 8 times at once."""
        self.peer.at_once("true", 8)

    def write(self) -> None:
        """Write 1 MiB."""
        self.peer.write(PATH, self.data)

    def read(self) -> None:
        """Read it."""
        if self.peer.read(PATH) != self.data:
            raise RuntimeError("the file has changed")

    def shell(self, command: str, timeout: float | None = None) -> str:
        """Run a command and return how the package says that it ended."""
        return self.peer.shell(command, timeout)

    def printed(self, code: str) -> str:
        """Run Python code and return what it printed."""
        return self.peer.python(code)


def version(distribution: str) -> str:
    """Return the version of an installed package."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""  # Fumehood runs from its sources


def main() -> None:
    """Answer the calls."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # packages print
    worker = Worker(PEERS[sys.argv[1]](sys.argv[2], float(sys.argv[3])))
    for line in sys.stdin:
        asked = json.loads(line)
        call: Callable[..., Any] = getattr(worker, asked.pop("call"))
        began = perf_counter()
        answer: dict[str, Any]
        try:
            answer = {"value": call(**asked)}
        except Exception as e:  # noqa: BLE001 - what a package raises is what is compared
            answer = {"raised": type(e).__name__, "text": str(e)[:300]}
        answer["seconds"] = perf_counter() - began
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
