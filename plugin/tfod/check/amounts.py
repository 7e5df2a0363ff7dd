"""How many of something there are, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

_PLURALS = {"box": "boxes", "class": "classes"}


def plural(count: int, noun: str) -> str:
    """``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"


def listed(counter: Counter[str]) -> str:
    """``3 polyline, 1 cuboid``: the counts, the largest first."""
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())


def first_of(names: Sequence[str], most: int, count: int | None = None) -> str:
    """``a, b and 3 more``: the first names, and how many more there are.

    Args:
        names: all of them, or the first.
        most: how many are named.
        count: of all; None where ``names`` are all.
    """
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
