"""What was odd on the way: counted, and the first place of each named."""

from __future__ import annotations

from collections import Counter


class Tally:
    """Counts by sentence; nothing is left out without one."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, what: str, where: str) -> None:
        """Count one more of something.

        Args:
            what: a plural without its number, such as "objects without <bndbox>, left out".
            where: file and, where there is one, line.
        """
        self._counts[what] += 1
        self._first.setdefault(what, where)

    def sentences(self) -> list[str]:
        """One sentence a matter, in the order in which they were met."""
        return [
            f"{count} {what} (the first: {self._first[what]})"
            for what, count in self._counts.items()
        ]
