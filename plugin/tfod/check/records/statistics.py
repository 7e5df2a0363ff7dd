"""Figures of the data that was checked: bounded in memory, and added up in any order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tfod.check.duplicates.row_blocks import hash_of
from tfod.check.findings.finding import JsonValue
from tfod.detection.labels.label_map import LabelMap

T = TypeVar("T")
MOST_KINDS = 1 << 16
"""Of more different classes or image sizes than this so many are kept."""
_LISTED_SIZES = 50


@dataclass
class Statistics:
    """What is in the data.

    Attributes:
        classes: boxes of each class, by its text, or by ``#id`` where there is no text.
        image_sizes: images of each ``(height, width)``, pixels.
    """

    classes: Counter[str] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)

    def merge(self, other: Statistics) -> None:
        """Add the figures of another dataset."""
        self.classes = bound(self.classes + other.classes)
        self.image_sizes = bound(self.image_sizes + other.image_sizes)

    def to_json(self) -> JsonValue:
        """As the report has it."""
        sizes = most_first(self.image_sizes)
        return {
            "classes": dict(most_first(self.classes)),
            "image_sizes": [
                {"height": height, "width": width, "images": count}
                for (height, width), count in sizes[:_LISTED_SIZES]
            ],
            "different_image_sizes": len(sizes),
        }


def most_first(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    """Kinds and counts, the most frequent kinds first, those of one count in order."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def count_sizes(heights: np.ndarray, widths: np.ndarray) -> dict[tuple[int, int], int]:
    """Images of each size in pixels; NaN is an unknown one, which does not count."""
    known = np.isfinite(heights) & np.isfinite(widths)
    # As complex numbers they are compared at once.
    sizes, counts = np.unique(heights[known] + 1j * widths[known], return_counts=True)
    pairs = zip(sizes.real.astype(int).tolist(), sizes.imag.astype(int).tolist(), strict=True)
    return dict(zip(pairs, counts.tolist(), strict=True))


def named_classes(
    uses: Mapping[tuple[str | None, int | None], int], label_map: LabelMap | None
) -> Counter[str]:
    """Counts of each class from those of text and id: by text, or by the map's name, or ``#id``."""
    names: Counter[str] = Counter()
    for (text, label), count in uses.items():
        item = label_map.find_id(label) if label_map and label else None
        bare = "" if label is None else f"#{label}"
        names[text or (item.class_name if item else bare)] += count
    return names


def bound(counts: Counter[T], slack: int = 1) -> Counter[T]:
    """The same counts, or those of the kinds with the smallest hashes where there are too many.

    Which ones are kept does not depend on the order of the data, nor on how they were shared among
    counters that are added up: a kind that is among those with the smallest hashes of all has
    never been dropped, so that its count is complete.

    Args:
        counts: of each kind.
        slack: so many times :data:`MOST_KINDS` are let pass; 1 at the end, more on the way.
    """
    if len(counts) <= slack * MOST_KINDS:
        return counts
    kept = heapq.nsmallest(MOST_KINDS, counts, key=lambda kind: (hash_of(repr(kind)), repr(kind)))
    return Counter({kind: counts[kind] for kind in kept})
