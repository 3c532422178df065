"""The page docs/compare.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from compare import Seen

TIMES = {
    "start": "start",
    "true": "`true`",
    "python": "`print(1)`",
    "eight": "8 `true` at once",
    "write": "write 1 MiB",
    "read": "read 1 MiB",
    "close": "close",
}
ENDS = {
    "timeout": "a command that runs for longer than its 3 s",
    "left": "its processes that still run 15 s later",
    "oom": "out of memory",
    "exit 124": "`exit 124`",
    "exit 137": "`exit 137`",
    "kill -9 $$": "killed by signal 9",
}
ALLOWED = {
    "network": "network",
    "memory": "memory",
    "pids": "processes",
    "processes": "started of 2,000 processes",
    "capabilities": "capabilities",
    "killed": "left 10 s after SIGKILL of the host's process",
}
HEAD = """# Compared with other packages
Packages that run code in containers for Python programs, doing the same work on the same machine in one run. `make
compare` runs it again and writes this page. It needs an Engine, nothing else that loads the machine, and 15 minutes.

Docker Engine {engine}, Linux {kernel}, {cores} processors, {date}. Each package is used as its documentation
recommends for Docker, with its defaults, in an environment of its own; clients/python/requirements pins the versions.
All have the same image. For swe-rex and smolagents, which keep a server in the sandbox, it has their packages as well.
Calls are measured in {rounds} rounds, in each of which the packages take turns.
"""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number(value: float | None) -> str:
    """Return milliseconds with about two digits."""
    if value is None:
        return "no such call"
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def page(seen: Mapping[str, Seen], machine: Mapping[str, str]) -> str:
    """Return the page of what was seen."""
    compared = [each for each in seen.values() if not each.failed]
    absent = [f"- {name}: {each.failed}" for name, each in seen.items() if each.failed]

    def facts(names: Mapping[str, str]) -> str:
        rows = [[each.about["title"], *(each.facts[name] for name in names)] for each in compared]
        return table(["", *names.values()], rows)

    times = [[each.about["title"], *(number(each.millis(call)) for call in TIMES)] for each in compared]
    used = [[each.about["title"], each.about["version"] or "this version", each.about["mode"]] for each in compared]
    parts = [
        HEAD.format(**machine),
        "## What is compared\n" + table(["package", "version", "used as"], used),
        "## Time of a call\n"
        "Medians in milliseconds. A close takes 10 s where the package asks the container's main program to end,\n"
        "which the image's shell does not.\n\n" + table(["", *TIMES.values()], times),
        "## How commands end\n"
        "What the package's call returns or raises. The command that is too long is `sleep & setsid sleep & sleep`.\n"
        "For the one that needs too much memory, the container was limited to 256 MiB by `docker update`.\n\n"
        + facts(ENDS),
        "## What is allowed by default\n"
        "Settings of the container, and what was tried. A command ran when the process with the package was killed.\n\n"
        + facts(ALLOWED),
    ]
    if absent:
        parts.append("## Left out\n" + "\n".join(absent))
    return "\n\n".join(part.rstrip() for part in parts) + "\n"
