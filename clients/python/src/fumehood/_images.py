"""Images that are prepared, and those that are built from a Dockerfile."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ._errors import ConfigError
from ._process import Lines
from ._types import JSON, Compose, Prepared, Progress
from ._values import StrPath, instance, short, to_path, to_utf8

SERVICE = "default"


def build_of(dockerfile: StrPath | None, context: StrPath | None) -> Compose:
    """Return the project of one service that is built from a Dockerfile, its text or its path."""
    folder = os.path.abspath(to_path(context, "context")) if context is not None else ""  # noqa: PTH100
    if dockerfile is None:
        if not folder:
            raise ConfigError("build: no dockerfile and no context", hint="name one of them")
        dockerfile = Path(folder, "Dockerfile")
    if isinstance(dockerfile, str):
        text = to_utf8(dockerfile, "dockerfile")
        if text and not any(each.isspace() for each in text):
            raise ConfigError(f"dockerfile: {short(text)} is no Dockerfile's text", hint="a file is given as a Path")
        if not text.strip():
            raise ConfigError("dockerfile: the text is empty", hint="a path to a Dockerfile is a Path, not a str")
        # A project would replace a variable in its texts.
        build = {"dockerfile_inline": text.replace("$", "$$")} | ({"context": "."} if folder else {})
        return Compose(content=json.dumps({"services": {SERVICE: {"build": build}}}), dir=folder)
    instance(dockerfile, (str, os.PathLike), "dockerfile")
    path = os.path.abspath(to_path(dockerfile, "dockerfile"))  # noqa: PTH100
    return Compose(dockerfile=path, dir=folder or str(Path(path).parent))


class Preparation(Lines[Progress | Prepared]):
    """Iterates over the steps of a preparation of images."""

    last = Prepared
    resumes = True

    def parse(self, line: JSON) -> Progress | Prepared | None:
        """Return the step of a line. A heartbeat is none."""
        if line.get("type") == "end":
            return Prepared.parse(line)
        return Progress.parse(line) if line.get("type") == "progress" else None
