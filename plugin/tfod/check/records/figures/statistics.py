"""Figures of the data that was checked: bounded in memory, and mergeable in any grouping."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from tfod.check.duplicates.row_blocks import hash_of
from tfod.check.findings.finding import JsonValue
from tfod.check.records.figures.details import MOST_SHAPES, ClassShape, Details
from tfod.detection.labels.label_map import LabelMap

T = TypeVar("T")
MOST_KINDS = 1 << 16
"""Of more different classes or image sizes than this so many are kept."""
MOST_SUBSETS = 64
"""Of more subsets than this so many have figures of their own,"""
MOST_KINDS_OF_SUBSET = 1 << 13
"""with at most so many classes or image sizes each."""
GRID = 32
"""Cells of a side of the heat map and of the map of box sizes."""
_MOST_BOXES_COUNTED = 128
_LISTED_SIZES = 50


@dataclass
class Statistics:
    """What is in the data.

    Attributes:
        classes: boxes of each class, by its text, or by ``#id`` where there is no text.
        image_sizes: images of each ``(height, width)``, pixels.
        boxes_in_image: images with 0, 1, 2, … boxes; the last place counts all above.
        centres: boxes by the place of their centre, ``[row, column]`` of a grid over the image.
        sizes: boxes by ``[height, width]`` as parts of the image's, in ``GRID`` steps each.
        details: what is counted with hints alone.
    """

    classes: Counter[str] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    boxes_in_image: np.ndarray = field(
        default_factory=lambda: np.zeros(_MOST_BOXES_COUNTED + 1, np.int64)
    )
    centres: np.ndarray = field(default_factory=lambda: np.zeros((GRID, GRID), np.int64))
    sizes: np.ndarray = field(default_factory=lambda: np.zeros((GRID, GRID), np.int64))
    details: Details | None = None

    def add_boxes(self, corners: np.ndarray, counts: np.ndarray) -> None:
        """Count the boxes of some images.

        Args:
            corners: float, shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; finite or not.
            counts: boxes of each image, int.
        """
        clipped = np.minimum(counts, _MOST_BOXES_COUNTED)
        self.boxes_in_image += np.bincount(clipped, minlength=_MOST_BOXES_COUNTED + 1)
        if not len(corners):
            return
        low, high = corners[:, :2], corners[:, 2:]
        # Infinite corners are expected here: they make infinite or undefined centres and sizes.
        with np.errstate(invalid="ignore", over="ignore"):
            self.centres += _grid((low + high) / 2)
            self.sizes += _grid(high - low)

    def add_images(self, heights: np.ndarray, widths: np.ndarray) -> None:
        """Count images by their size in pixels; NaN is an unknown one."""
        known = np.isfinite(heights) & np.isfinite(widths)
        # As complex numbers they are compared at once.
        sizes, counts = np.unique(heights[known] + 1j * widths[known], return_counts=True)
        pairs = zip(sizes.real.astype(int).tolist(), sizes.imag.astype(int).tolist(), strict=True)
        for size, count in zip(pairs, counts.tolist(), strict=True):
            self.image_sizes[size] += count
        self.image_sizes = bound(self.image_sizes, slack=2)

    def merge(self, other: Statistics) -> None:
        """Add the figures of another part of the data."""
        self.classes.update(other.classes)
        self.image_sizes.update(other.image_sizes)
        self.bound(MOST_KINDS, slack=2)
        self.boxes_in_image += other.boxes_in_image
        self.centres += other.centres
        self.sizes += other.sizes
        if other.details is not None:
            self.details = self.details or Details()
            self.details.merge(other.details)

    def bound(self, most: int, slack: int = 1) -> None:
        """Keep no more classes and image sizes than may be kept (:func:`bound`)."""
        self.classes = bound(self.classes, slack, most)
        self.image_sizes = bound(self.image_sizes, slack, most)
        if self.details is not None:
            self.details.class_images = bound(self.details.class_images, slack, most)
            self.details.formats = bound(self.details.formats, slack, most)

    def to_json(self) -> JsonValue:
        """As the report has it."""
        last = int(np.max(np.nonzero(self.boxes_in_image)[0], initial=-1)) + 1
        ordered = sorted(self.classes.items(), key=lambda pair: (-pair[1], pair[0]))
        sizes = sorted(self.image_sizes.items(), key=lambda pair: (-pair[1], pair[0]))
        return {
            "classes": dict(ordered),
            "image_sizes": [
                {"height": height, "width": width, "images": count}
                for (height, width), count in sizes[:_LISTED_SIZES]
            ],
            "different_image_sizes": len(sizes),
            "boxes_in_image": self.boxes_in_image[:last].tolist(),
            "box_centres": self.centres.tolist(),
            "box_sizes": self.sizes.tolist(),
            **({"details": self.details.to_json()} if self.details else {}),
        }


def _grid(points: np.ndarray) -> np.ndarray:
    """Count points (x, y) in 0..1 by cell ``[y, x]``.

    Those outside count at the border, those without a number (NaN) not at all.
    """
    unknown = np.isnan(points).any(axis=1)
    if unknown.any():
        points = points[~unknown]
    x, y = np.clip(points * GRID, 0, GRID - 1).astype(np.int64).T
    return np.bincount(y * GRID + x, minlength=GRID * GRID).reshape(GRID, GRID)


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


def merge_subsets(subsets: dict[str, Statistics], others: Mapping[str, Statistics]) -> None:
    """Add the figures of subsets, and keep no more than twice as many as may be kept.

    Which ones are kept does not depend on the order, as with :func:`bound`.
    """
    for name, statistics in others.items():
        subsets.setdefault(name, Statistics()).merge(statistics)
        subsets[name].bound(MOST_KINDS_OF_SUBSET, slack=2)
    bound_subsets(subsets, slack=2)


def merge_shapes(
    shapes: dict[str, ClassShape], others: Mapping[str, ClassShape], slack: int = 2
) -> None:
    """Add the shapes of classes, and keep no more than ``slack`` times as many as may be kept."""
    for name, one in others.items():
        shapes[name] = shapes[name] + one if name in shapes else one
    if len(shapes) > slack * MOST_SHAPES:
        for name in shapes.keys() - _smallest(shapes, MOST_SHAPES):
            del shapes[name]


def bound_subsets(subsets: dict[str, Statistics], slack: int = 1) -> None:
    """Forget the subsets that may not be kept."""
    if len(subsets) > slack * MOST_SUBSETS:
        for name in subsets.keys() - _smallest(subsets, MOST_SUBSETS):
            del subsets[name]


def bound(counts: Counter[T], slack: int = 1, most: int | None = None) -> Counter[T]:
    """The same counts, or those of the kinds with the smallest hashes where there are too many.

    Which ones are kept does not depend on the order of the data, nor on how they were shared among
    counters that are added up: a kind that is among those with the smallest hashes of all has
    never been dropped, so that its count is complete.

    Args:
        counts: of each kind.
        slack: so many times ``most`` are let pass; 1 at the end, more on the way.
        most: how many are kept; None for :data:`MOST_KINDS`.
    """
    most = MOST_KINDS if most is None else most
    if len(counts) <= slack * most:
        return counts
    return Counter({kind: counts[kind] for kind in _smallest(counts, most)})


def _smallest(kinds: Collection[T], most: int) -> list[T]:
    return heapq.nsmallest(most, kinds, key=lambda kind: (hash_of(repr(kind)), repr(kind)))
