"""mini-swe-agent: its Docker environment, which uses the program docker, and Fumehood's, in turn."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import defaultdict
from functools import partial
from time import perf_counter
from typing import Any

FOLDER = tempfile.TemporaryDirectory()  # the package writes into one when it is imported
os.environ.update(MSWEA_SILENT_STARTUP="1", MSWEA_GLOBAL_CONFIG_DIR=FOLDER.name)

from minisweagent.environments.docker import DockerEnvironment  # noqa: E402
from table import head, row, timed  # noqa: E402

from fumehood.mini_swe_agent import FumehoodEnvironment  # noqa: E402

ENVIRONMENTS: dict[str, Any] = {"docker": DockerEnvironment, "fumehood": FumehoodEnvironment}
ROUNDS, COMMANDS = 10, 50


def end(environment: Any) -> None:
    """Remove an environment. That of Docker does it in the background, and waits 10 seconds before."""
    if isinstance(environment, DockerEnvironment):
        container, environment.container_id = environment.container_id, None
        subprocess.run(["docker", "rm", "-f", container], check=True, capture_output=True)
    else:
        environment.cleanup()


def main() -> None:
    """Measure."""
    seen: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in ENVIRONMENTS}
    image = "fumehood-test/python"
    with FumehoodEnvironment(image=image):  # keeps the server that all of them share
        for _ in range(ROUNDS):
            for name, kind in ENVIRONMENTS.items():
                began = perf_counter()
                environment = kind(image=image)
                seen[name]["start"].append((perf_counter() - began) * 1000)
                for _ in range(COMMANDS):
                    seen[name]["execute"].append(timed(partial(environment.execute, {"command": "true"})))
                seen[name]["remove"].append(timed(partial(end, environment)))
    head("mini-swe-agent's Docker environment")
    for call, aim in {"execute": "15x", "start": "2x", "remove": "1x"}.items():
        row(f"mini-swe-agent {call}", seen["docker"][call], seen["fumehood"][call], aim)


if __name__ == "__main__":
    main()
