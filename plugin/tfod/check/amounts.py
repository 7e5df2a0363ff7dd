"""How many of something there are, in words."""

from __future__ import annotations

_PLURALS = {"box": "boxes", "class": "classes"}


def plural(count: int, noun: str) -> str:
    """``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"
