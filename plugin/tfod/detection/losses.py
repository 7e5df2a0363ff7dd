"""What a format cannot carry, and what else was noticed, counted: nothing is lost silently."""

from __future__ import annotations

from collections import Counter

_MOST = 20  # names in a sentence


def listed(counter: Counter[str]) -> str:
    """``3 polyline, 1 cuboid``: the counts, the largest first."""
    named = [f"{count} {name:.80}" for name, count in counter.most_common(_MOST)]
    more = len(counter) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


class LossCounter(dict[str, Counter[str]]):
    """What does not come along, or comes in another form: how often, by sentence and by name.

    Where a sentence alone says it, the name is ''. Sentences are reported in the order in which
    they are given here; others follow as they come.
    """

    def __init__(self, *sentences: str) -> None:
        super().__init__({sentence: Counter() for sentence in sentences})
        self._first: dict[str, str] = {}

    def __missing__(self, sentence: str) -> Counter[str]:
        return self.setdefault(sentence, Counter())

    def note(self, sentence: str, where: str) -> None:
        """Count what a sentence alone says, and remember where it was first."""
        self[sentence][""] += 1
        self._first.setdefault(sentence, where)

    def sentences(self) -> list[str]:
        """Each with its counts: ``attributes not written: 3 pose, 1 weight``."""
        return [
            f"{sentence}: {counts[''] if '' in counts else listed(counts)}"
            + (f" (the first: {self._first[sentence]})" if sentence in self._first else "")
            for sentence, kept in self.items()
            if (counts := +kept)
        ]
