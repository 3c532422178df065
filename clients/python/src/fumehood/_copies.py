"""What copies of folders in both directions have in common: limits, counts, what is skipped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ._data import Shown
from ._errors import LimitError, TooLargeError
from ._globs import Globs
from ._values import Size, integer, limit, texts

MAX_BYTES = 10 << 30  # bytes in files, unless the caller sets another limit
MAX_ENTRIES = 1_000_000
MAX_SKIPPED = 1000  # files that a result names
_MAX_SHOWN = 4096  # characters of a path that was skipped

SkipReason = Literal[
    "link-leads-out",
    "pipe",
    "socket",
    "device",
    "hard-link",
    "invalid-name",
    "exists",
    "no-folder",
    "too-deep",
    "changed",
]


@dataclass(frozen=True)
class SkippedFile(Shown):
    """A file that was not copied, or not as a whole. Bytes of its path that are not UTF-8 are lone surrogates."""

    path: str  # relative to the folder; clipped to 4096 characters
    reason: SkipReason  # "changed" if it became shorter while it was read: zeros are in the place of its end


@dataclass(frozen=True)
class FolderProgress(Shown):
    """How far a copy of a folder is."""

    entries: int = 0  # files, folders and links
    bytes: int = 0  # in files, holes included
    path: str = ""  # of the last entry, relative to the folder


@dataclass(frozen=True)
class Copied(Shown):
    entries: int  # files, folders and links
    bytes: int  # in files, holes included
    skipped: tuple[SkippedFile, ...] = ()  # the first 1000 that were not copied
    skipped_count: int = 0  # all that were not


@dataclass(frozen=True)
class UploadResult(Copied):
    """What was copied into a sandbox, and what was not."""


@dataclass(frozen=True)
class DownloadResult(Copied):
    """What was copied out of a sandbox, and what was not."""


OnProgress = Callable[[FolderProgress], object]


class Rules:
    """What a copy leaves out, and its limits, after their checks."""

    def __init__(self, exclude: Sequence[str] = (), max_entries: int = 0, max_bytes: Size = 0) -> None:
        self.globs = Globs(texts(exclude, "exclude"))
        self.max_entries = integer(max_entries, "max_entries") or MAX_ENTRIES
        self.max_bytes = limit(max_bytes, "max_bytes") or MAX_BYTES


class Copy:
    """The limits and the counts of a copy."""

    def __init__(self, what: str, rules: Rules) -> None:
        self._what = what
        self._globs, self._max_entries, self._max_bytes = rules.globs, rules.max_entries, rules.max_bytes
        self._entries = 0  # that count for the limit, with those that are skipped
        self._bytes = 0
        self._skipped: list[SkippedFile] = []
        self._skipped_count = 0
        self._done_entries = self._done_bytes = 0
        self._path = ""  # of the last entry

    def _count(self, size: int) -> None:
        self._entries += 1
        self._bytes += size
        if 0 <= self._max_entries < self._entries:
            message = f"{self._what}: more than {self._max_entries} files, folders and links"
            raise LimitError(message, hint="copy less, or raise max_entries")
        if 0 <= self._max_bytes < self._bytes:
            raise TooLargeError(
                f"{self._what}: more than {self._max_bytes} bytes", hint="copy less, or raise max_bytes"
            )

    def _done(self, path: str) -> None:
        self._done_entries, self._path = self._done_entries + 1, path

    def _skip(self, path: str, reason: SkipReason) -> None:
        self._skipped_count += 1
        if len(self._skipped) < MAX_SKIPPED:
            self._skipped.append(SkippedFile(path[:_MAX_SHOWN], reason))

    @property
    def progress(self) -> FolderProgress:
        """How far it is."""
        return FolderProgress(self._done_entries, self._done_bytes, self._path)

    @property
    def counts(self) -> tuple[int, int, tuple[SkippedFile, ...], int]:
        """The fields of the result."""
        return self._done_entries, self._done_bytes, tuple(self._skipped), self._skipped_count


def leads_out(depth: int, target: bytes) -> bool:
    """Report whether a link, which has so many folders above it, can lead out of the folder that is copied.

    Only ".." at the beginning of the target is safe, because only folders are above a link. What follows may be a link
    itself, and then another ".." leads elsewhere.
    """
    names = [name for name in target.split(b"/") if name not in (b"", b".")]
    ups = 0
    while ups < len(names) and names[ups] == b"..":
        ups += 1
    return not target or target.startswith(b"/") or b"\0" in target or ups > depth or b".." in names[ups:]
