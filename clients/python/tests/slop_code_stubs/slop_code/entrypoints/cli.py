"""A command line that prints its arguments and which runtime is registered for docker."""

import sys

from ..execution.runtime import EXEC_RUNTIME_REGISTRY


def app() -> None:
    print(*sys.argv[1:], EXEC_RUNTIME_REGISTRY["docker"].__name__)  # noqa: T201
