"""Tests the server against its OpenAPI document with schemathesis.

Usage: python run.py PROVIDER SECONDS SEED, with the tools of requirements/schemathesis.txt. It starts bin/fumehood,
runs schemathesis with the hooks of hooks.py, and stops the server. It fails on a status of 500 or more, on an answer
that the document does not have, and if an operation never succeeded. The local provider runs in a container, so that no
request reaches the files and processes of this machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
BINARY = ROOT / "bin" / "fumehood"
DOCUMENT = ROOT / "docs" / "openapi.json"
IMAGE = "fumehood-test/busybox"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,lines_conformance"
)
# Operations that cannot succeed: only kept sandboxes have logs and expire, schemathesis upgrades no connection, and
# local sandboxes have no image, no connection and no processes of their own that could all be killed.
NEVER = {
    "docker": {"get-logs", "renew-sandbox", "open-port"},
    "local": {"get-logs", "renew-sandbox", "open-port", "prepare-images", "get-connection", "kill-all"},
}
ENVIRONMENTS = {"local": "type: local\n", "docker": f"{{type: docker, docker: {{image: {IMAGE}}}}}\n"}


def new_project(folder: Path, provider: str) -> Path:
    """Make the workspace and the task of sessions and evaluations, which the server's user may read and write."""
    (folder / "work").mkdir(parents=True)
    (folder / "runs").mkdir()
    (folder / "work" / "file").write_text("content")
    (folder / "env.yaml").write_text(ENVIRONMENTS[provider])
    (folder / "task.yaml").write_text(
        "{name: schema, environment: {file: env.yaml}, "
        "samples: [{id: right, command: 'true'}, {id: wrong, command: 'false'}]}"
    )
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o644)
    return folder


def server_command(provider: str, project: Path) -> list[str]:
    """Return the command line of the server. Its address has a free port."""
    serve = ["--provider", provider, "serve", "--allow-host-path", str(project)]
    serve += ["--listen", "127.0.0.1:0", "--log-level", "debug"]
    serve += ["--default-image", IMAGE, "--allow-image", "fumehood-test/*"]
    if provider != "local":
        return [str(BINARY), *serve, "--max-memory", "256MiB"]
    return [
        *("docker", "run", "--rm", "--interactive", "--name", f"fumehood-schema-{os.getpid()}", "--network", "host"),
        *("--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--init"),
        *("--pids-limit", "1000", "--memory", "1g", "--read-only", "--tmpfs", "/tmp:exec,mode=1777,size=512m"),
        *("--env", "HOME=/tmp", "--volume", f"{BINARY}:/fumehood:ro"),
        *("--volume", f"{project}:{project}", IMAGE, "/fumehood", *serve),
    ]


class Log(threading.Thread):
    """Copies the server's messages to a file, and finds its address."""

    def __init__(self, source: IO[str], file: Path) -> None:
        super().__init__()
        self.source, self.file = source, file
        self.address = ""
        self.serving = threading.Event()
        self.panics = 0
        self.start()

    def run(self) -> None:
        """Copy until the server closes its standard error."""
        with self.file.open("w") as out:
            for line in self.source:
                out.write(line)
                out.flush()
                self.panics += "panic" in line
                if "serving " in line and not self.address:
                    self.address = line.rpartition("serving ")[2].strip()
                    self.serving.set()
        self.serving.set()


def unreached(provider: str, counts: dict[str, dict[str, int]]) -> list[str]:
    """Return the operations of the document that never succeeded."""
    paths = json.loads(DOCUMENT.read_text())["paths"].values()
    operations = {operation["operationId"] for path in paths for operation in path.values()}
    return sorted(
        name
        for name in operations - NEVER[provider]
        if not any(status.startswith("2") for status in counts.get(name, {}))
    )


def test(provider: str, seconds: str, seed: str, work: Path) -> int:
    """Run schemathesis against a new server, and return the exit code."""
    counts_file, log_file = work / "counts.json", work / "server.log"
    project = new_project(work / "project", provider)
    work.chmod(0o755)
    with subprocess.Popen(
        server_command(provider, project),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        log = Log(server.stderr, log_file)
        try:
            log.serving.wait(60)
            if not log.address:
                print(f"schema: no server: {log_file.read_text()}", file=sys.stderr)
                return 1
            url, token = f"http://{log.address}", server.stdout.readline().strip()
            code = subprocess.run(
                [
                    *(str(Path(sys.executable).with_name("schemathesis")), "run", str(DOCUMENT), "--url", url),
                    *("--header", f"Authorization: Bearer {token}", "--checks", CHECKS, "--seed", seed),
                    *("--max-time", seconds, "--request-timeout", "20", "--generation-database", "none"),
                    *("--warnings", "off", "--no-color", "--continue-on-failure"),
                    *os.environ.get("SCHEMATHESIS_FLAGS", "").split(),
                ],
                cwd=work,
                env={
                    **os.environ,
                    "SCHEMATHESIS_HOOKS": "hooks",
                    "PYTHONPATH": str(Path(__file__).parent),
                    "SCHEMA_DOCUMENT": str(DOCUMENT),
                    "SCHEMA_PROJECT": str(project),
                    "SCHEMA_ENVIRONMENT": ENVIRONMENTS[provider],
                    "SCHEMA_URL": url,
                    "SCHEMA_TOKEN": token,
                    "SCHEMA_COUNTS": str(counts_file),
                },
            ).returncode
        finally:
            server.send_signal(signal.SIGTERM)
            ended = server.wait(60)
            log.join()
    counts: dict[str, dict[str, int]] = json.loads(counts_file.read_text()) if counts_file.exists() else {}
    for name, statuses in sorted(counts.items()):
        print(f"schema: {name:18} {' '.join(f'{status}:{n}' for status, n in sorted(statuses.items()))}")
    if missing := unreached(provider, counts):
        code = code or 1
        print(f"schema: these operations never succeeded: {', '.join(missing)}", file=sys.stderr)
    if ended != 0 or log.panics:
        code = code or 1
        print(f"schema: the server ended with {ended} and logged {log.panics} panics", file=sys.stderr)
    return code


def main() -> int:
    """Run the test that the command line describes."""
    provider, seconds, seed = sys.argv[1:]
    print(f"schema: provider {provider}, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fumehood-schema-") as work:
        return test(provider, seconds, seed, Path(work))


if __name__ == "__main__":
    sys.exit(main())
