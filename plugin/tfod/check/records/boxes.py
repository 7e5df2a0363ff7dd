"""The boxes of a batch of records as arrays, and the problems that rules find in them.

Coordinates are normalized, ``xmin, ymin, xmax, ymax``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from tfod.check.findings.finding import JsonValue, Problem
from tfod.detection.boxes import far_boxes

BOX_KEY = "image/object/bbox"


class ByRow(Protocol):
    """Values that are made for the records that are asked for, few of all."""

    def __getitem__(self, row: int, /) -> Sequence[object]: ...


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of a batch of records.

    Attributes:
        corners: float64 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``.
        counts: boxes of each record, int of shape (records,).
        height, width: of each record's image in pixels, NaN where unknown, shape (records,).
        classes: for each record what names the classes of its boxes.
    """

    corners: np.ndarray
    counts: np.ndarray
    height: np.ndarray
    width: np.ndarray
    classes: ByRow

    @cached_property
    def rows(self) -> np.ndarray:
        """Which record each box is of, shape (n,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def are_proper(self) -> bool:
        """Whether all boxes lie in their images and have an area: most rules are about others."""
        corners = self.corners
        with np.errstate(invalid="ignore"):
            inside = bool((corners >= 0).all() and (corners <= 1).all())
            return inside and bool((corners[:, :2] < corners[:, 2:]).all())

    @cached_property
    def finite(self) -> np.ndarray:
        """Boxes of four numbers, bool of shape (n,)."""
        found: np.ndarray = np.isfinite(self.corners).all(axis=1)
        return found

    @cached_property
    def pixels(self) -> np.ndarray:
        """Boxes whose coordinates look like pixels, bool of shape (n,)."""
        return far_boxes(self.corners)

    @cached_property
    def normalized(self) -> np.ndarray:
        """Boxes that the other rules are about, bool of shape (n,)."""
        if self.are_proper:
            return np.ones(len(self.corners), bool)
        found: np.ndarray = self.finite & ~self.pixels
        return found

    @cached_property
    def size(self) -> np.ndarray:
        """Width and height of each box, normalized, shape (n, 2)."""
        with np.errstate(invalid="ignore"):
            size: np.ndarray = self.corners[:, 2:] - self.corners[:, :2]
        return size

    @cached_property
    def size_in_pixels(self) -> np.ndarray:
        """The same in pixels; NaN where the image's size is unknown."""
        with np.errstate(invalid="ignore"):
            scale = np.repeat(np.stack((self.width, self.height)), self.counts, axis=1)
            scaled: np.ndarray = self.size * scale.T
        return scaled

    @cached_property
    def overhang(self) -> np.ndarray:
        """How far each box reaches outside [0, 1] at most, shape (n,); negative for none."""
        with np.errstate(invalid="ignore"):
            beyond: np.ndarray = np.maximum(self.corners - 1, -self.corners).max(axis=1)
        return beyond

    @cached_property
    def _splits(self) -> list[int]:
        return [0, *np.cumsum(self.counts).tolist()]

    def of(self, row: int) -> np.ndarray:
        """The boxes of one record, float64 of shape (n, 4)."""
        return self.corners[self._splits[row] : self._splits[row + 1]]

    def where(self, mask: np.ndarray, what: Callable[[int, list[float]], str]) -> BoxProblems:
        """Problems of the boxes that a mask marks.

        Args:
            mask: bool of shape (n,).
            what: from a box and its corners to what is wrong with it.
        """
        return BoxProblems(self, np.flatnonzero(mask), what)


@dataclass(frozen=True, eq=False)
class BoxProblems(Collection[Problem]):
    """Problems of boxes: of very many, most are only counted, so only some are put into words."""

    boxes: Boxes
    found: np.ndarray
    what: Callable[[int, list[float]], str]

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, one: object) -> bool:
        return any(problem == one for problem in self)

    def __iter__(self) -> Iterator[Problem]:
        starts = np.cumsum(self.boxes.counts) - self.boxes.counts if len(self) else ()
        for box in self.found.tolist():
            row, corners = int(self.boxes.rows[box]), self.boxes.corners[box].tolist()
            yield box_problem(row, box - int(starts[row]), corners, self.what(box, corners))


def box_problem(row: int, number: int, corners: list[float], what: str) -> Problem:
    """A problem of one box of a record."""
    rounded: list[JsonValue] = [float(f"{one:.6g}") for one in corners]
    return Problem(
        f"box {number} {what}", feature=BOX_KEY, value={"object": number, "box": rounded}, row=row
    )
