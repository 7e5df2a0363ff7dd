"""Counts of annotations that a conversion drops or changes, to report every loss."""

from __future__ import annotations

from collections import Counter

UNSUPPORTED = "not written, because the format cannot store them"
_MAX_NAMES = 20  # in a sentence


def format_counts(counter: Counter[str]) -> str:
    """Format counts, largest first: ``3 polyline, 1 cuboid``."""
    parts = [f"{count} {name:.80}" for name, count in counter.most_common(_MAX_NAMES)]
    more = len(counter) - len(parts)
    return ", ".join(parts) + (f" and {more} more" if more else "")


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

    def sentences(self) -> list[str]:
        """Return the sentences with counts: ``attributes not written: 3 pose, 1 weight``."""
        return [
            f"{sentence}: {counts[''] if '' in counts else format_counts(counts)}"
            + (f" (the first: {self._first[sentence]})" if sentence in self._first else "")
            for sentence, all_counts in self.items()
            if (counts := +all_counts)  # without zeros
        ]
