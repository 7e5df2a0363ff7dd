"""How many of something there are, in words."""

from __future__ import annotations

from collections import Counter

_PLURALS = {"box": "boxes", "class": "classes"}


def plural(count: int, noun: str) -> str:
    """``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"


def listed(counter: Counter[str]) -> str:
    """``3 polyline, 1 cuboid``: the counts, the largest first."""
    return ", ".join(f"{count} {name}" for name, count in counter.most_common())
