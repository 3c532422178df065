"""Rows of the table that `make bench-adapters` prints: two ways to do the same, in turn, in one run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from time import perf_counter


def timed(work: Callable[[], object]) -> float:
    """Return how long a call takes, in milliseconds."""
    began = perf_counter()
    work()
    return (perf_counter() - began) * 1000


def p99(values: Sequence[float]) -> float:
    """Return the value that 99 of 100 do not exceed."""
    return sorted(values)[max(0, -(-99 * len(values) // 100) - 1)]


def row(what: str, other: Sequence[float], own: Sequence[float], aim: str, unit: str = "ms") -> None:
    """Print a row: median and p99 of the other way and of Fumehood's, in the unit, and how they differ."""
    a, b = statistics.median(other), statistics.median(own)
    cells = [what, *(f"{statistics.median(each):.2f} / {p99(each):.2f} {unit}" for each in (other, own))]
    print(f"| {' | '.join(cells)} | {a / b:.1f}x, {b - a:+.2f} {unit} | {aim} | {len(own)} |", flush=True)


def head(other: str) -> None:
    """Print the head of a table."""
    print(f"\n| p50 / p99 | {other} | Fumehood | | aim | times |\n|---|---|---|---|---|---|", flush=True)
