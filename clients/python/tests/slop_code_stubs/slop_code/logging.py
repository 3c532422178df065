"""SlopCodeBench's loggers, which are those of structlog."""

from __future__ import annotations

import logging
from typing import Any


class Logger:
    """Logs events with their fields."""

    def __init__(self, name: str) -> None:
        self._to = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._to.debug("%s", " ".join([event, *(f"{name}={value}" for name, value in fields.items())]))


def get_logger(name: str) -> Logger:
    """Return the logger of a name."""
    return Logger(name)
