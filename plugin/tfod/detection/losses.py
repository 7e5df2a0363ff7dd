"""What a format cannot carry, counted: nothing is lost without a sentence."""

from __future__ import annotations

from collections import Counter


def listed(counter: Counter[str]) -> str:
    """``3 polyline, 1 cuboid``: the counts, the largest first."""
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


class Losses(dict[str, Counter[str]]):
    """What does not come along, or comes in another form: how often, by sentence and by name.

    Where a sentence alone says it, the name is ''. Sentences are reported in the order in which
    they are given here; others follow as they come.
    """

    def __init__(self, *sentences: str) -> None:
        super().__init__({sentence: Counter() for sentence in sentences})

    def __missing__(self, sentence: str) -> Counter[str]:
        return self.setdefault(sentence, Counter())

    def sentences(self) -> list[str]:
        """Each with its counts: ``attributes not written: 3 pose, 1 weight``."""
        found = ((sentence, +counts) for sentence, counts in self.items())
        return [
            f"{sentence}: {counts[''] if '' in counts else listed(counts)}"
            for sentence, counts in found
            if counts
        ]
