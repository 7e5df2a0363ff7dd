"""Figures of the objects of a shard: what a trainer's configuration is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tfod.detection import keys
from tfod.example.wire import Kind

if TYPE_CHECKING:
    from tfod.checker.analysis.batch import Batch, Use


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

    classes: frozenset[Use] = frozenset()
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
        for column in batch.detections.find_columns(keys.MASK):
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
