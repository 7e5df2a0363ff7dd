"""Gathers what is to be judged of many records at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tfod.check.finding import Place
from tfod.check.rules.boxes import Boxes

_RECORDS = 1024
_BOXES = 1 << 14


class Row(NamedTuple):
    """One record of a batch.

    Attributes:
        number, offset: of the record.
        filename, source_id: as the record has them.
        picture: hash of the picture's bytes, 0 for none.
        height, width: of the picture in pixels, None where unknown.
        boxes: how many boxes it has.
        texts, labels: what names the classes of its boxes; empty where the record has none.
    """

    number: int
    offset: int
    filename: str | None
    source_id: str | None
    picture: int
    height: int | None
    width: int | None
    boxes: int
    texts: Sequence[str]
    labels: Sequence[int]


class Batch:
    """The records since the last batch; their boxes are still bytes."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._sides: list[bytes] = []
        self._boxes = 0

    def add(self, row: Row, sides: Sequence[bytes]) -> bool:
        """Add a record.

        Args:
            row: what is known of it.
            sides: ``xmin, ymin, xmax, ymax`` of its boxes, each the bytes of little-endian float32.

        Returns:
            Whether there are enough for a batch.
        """
        self.rows.append(row)
        self._sides += sides
        self._boxes += row.boxes
        return len(self.rows) >= _RECORDS or self._boxes >= _BOXES

    def to_boxes(self) -> Boxes:
        """The boxes of all records that were added."""
        rows = self.rows
        counts = np.array([row.boxes for row in rows], np.int64)
        corners = np.empty((0, 4))
        if self._boxes:
            numbers = np.frombuffer(b"".join(self._sides), "<f4").astype(np.float64)
            # A record's sides lie behind each other: all xmin, all ymin, all xmax, all ymax.
            ends = np.cumsum(counts)
            first = np.arange(ends[-1]) + 3 * np.repeat(ends - counts, counts)
            steps = np.repeat(counts, counts)
            corners = numbers[first[:, None] + steps[:, None] * np.arange(4)]
        return Boxes(
            corners=corners,
            counts=counts,
            height=_sizes([row.height for row in rows]),
            width=_sizes([row.width for row in rows]),
            classes=[row.texts or row.labels for row in rows],
        )

    def uses(self) -> list[tuple[str | None, int | None]]:
        """Class text and id of every box, in order."""
        texts: list[str | None] = []
        labels: list[int | None] = []
        for row in self.rows:
            if row.boxes:
                texts += row.texts or (None,) * row.boxes
                labels += row.labels or (None,) * row.boxes
        return list(zip(texts, labels, strict=True))

    def place(self, row: int, shard: str) -> Place:
        """The place of one of the records."""
        one = self.rows[row]
        return Place(shard, one.number, one.offset, one.filename or None)


def _sizes(declared: Sequence[int | None]) -> np.ndarray:
    """Pixels, NaN where no size is declared or what is declared can be none."""
    sizes = np.array([one or np.nan for one in declared], np.float64)
    sizes[~(sizes > 0)] = np.nan
    return sizes
