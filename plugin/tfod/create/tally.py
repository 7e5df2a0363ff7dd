"""What was odd on the way: counted, and the first place of each named."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple


class _First(NamedTuple):
    """Where something was met first, and when: compares by when."""

    item: int
    is_made: bool
    step: int
    where: str


class Tally:
    """Counts by sentence; nothing is left out without one."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, _First] = {}
        self._item, self._is_made, self._step = -1, False, 0

    def begin(self, item: int, is_made: bool = False) -> None:
        """Say what the following belongs to, where several processes count at once.

        Args:
            item: which record, counted from 0.
            is_made: whether it is made now; else it is read before that, by another process.
        """
        self._item, self._is_made, self._step = item, is_made, 0

    def add(self, what: str, where: str) -> None:
        """Count one more of something.

        Args:
            what: a plural without its number, such as "objects without <bndbox>, left out".
            where: file and, where there is one, line.
        """
        self._counts[what] += 1
        self._step += 1
        if what not in self._first:
            self._first[what] = _First(self._item, self._is_made, self._step, where)

    def merge(self, other: Tally) -> None:
        """Add what another process has counted."""
        self._counts.update(other._counts)
        for what, first in other._first.items():
            self._first[what] = min(first, self._first.get(what, first))

    def sentences(self) -> list[str]:
        """One sentence a matter, in the order in which they were met."""
        return [
            f"{self._counts[what]} {what} (the first: {first.where})"
            for what, first in sorted(self._first.items(), key=lambda one: one[1])
        ]
