"""Counts of the work that this process has done, which commands show on a terminal."""

from __future__ import annotations

from collections import Counter

BYTES = BYTES_READ, BYTES_SENT, BYTES_RECEIVED = "read", "sent", "received"
"""The descriptions of the counts that are sizes."""
FILES_READ = "files read"


class Progress:
    """The work so far.

    Attributes:
        counts: numbers by description, such as ``records read``.
        total_bytes: number of bytes to read; 0 if unknown.
        is_hidden: whether the terminal is used for something else, such as a prompt.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.total_bytes = 0
        self.is_hidden = False

    def add(self, description: str, count: int = 1) -> None:
        """Count work."""
        self.counts[description] += count

    def add_records(self, records: int, size: int) -> None:
        """Count records that were read, and their size in bytes."""
        self.add("records read", records)
        self.add(BYTES_READ, size)

    def reset(self) -> None:
        """Forget the work of an earlier command."""
        self.counts.clear()
        self.total_bytes = 0


PROGRESS = Progress()
