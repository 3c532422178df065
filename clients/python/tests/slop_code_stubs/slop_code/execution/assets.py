"""Files that commands read."""

from __future__ import annotations

from pathlib import Path

from .._model import Model


class ResolvedStaticAsset(Model):
    name: str
    absolute_path: Path
    save_path: Path
