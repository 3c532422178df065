"""What belongs to an event loop: its clients, each with a server of its own, and what tasks have prepared with them."""

from __future__ import annotations

import anyio

from .._adapter import Clients, Loops


class _Loop(Clients):
    """The clients of an event loop. Its users are configurations of tasks that have started."""

    def __init__(self) -> None:
        super().__init__()
        self.images: dict[str, dict[str, str]] = {}  # prepared images, by the key of the plan
        self.folders: set[str] = set()  # of the tasks

    async def close(self) -> None:
        """End the servers, and forget what was prepared with them."""
        self.images.clear()
        self.folders.clear()
        with anyio.CancelScope(shield=True):
            await super().close()


this_loop = Loops(_Loop).running
