"""Tests. The programs that they start keep their files in one temporary folder, which is removed at the end."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path


def _isolate() -> None:
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    # The user's secret stays: what servers have marked in the Docker Engine with another one would be foreign to them.
    os.environ.setdefault("FUMEHOOD_SECRET_FILE", str(state / "fumehood" / "secret"))
    folder = tempfile.mkdtemp(prefix="python-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"], os.environ["XDG_STATE_HOME"] = folder, str(Path(folder) / "state")
    tempfile.tempdir = None


_isolate()
