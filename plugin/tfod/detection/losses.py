"""Counts of annotations that a conversion drops or changes, to report every loss."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tfod.errors import truncate

UNSUPPORTED = "not written, because the format cannot store them"
ATTRIBUTES = "attributes not written"
ENCLOSED = "replaced by their enclosing box"
_MAX_NAMES = 20  # in a sentence


def format_counts(counter: Counter[str]) -> str:
    """Format counts, largest first: ``3 polyline, 1 cuboid``."""
    parts = [f"{count} {truncate(name)}" for name, count in counter.most_common(_MAX_NAMES)]
    more = len(counter) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "")


@dataclass(frozen=True)
class Loss:
    """Data that a conversion dropped or changed.

    Attributes:
        kind: what it is, such as ``masks``; '' if the reason names it.
        reason: what was done with it, and why.
        count: number of objects, images or values.
    """

    kind: str
    reason: str
    count: int


class LossCounter(dict[str, Counter[str]]):
    """A counter of dropped or changed annotations, by sentence and by name.

    The name is '' if the sentence needs none. The sentences given to the constructor are reported
    first, in that order, then others in order of occurrence.
    """

    def __init__(self, *sentences: str) -> None:
        super().__init__({sentence: Counter() for sentence in sentences})
        self._first: dict[str, str] = {}

    def __missing__(self, sentence: str) -> Counter[str]:
        return self.setdefault(sentence, Counter())

    def note(self, sentence: str, location: str) -> None:
        """Count a sentence without names, and remember where it first occurred."""
        self[sentence][""] += 1
        self._first.setdefault(sentence, location)

    def losses(self) -> list[Loss]:
        """Return the counts that are not 0."""
        return [
            Loss(name, sentence, count)
            for sentence, counts in self.items()
            for name, count in (+counts).items()
        ]

    def sentences(self) -> list[str]:
        """Return the sentences with counts: ``attributes not written: 3 pose, 1 weight``."""
        return [
            f"{sentence}: {counts[''] if '' in counts else format_counts(counts)}"
            + (f" (the first: {self._first[sentence]})" if sentence in self._first else "")
            for sentence, all_counts in self.items()
            if (counts := +all_counts)  # without zeros
        ]
