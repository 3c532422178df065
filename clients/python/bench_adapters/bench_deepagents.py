"""deepagents: `execute`, and the client's own `run`, in turn in the same sandbox."""

from __future__ import annotations

from table import head, row, timed

from fumehood import Client
from fumehood.deepagents import FumehoodSandbox

TIMES = 1000


def main() -> None:
    """Measure."""
    head("the client's `run`")
    with Client() as client, client.start("fumehood-test/python") as box:
        sandbox = FumehoodSandbox(box)
        own, adapter = [], []
        for _ in range(TIMES):
            own.append(timed(lambda: box.run(["/bin/sh", "-c", "true"])))
            adapter.append(timed(lambda: sandbox.execute("true")))
        row("deepagents `execute`", own, adapter, "+0.5 ms")


if __name__ == "__main__":
    main()
