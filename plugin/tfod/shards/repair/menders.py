"""How a repair of records is declared: a small function that mends what one rule finds."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TypeAlias

from tfod.shards.repair.changes import Change
from tfod.shards.repair.draft import Draft

Mender: TypeAlias = "Callable[[Draft], Iterator[Change]]"
_OF_LAYOUT = frozenset({"EXA003", "EXA004", "EXA005", "EXA006", "EXA007"})
_OF_EACH_BOX = frozenset({"BOX002", "BOX003", "BOX004", "BOX006", "BOX007"})
# Kinds and shapes first, since the others look at values.
_MODULES = tuple(
    f"tfod.shards.repair.{name}" for name in ("features", "boxes", "classes", "images")
)
_MOST_ROUNDS = 4
_MENDERS: list[tuple[str, Mender]] = []


def mends(code: str) -> Callable[[Mender], Mender]:
    """Declare what mends the findings of a rule in one record.

    The function changes the draft, and yields what it did. What it cannot be certain of it leaves
    alone.

    Args:
        code: the rule's.
    """

    def declare(mender: Mender) -> Mender:
        _MENDERS.append((code, mender))
        return mender

    return declare


@cache
def all_menders() -> list[tuple[str, Mender]]:
    """Every one with its rule's code, in the order in which they are to be applied."""
    for name in _MODULES:
        importlib.import_module(name)
    return sorted(_MENDERS, key=lambda one: _MODULES.index(one[1].__module__))


def mend(draft: Draft, codes: frozenset[str]) -> list[Change]:
    """Mend what rules of these codes find in a record; return what was done."""
    done: list[Change] = []
    for _ in range(_MOST_ROUNDS):
        found = list(_round(draft, codes))
        done += found
        if not found:
            break
    return done


def _round(draft: Draft, codes: frozenset[str]) -> Iterator[Change]:
    """Mend once; what is mended may show more, as two objects that are the same only now."""
    for code, mender in all_menders():
        if code in codes and not _is_settled(draft, code):
            yield from mender(draft)


def _is_settled(draft: Draft, code: str) -> bool:
    """Whether it is known that a rule finds nothing, as of most records it is."""
    if code in _OF_LAYOUT:
        return draft.said is not None and code not in draft.said
    return code in _OF_EACH_BOX and draft.boxes_are_sound
