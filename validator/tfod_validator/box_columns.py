"""Gathers the numbers of many records, to judge their boxes at once as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfod_validator.finding import Place
from tfod_validator.rules.boxes import Boxes

_RECORDS = 256
_BOXES = 1 << 14
_NOTHING: Sequence[object] = ()


class BoxColumns:
    """The boxes of the records since the last batch, still as their bytes."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int, str | None]] = []
        self._sides: tuple[list[bytes], ...] = ([], [], [], [])
        self._counts: list[int] = []
        self._heights: list[float] = []
        self._widths: list[float] = []
        self._classes: list[Sequence[object]] = []
        self._boxes = 0

    def add(
        self,
        place: tuple[int, int, str | None],
        sides: Sequence[bytes],
        size: tuple[int | None, int | None],
        classes: Sequence[object] | None,
    ) -> bool:
        """Add a record.

        Args:
            place: its number, offset and file name.
            sides: ``xmin, ymin, xmax, ymax`` of its boxes, each the bytes of little-endian float32.
            size: height and width of its picture in pixels, None where unknown.
            classes: what names the class of each box.

        Returns:
            Whether there are enough for a batch.
        """
        count = len(sides[0]) >> 2
        self.places.append(place)
        for column, side in zip(self._sides, sides, strict=True):
            column.append(side)
        self._counts.append(count)
        height, width = size
        self._heights.append(height or np.nan)
        self._widths.append(width or np.nan)
        self._classes.append(_NOTHING if classes is None else classes)
        self._boxes += count
        return len(self._counts) >= _RECORDS or self._boxes >= _BOXES

    def to_boxes(self) -> Boxes:
        """The boxes of all records that were added."""
        columns = [np.frombuffer(b"".join(column), "<f4") for column in self._sides]
        return Boxes(
            corners=np.stack(columns, axis=1).astype(np.float64),
            counts=np.array(self._counts, np.int64),
            height=np.array(self._heights),
            width=np.array(self._widths),
            classes=self._classes,
        )

    def place(self, row: int, shard: str) -> Place:
        """The place of one of the records."""
        return Place(shard, *self.places[row])
