"""Hooks that let requests of schemathesis reach leases, sandboxes and commands that exist.

Most generated values are replaced: ids by those of live objects, paths by those of files that exist, programs by short
ones. The choice depends on the generated request alone, so that the same request is always changed in the same way.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import io
import json
import os
import random
import tarfile
import threading
import time
import zlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import schemathesis
from hypothesis import strategies as st

PROJECT = Path(os.environ["SCHEMA_PROJECT"])
ENVIRONMENT = os.environ["SCHEMA_ENVIRONMENT"]
ADDRESS = urlsplit(os.environ["SCHEMA_URL"]).netloc
TOKEN = os.environ["SCHEMA_TOKEN"]
# Milliseconds. A request that waits for a command takes no longer.
SHORT = 300
SCRIPTS = ("true", "echo text", "echo err >&2; exit 3", "sleep 0.1", "missing")
PROGRAMS = (["true"], ["cat"], ["echo", "text"], ["sh", "-c", "echo err >&2; exit 3"], ["sleep", "0.1"], ["missing"])
FILES = ("seed/file", "seed", "seed/link", "new", "new/below", ".", "missing")
# What a client may ask for without a flag of the server.
PERMITTED = {"env", "labels", "dir", "user", "limits", "image"}


def call(method: str, path: str, body: object = None, lease: str = "") -> Any:
    """Send a request that is not a test, and return the JSON of its answer."""
    connection = http.client.HTTPConnection(ADDRESS, timeout=60)
    try:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", "Fumehood-Lease": lease}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/octet-stream"
        connection.request(method, path, raw, headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text.decode()}")
        return json.loads(text) if text else None
    finally:
        connection.close()


class World:
    """The objects that requests are directed to."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)
        self.calls = 0
        self.spare: list[str] = []  # sandboxes that requests started; they may be removed
        self.sessions: list[str] = []  # the same for sessions
        self.runtimes: list[tuple[str, str]] = []  # the same, with their sessions
        self.evaluations: list[str] = []
        self.lease: str = call("POST", "/v1/leases", {})["id"]
        threading.Thread(target=self.hold, daemon=True).start()
        self.box = self.new_box()
        self.session: str = self.ask("POST", "/v1/sessions", session("agent"))["id"]
        at = f"/v1/sessions/{self.session}"
        self.runtime: str = self.ask("POST", f"{at}/runtimes", {})["id"]
        self.ask("POST", f"{at}/checkpoints", {})
        self.evaluation: str = self.ask("POST", "/v1/evaluations", EVALUATION)["id"]
        self.run = self.end_of(self.evaluation)
        atexit.register(self.write)

    def write(self) -> None:
        Path(os.environ["SCHEMA_COUNTS"]).write_text(json.dumps(self.counts))

    def hold(self) -> None:
        """Hold the lease until the process ends."""
        connection = http.client.HTTPConnection(ADDRESS, timeout=60)
        connection.request("GET", f"/v1/leases/{self.lease}/hold", headers={"Authorization": f"Bearer {TOKEN}"})
        answer = connection.getresponse()
        while answer.readline():
            pass

    def ask(self, method: str, path: str, body: object = None) -> Any:
        return call(method, path, body, self.lease)

    def end_of(self, evaluation: str) -> str:
        """Wait for the end of an evaluation, and return the folder of its run."""
        at = f"/v1/evaluations/{evaluation}"
        while not (found := self.ask("GET", at))["ended"]:
            time.sleep(0.1)
        folder: str = found["run"]
        return folder

    def new_box(self) -> str:
        """Start a sandbox with a journal and a few files."""
        box: str = self.ask("POST", "/v1/sandboxes?journal=true", {})["id"]
        self.fill(box)
        return box

    def fill(self, box: str) -> None:
        at = f"/v1/sandboxes/{box}"
        self.ask("PUT", f"{at}/file?path=seed/file", b"content")
        make_link = {"args": ["ln", "-sfn", "file", "seed/link"], "timeout_ms": 5000}
        if self.ask("POST", f"{at}/run", make_link)["exit_code"] != 0:
            raise RuntimeError("no link")

    def check(self) -> None:
        """Restore what requests have removed."""
        self.calls += 1
        if self.calls % 10 == 0:
            try:
                self.fill(self.box)
            except RuntimeError:
                self.box = self.new_box()

    def process(self, ended: bool, **more: object) -> str:
        """Start a command, and return its id."""
        cmd = {"args": ["true"] if ended else ["cat"], "stdin_pipe": not ended, "timeout_ms": SHORT, **more}
        at = f"/v1/sandboxes/{self.box}/processes"
        try:
            name: str = self.ask("POST", at, cmd)["id"]
        except RuntimeError:  # a request has broken the sandbox
            self.box = self.new_box()
            return self.process(ended, **more)
        if ended:
            self.ask("GET", f"{at}/{name}/result")
        return name

    def mortal_lease(self, after: float) -> str:
        """Open a lease that ends after some seconds, or after its grace."""
        lease: str = call("POST", "/v1/leases", {})["id"]
        if after:

            def end() -> None:
                with contextlib.suppress(RuntimeError):  # the request under test was faster
                    call("DELETE", f"/v1/leases/{lease}")

            timer = threading.Timer(after, end)
            timer.daemon = True
            timer.start()
        return lease


