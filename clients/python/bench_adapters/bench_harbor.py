"""Harbor: trials with the oracle in its Docker environment and in Fumehood's, in turn, each in a process of its own.

Usage: bench_harbor.py. With the name of an environment it runs one trial instead. The task has a prebuilt image: Harbor
builds with buildx, which Engines may not have.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from time import perf_counter

from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
from harbor.trial.trial import Trial
from table import head, row

ENVIRONMENTS = {"docker": {"type": "docker"}, "fumehood": {"import_path": "fumehood.harbor:FumehoodEnvironment"}}
ROUNDS = 5
TASK = {
    "task.toml": """
schema_version = "1.1"
[task]
name = "bench/hello"
[environment]
docker_image = "fumehood-test/python"
""",
    "instruction.md": "Write hello into /hello.txt.\n",
    "solution/solve.sh": "#!/bin/bash\necho hello >/hello.txt\n",
    "tests/test.sh": "#!/bin/bash\ngrep -cx hello /hello.txt >/logs/verifier/reward.txt\n",
    "environment/note.txt": "",
}


async def trial(environment: str) -> None:
    """Run a trial."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in TASK.items():
            path = Path(folder) / "task" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        config = TrialConfig(
            task=TaskConfig(path=Path(folder) / "task"),
            trials_dir=Path(folder) / "trials",
            agent=AgentConfig(name="oracle"),
            environment=EnvironmentConfig(**ENVIRONMENTS[environment]),
        )
        began = perf_counter()
        result = await (await Trial.create(config)).run()
        passed = perf_counter() - began
    if result.exception_info or result.verifier_result.rewards["reward"] != 1:
        raise RuntimeError(f"{environment}: {result.exception_info or result.verifier_result}")
    print(passed)


def main() -> None:
    """Measure."""
    os.environ.update(HARBOR_TELEMETRY="off", LITELLM_LOCAL_MODEL_COST_MAP="True")
    if len(sys.argv) > 1:
        asyncio.run(trial(sys.argv[1]))
        return
    head("Harbor's Docker environment")
    wall = defaultdict(list)
    for _ in range(ROUNDS):
        for name in ENVIRONMENTS:
            done = subprocess.run([sys.executable, __file__, name], check=True, stdout=subprocess.PIPE, text=True)
            wall[name].append(float(done.stdout.splitlines()[-1]))
    row("a trial with the oracle", wall["docker"], wall["fumehood"], "5x", "s")


if __name__ == "__main__":
    main()
