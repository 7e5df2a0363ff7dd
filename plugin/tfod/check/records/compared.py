"""What is kept of records where a CVAT task, or a trainer's configuration, is given to compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfod.check.findings.finding import Place
from tfod.check.records.batch import Batch
from tfod.detection import keys
from tfod.example.wire import Kind


class ImageRow(NamedTuple):
    """A record as a CVAT task sees it: its name ('' for none), size in pixels, number of boxes."""

    place: Place
    filename: str
    height: int | None
    width: int | None
    boxes: int


def rows_of(batch: Batch) -> Iterator[ImageRow]:
    """The records of a batch as the CVAT task sees them."""
    names, sizes = batch.detections.filenames, batch.detections.sizes
    for row in np.flatnonzero(batch.live).tolist():
        height, width = (one if 0 < one < 1 << 31 else None for one in sizes[row].tolist())
        boxes = int(batch.box_counts[row])
        yield ImageRow(batch.place(row), names[row] or "", height, width, boxes)


@dataclass(frozen=True)
class ObjectFigures:
    """What a trainer's configuration is compared with, of the records of a shard.

    Attributes:
        classes: pairs of class text and id that objects have.
        images: those with objects.
        without_masks: how many of them have no mask, or an empty one for an object.
        mask_dtypes: how masks are written: as bytes (PNG) or as floats.
        keypoints: of an object, the fewest and the most; None without an object.
    """

    classes: frozenset[tuple[str | None, int | None]] = frozenset()
    images: int = 0
    without_masks: int = 0
    mask_dtypes: frozenset[Kind] = frozenset()
    keypoints: tuple[int, int] | None = None

    @classmethod
    def of(cls, batch: Batch) -> ObjectFigures:
        """Those of a batch, but for its classes."""
        counts = batch.box_counts
        having = counts > 0
        without = having.copy()
        dtypes = set()
        for column in batch.detections.columns_of(keys.MASK):
            if column.kind is not None and column.counts.any():
                dtypes.add(column.kind)
                without &= column.counts == 0
            if column.kind is Kind.BYTES:
                empty = column.values[:, 1] == 0
                without[np.repeat(np.arange(len(counts)), column.counts)[empty]] = True
        keypoints = None
        if having.any():
            points = batch.detections.column(keys.KEYPOINT_X, Kind.FLOAT).counts[having]
            each = counts[having]
            keypoints = int(np.min(points // each)), int(np.max(-(-points // each)))
        return cls(
            images=int(having.sum()),
            without_masks=int(without.sum()),
            mask_dtypes=frozenset(dtypes),
            keypoints=keypoints,
        )

    def __add__(self, other: ObjectFigures) -> ObjectFigures:
        ranges = [one for one in (self.keypoints, other.keypoints) if one]
        return ObjectFigures(
            self.classes | other.classes,
            self.images + other.images,
            self.without_masks + other.without_masks,
            self.mask_dtypes | other.mask_dtypes,
            (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
        )