def session(kind: str) -> dict[str, object]:
    """Return the body of a request that opens a session."""
    return {"environment": ENVIRONMENT, "kind": kind, "workspace": str(PROJECT / "work")}


EVALUATION: dict[str, object] = {"task": str(PROJECT / "task.yaml"), "runs": str(PROJECT / "runs")}


@functools.cache
def the_world() -> World:
    return World()


def path_parameters(w: World, name: str, parameters: dict[str, Any], rng: random.Random) -> None:
    """Replace most ids by those of live objects."""
    # A link of the document may lead to a lease that nothing ends, or to the sandbox that all requests need.
    linked = name == "hold-lease" and w.lease.split("-")[0] in str(parameters["lease"])
    linked = linked or (name == "delete-sandbox" and parameters["sandbox"] == w.box)
    if "lease" in parameters and (linked or rng.random() < 0.8):
        lease = w.lease
        if name == "end-lease":
            lease = w.mortal_lease(0)
        elif name == "hold-lease":
            lease = w.mortal_lease(0.2)
        parameters["lease"] = lease
        if "key" in parameters and rng.random() < 0.7:
            parameters["key"] = f"{lease}-{rng.randrange(1 << 30)}"
    if "sandbox" in parameters and (linked or rng.random() < 0.9):
        parameters["sandbox"] = w.box
        if name == "delete-sandbox":
            parameters["sandbox"] = w.spare.pop() if w.spare else "missing"
    session_parameters(w, name, parameters, rng)
    if "process" in parameters and rng.random() < 0.9:
        if name == "resize-terminal":
            parameters["process"] = w.process(False, tty=True, stdin_pipe=False, args=["sleep", "1"])
        else:
            parameters["process"] = w.process(name == "forget-command" or rng.random() < 0.4)


def session_parameters(w: World, name: str, parameters: dict[str, Any], rng: random.Random) -> None:
    """Replace most ids of sessions, runtimes and evaluations."""
    if "session" in parameters:
        if name == "close-session":
            parameters["session"] = w.sessions.pop() if w.sessions else "missing"
        elif rng.random() < 0.9:
            parameters["session"] = w.session
    if "runtime" in parameters:
        if name == "end-runtime":
            parameters["session"], parameters["runtime"] = w.runtimes.pop() if w.runtimes else (w.session, "missing")
        elif rng.random() < 0.9:
            parameters["runtime"] = w.runtime
    if "evaluation" in parameters:
        if name == "end-evaluation":
            parameters["evaluation"] = w.evaluations.pop() if w.evaluations else "missing"
        elif rng.random() < 0.9:
            parameters["evaluation"] = w.evaluation
    if "number" in parameters and rng.random() < 0.7:
        parameters["number"] = 1


