"""Figures of the data that was checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tfod.check.findings.finding import JsonValue
from tfod.check.records.result import add_bounded

T = TypeVar("T")
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
        add_bounded(self.classes, other.classes)
        add_bounded(self.image_sizes, other.image_sizes)

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
