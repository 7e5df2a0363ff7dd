"""The label maps of the result: copied, spelled anew, or made from the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tfod.check.examined import Use
from tfod.check.statistics import MOST_KINDS
from tfod.detection.label_map import LabelMap, LabelMapItem

_LARGEST_ID = (1 << 31) - 1


def map_from_uses(uses: Iterable[Counter[Use]]) -> LabelMap | None:
    """The label map that the texts and ids of objects define.

    None where an object lacks one of the two, where an id cannot be one, where two pairs
    contradict each other, or where there are too many classes to be sure of them all.
    """
    pairs = {use for counts in uses for use in counts}
    found: dict[int, str] = {}
    for text, label in pairs:
        if not (text and text.strip()) or label is None or not 0 < label <= _LARGEST_ID:
            return None
        if found.setdefault(label, text) != text:
            return None
    if not found or len(set(found.values())) != len(found) or len(found) > MOST_KINDS // 4:
        return None
    return LabelMap(tuple(LabelMapItem(label, found[label]) for label in sorted(found)))
