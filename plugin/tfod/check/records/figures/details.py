"""What hints and ``tfod stats`` count besides: sizes and ratios of boxes, by class, and formats.

Bounded in memory, and mergeable in any grouping, as the statistics that they belong to.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.check.findings.finding import JsonValue, Place
from tfod.check.records.boxes import Boxes

if TYPE_CHECKING:
    from tfod.check.records.batch import Batch

AREAS = 49
"""Bins of a box's area as a part of its image's: of half an octave each, the last for all of it."""
RATIOS = 33
"""Bins of a box's width by its height, pixels: of a quarter of an octave, from 1/16 to 16."""
BINS = AREAS + RATIOS
_COCO_AREAS = (32**2, 96**2)
"""Where COCO's small, medium and large boxes part, square pixels."""
MOST_SHAPES = 1 << 12
"""Of more classes than this the boxes' shapes are kept for so many."""
_EXTREMES = 6
_SMALL_TABLE = 1 << 20


def _counts(bins: int) -> np.ndarray:
    return np.zeros(bins, np.int64)


@dataclass
class Details:
    """Figures of a subset, or of all.

    Attributes:
        areas: boxes by area, in :data:`AREAS` bins.
        ratios: boxes by width / height, in :data:`RATIOS` bins, where the image's size is known.
        pixel_sizes: COCO's small, medium and large boxes, likewise.
        formats: images by format, as their header or record says; "" for unknown.
        class_images: images with each class.
    """

    areas: np.ndarray = field(default_factory=lambda: _counts(AREAS))
    ratios: np.ndarray = field(default_factory=lambda: _counts(RATIOS))
    pixel_sizes: np.ndarray = field(default_factory=lambda: _counts(len(_COCO_AREAS) + 1))
    formats: Counter[str] = field(default_factory=Counter)
    class_images: Counter[str] = field(default_factory=Counter)

    def merge(self, other: Details) -> None:
        """Add the figures of another part of the data."""
        for name in ("areas", "ratios", "pixel_sizes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.formats.update(other.formats)
        self.class_images.update(other.class_images)

    def to_json(self) -> JsonValue:
        """As the report has it."""
        return {
            "areas": self.areas.tolist(),
            "ratios": self.ratios.tolist(),
            "pixel_sizes": dict(
                zip(("small", "medium", "large"), self.pixel_sizes.tolist(), strict=True)
            ),
            "formats": dict(self.formats.most_common()),
            "class_images": dict(self.class_images.most_common()),
        }


@dataclass(frozen=True, order=True)
class Example:
    """A box, by its number in its record, and its area or its width / height."""

    shard: str
    record: int
    number: int
    value: float
    offset: int | None = None
    item: str | None = None

    @property
    def place(self) -> Place:
        """Where its record is."""
        return Place(self.shard, self.record, self.offset, self.item)


@dataclass(frozen=True)
class ClassShape:
    """Boxes of a class by area and by ratio, ``BINS`` bins, and an example of each extreme bin."""

    counts: np.ndarray
    examples: Mapping[int, Example]

    def __add__(self, other: ClassShape) -> ClassShape:
        both = dict(self.examples)
        for place, one in other.examples.items():
            both[place] = min(both.get(place, one), one)
        return _with_extremes(self.counts + other.counts, both)


def _with_extremes(counts: np.ndarray, examples: Mapping[int, Example]) -> ClassShape:
    """Without the examples that are not of one of the first and last bins with boxes."""
    kept: set[int] = set()
    for start, end in ((0, AREAS), (AREAS, BINS)):
        filled = (np.flatnonzero(counts[start:end]) + start).tolist()
        kept.update(filled[:_EXTREMES], filled[-_EXTREMES:])
    return ClassShape(counts, {place: examples[place] for place in sorted(kept)})


class DetailCounter:
    """Counts the boxes of a shard, batch after batch."""

    def __init__(self) -> None:
        self.details = Details()
        self._codes: dict[str, int] = {}
        self._table = np.zeros((0, BINS), np.int64)
        self._examples: dict[int, Example] = {}

    def codes_of(self, names: Sequence[str]) -> np.ndarray:
        """The number of each class, in the shard."""
        codes = [self._codes.setdefault(name, len(self._codes)) for name in names]
        lacking = len(self._codes) - len(self._table)
        if lacking > 0:
            grown = np.zeros((max(lacking, len(self._table)), BINS), np.int64)
            self._table = np.concatenate((self._table, grown))
        return np.array(codes, np.int64)

    def add(self, batch: Batch, classes: np.ndarray) -> None:
        """Count a batch; ``classes`` are of each box, from :meth:`codes_of`."""
        boxes, found = batch.boxes, batch.detections
        formats = found.formats
        if any(found.headers):
            pairs = zip(found.headers, formats, strict=True)
            formats = [header.format if header else format_ for header, format_ in pairs]
        counts: Counter[Any] = Counter(itertools.compress(formats, batch.live.tolist()))
        counts[""] += counts.pop(None, 0)
        self.details.formats.update(+counts)
        self._count_images(boxes, classes)
        good = boxes.normalized & (boxes.size[:, 0] > 0) & (boxes.size[:, 1] > 0)
        at = np.flatnonzero(good)
        if not len(at):
            return
        width, height = boxes.size_in_pixels[at].T
        area = boxes.size[at, 0] * boxes.size[at, 1]
        known = np.isfinite(width) & np.isfinite(height)
        ratio = width[known] / height[known]
        places = np.searchsorted(_COCO_AREAS, width[known] * height[known], side="right")
        self.details.pixel_sizes += np.bincount(places, minlength=len(_COCO_AREAS) + 1)
        # Half an octave each, the last for the whole image; a quarter, the middle from squares on.
        by_area = np.clip(np.floor(np.log2(area) * 2) + AREAS - 1, 0, AREAS - 1)
        by_ratio = np.clip(np.floor(np.log2(ratio) * 4) + RATIOS // 2, 0, RATIOS - 1)
        bins = (by_area.astype(np.int64), AREAS + by_ratio.astype(np.int64))
        for bin_, box, value in zip(bins, (at, at[known]), (area, ratio), strict=True):
            self._count(classes[box] * BINS + bin_, box, value, batch)

    def _count(self, places: np.ndarray, box: np.ndarray, values: np.ndarray, batch: Batch) -> None:
        """Count boxes in their bins, and remember the first of a bin."""
        boxes = batch.boxes
        table = self._table.ravel()  # a view: it is one block
        new = np.flatnonzero(table[places] == 0)
        found, first = np.unique(places[new], return_index=True)
        starts = np.cumsum(boxes.counts) - boxes.counts if len(found) else box
        for bin_, where in zip(found.tolist(), new[first].tolist(), strict=True):
            one = int(box[where])
            row = int(boxes.rows[one])
            at, number = batch.place(row), one - int(starts[row])
            value, record = float(values[where]), at.record or 0
            self._examples[bin_] = Example(at.shard, record, number, value, at.offset, at.item)
        table += np.bincount(places, minlength=len(table))

    @property
    def names(self) -> list[str]:
        """Of the classes, by their numbers."""
        return list(self._codes)

    def _count_images(self, boxes: Boxes, classes: np.ndarray) -> None:
        if len(classes):
            pairs = boxes.rows * len(self._codes) + classes
            if len(boxes.counts) * len(self._codes) <= _SMALL_TABLE:
                there = np.zeros((len(boxes.counts), len(self._codes)), bool)
                there.ravel()[pairs] = True
                counts = there.sum(axis=0).tolist()
            else:
                pairs = np.unique(pairs) % len(self._codes)
                counts = np.bincount(pairs, minlength=len(self._codes)).tolist()
            names = self._codes
            self.details.class_images.update(
                {name: counts[code] for name, code in names.items() if counts[code]}
            )

    def finish(self) -> dict[str, ClassShape]:
        """The shapes of each class, when all is counted."""
        table = self._table[: len(self._codes)]
        self.details.areas += table[:, :AREAS].sum(axis=0)
        self.details.ratios += table[:, AREAS:].sum(axis=0)
        by_class: dict[int, dict[int, Example]] = {}
        for place, one in self._examples.items():
            by_class.setdefault(place // BINS, {})[place % BINS] = one
        return {
            name: _with_extremes(table[code].copy(), by_class.get(code, {}))
            for name, code in self._codes.items()
        }


def quantile(counts: np.ndarray, share: float) -> float:
    """The place, in bins, below which a share of the counts lies."""
    total = counts.cumsum()
    place = int(np.searchsorted(total, share * total[-1]))
    before = int(total[place - 1]) if place else 0
    return place + float((share * total[-1] - before) / max(1, counts[place]))