def session_body(name: str, body: dict[str, Any], rng: random.Random) -> None:
    """Let most sessions, runtimes and evaluations be those that the server permits."""
    usual: dict[str, object] = {}
    if name == "open-session":
        usual = session(rng.choice(("agent", "evaluation")))
    elif name == "start-evaluation":
        usual = EVALUATION
    if name in ("open-session", "start-evaluation", "spawn-runtime") and rng.random() < 0.7:
        body.clear()
        body.update(usual)
    elif name in ("execute-command", "stream-command"):
        if rng.random() < 0.8:
            body["command"] = rng.choice(SCRIPTS)
            for key in ("entry", "env") + (("stdin",) if name == "stream-command" else ()):
                body.pop(key, None)
        timeout = body.get("timeout_ms", 0)
        if isinstance(timeout, (int, float)) and not 0 < timeout <= SHORT and timeout >= 0:
            body["timeout_ms"] = SHORT


def query(name: str, values: dict[str, Any], rng: random.Random) -> None:
    """Drop most names of services and users, and replace most paths."""
    for key in ("service", "user", "owner", "provider"):
        if key in values and rng.random() < 0.8:
            del values[key]
    if "path" in values and rng.random() < 0.8:
        values["path"] = rng.choice(FILES)
    for key, usual in (("run", the_world().run), ("folder", str(PROJECT / "runs"))):
        if key in values and rng.random() < 0.8:
            values[key] = usual
    if "by" in values and rng.random() < 0.8:
        values["by"] = rng.choice(("sample", "epoch", "outcome", "metadata.x"))
    # The root has files that cannot be archived, which breaks the connection: the headers have been sent.
    if name == "read-archive" and not str(values.get("path", "x")).strip("/."):
        values["path"] = "seed"


def command(body: dict[str, Any], rng: random.Random) -> None:
    """Let most commands be short programs, and let all end soon."""
    if rng.random() < 0.8:
        body["args"] = rng.choice(PROGRAMS)
        for key in ("dir", "user", "env", "detach", "via_engine", "term", "rlimits", "cpu_time_ms"):
            if rng.random() < 0.7:
                body.pop(key, None)
    if rng.random() < 0.3:
        for key in body.keys() - {"args", "stdin_pipe", "kill_rest", "stdout_cap"}:
            del body[key]
    timeout = body.get("timeout_ms", 0)
    if isinstance(timeout, (int, float)) and not 0 < timeout <= SHORT and timeout >= 0:
        body["timeout_ms"] = SHORT


def spec(body: dict[str, Any], rng: random.Random) -> None:
    """Let most specs ask only for what is permitted."""
    if rng.random() < 0.8:
        for key in list(body):
            if key not in PERMITTED or rng.random() < 0.5:
                del body[key]
    if isinstance(body.get("image"), str) and rng.random() < 0.9:
        body["image"] = "fumehood-test/busybox"


def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """Direct a request to what exists."""
    w = the_world()
    w.check()
    name = case.operation.definition.raw["operationId"]
    seen = f"{name} {case.path_parameters!r} {case.query!r} {case.body!r} {case.headers!r}"
    rng = random.Random(zlib.crc32(seen.encode(errors="surrogatepass")))
    if isinstance(case.path_parameters, dict):
        path_parameters(w, name, case.path_parameters, rng)
    if case.query:
        query(name, case.query, rng)
    if isinstance(case.body, dict):
        if name in ("run-command", "start-command"):
            command(case.body, rng)
        elif name in ("create-sandbox", "prepare-images"):
            spec(case.body, rng)
        else:
            session_body(name, case.body, rng)
        if name == "rename-file" and rng.random() < 0.3:
            with contextlib.suppress(RuntimeError):  # a request has broken the sandbox
                w.ask("PUT", f"/v1/sandboxes/{w.box}/file?path=old", b"content")
            case.body.update(path="old", to=f"renamed-{rng.randrange(100)}")
        elif name == "make-directory" and rng.random() < 0.3:
            case.body["path"] = f"made-{rng.randrange(1 << 30)}"
        else:
            for key in ("path", "to"):
                if isinstance(case.body.get(key), str) and rng.random() < 0.8:
                    case.body[key] = rng.choice(FILES)
    headers = case.headers
    if "/v1/leases" not in case.path and "/v1/version" not in case.path:
        if rng.random() < 0.9:
            headers["Fumehood-Lease"] = w.lease
        if "Idempotency-Key" in headers and rng.random() < 0.7:
            headers["Idempotency-Key"] = f"{w.lease}-{rng.randrange(100)}"


