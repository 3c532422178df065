"""Puts the program into a wheel of its platform.

FUMEHOOD_WHEEL_BINARY names the program and FUMEHOOD_WHEEL_TAG the wheel's tag. Without them the wheel has no program
and the client takes the one on the PATH or in FUMEHOOD_BINARY.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """The hook that hatchling calls for each wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the program as a script of the wheel."""
        binary = os.environ.get("FUMEHOOD_WHEEL_BINARY")
        if not binary:
            return
        build_data["pure_python"] = False
        build_data["tag"] = os.environ["FUMEHOOD_WHEEL_TAG"]
        build_data["shared_scripts"][binary] = "fumehood"
