"""Statistics of the objects of a shard, to compare with a trainer's configuration."""

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
    """Statistics of the objects of a shard.

    Attributes:
        classes: pairs of class text and id of the objects.
        images: number of images with objects.
        without_masks: number of these images that have no masks, or an empty mask.
        mask_dtypes: types of the mask values: bytes (PNG) or floats.
        keypoints: minimum and maximum number of keypoints per object; None without objects.
    """

    classes: frozenset[Use] = frozenset()
    images: int = 0
    without_masks: int = 0
    mask_dtypes: frozenset[Kind] = frozenset()
    keypoints: tuple[int, int] | None = None

    @classmethod
    def of(cls, batch: Batch) -> ObjectFigures:
        """Compute the statistics of a batch, except for the classes."""
        counts = batch.box_counts
        has_objects = counts > 0
        lacks_masks = has_objects.copy()
        dtypes = set()
        for column in batch.detections.find_columns(keys.MASK):
            if column.kind is not None and column.counts.any():
                dtypes.add(column.kind)
                lacks_masks &= column.counts == 0
            if column.kind is Kind.BYTES:
                empty = column.values[:, 1] == 0
                lacks_masks[np.repeat(np.arange(len(counts)), column.counts)[empty]] = True
        keypoints = None
        if has_objects.any():
            points = batch.detections.column(keys.KEYPOINT_X, Kind.FLOAT).counts[has_objects]
            objects = counts[has_objects]
            # Rounded down and up, in case the number differs between the objects of an image.
            keypoints = int(np.min(points // objects)), int(np.max(-(-points // objects)))
        return cls(
            images=int(has_objects.sum()),
            without_masks=int(lacks_masks.sum()),
            mask_dtypes=frozenset(dtypes),
            keypoints=keypoints,
        )

    def __add__(self, other: ObjectFigures) -> ObjectFigures:
        ranges = [limits for limits in (self.keypoints, other.keypoints) if limits]
        return ObjectFigures(
            self.classes | other.classes,
            self.images + other.images,
            self.without_masks + other.without_masks,
            self.mask_dtypes | other.mask_dtypes,
            (min(low for low, _ in ranges), max(high for _, high in ranges)) if ranges else None,
        )