def after_call(_context: Any, case: Any, response: Any) -> None:
    """Count answers, and remember sandboxes that were started."""
    w = the_world()
    name = case.operation.definition.raw["operationId"]
    w.counts[name][str(response.status_code)] += 1
    if name == "create-sandbox" and response.status_code == 200:
        w.spare.append(response.json()["id"])
        if len(w.spare) > 5:
            with contextlib.suppress(RuntimeError):  # a request has removed it
                w.ask("DELETE", f"/v1/sandboxes/{w.spare.pop(0)}")
    elif response.status_code == 200 and name in ("open-session", "spawn-runtime", "start-evaluation"):
        remember(w, name, response.json()["id"], case.path_parameters or {})


def remember(w: World, name: str, new: str, parameters: dict[str, Any]) -> None:
    """Remember what a request started, and end the oldest of many."""
    with contextlib.suppress(RuntimeError):  # a request has ended it
        if name == "open-session" and new != w.session:
            w.sessions.append(new)
            if len(w.sessions) > 5:
                w.ask("DELETE", f"/v1/sessions/{w.sessions.pop(0)}")
        elif name == "spawn-runtime" and new != w.runtime:
            w.runtimes.append((parameters["session"], new))
            if len(w.runtimes) > 3:
                of, oldest = w.runtimes.pop(0)
                w.ask("DELETE", f"/v1/sessions/{of}/runtimes/{oldest}?kill=true")
        elif name == "start-evaluation" and new != w.evaluation:
            w.evaluations.append(new)
            if len(w.evaluations) > 2:
                w.ask("DELETE", f"/v1/evaluations/{w.evaluations.pop(0)}")


LINES = "application/x-ndjson"


def line_validators() -> dict[str, Any]:
    """Return validators of the lines of operations that answer with lines."""
    document = json.loads(Path(os.environ["SCHEMA_DOCUMENT"]).read_text())
    validators = {}
    for path in document["paths"].values():
        for operation in path.values():
            if lines := operation["responses"].get("200", {}).get("content", {}).get(LINES):
                schema = {**lines["schema"], "components": document["components"]}
                validators[operation["operationId"]] = jsonschema_rs.Draft202012Validator(schema)
    return validators


def lines_conformance(_context: Any, response: Any, case: Any) -> None:
    """Check each line of an answer against the document, where schemathesis does not know the format."""
    name = case.operation.definition.raw["operationId"]
    if response.status_code == 200 and LINES in str(response.headers.get("content-type", "")):
        for line in response.content.splitlines():
            for error in VALIDATORS[name].iter_errors(json.loads(line)):
                raise AssertionError(f"line {line!r}: {error.message}")


VALIDATORS = line_validators()


def archive(name: str, link: str, content: bytes) -> bytes:
    """Return a tar archive with a file or, if link is not empty, a symbolic link."""
    entry = tarfile.TarInfo(name)
    if link:
        entry.type, entry.linkname, content = tarfile.SYMTYPE, link, b""
    entry.size = len(content)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(entry, io.BytesIO(content))
    return out.getvalue()


names = st.sampled_from([*FILES, "..", "../out", "/out", "a" * 300, "", "a/../../out", "\x00"])
archives = st.builds(archive, names, st.one_of(st.just(""), names), st.binary(max_size=2000))
damaged = st.builds(lambda tar, at: tar[:at], archives, st.integers(0, 1024))
schemathesis.openapi.media_type("application/x-tar", st.one_of(archives, damaged, st.binary()))
schemathesis.check(lines_conformance)
schemathesis.hook("before_call")(before_call)
schemathesis.hook("after_call")(after_call)
