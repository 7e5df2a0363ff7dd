"""The shapes of a frame, as CVAT hands them to a format and as its XML has them.

What they enclose, their pixels, and what is written at them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tfod.detection.box_geometry import PixelBox, enclose_pixels, enclose_points, parse_degrees
from tfod.detection.images.mask_images import (
    box_outline,
    ellipse_outline,
    fill_box,
    fill_polygon,
    run_lengths,
)
from tfod.errors import TfodError

BOX, POLYGON, MASK, ELLIPSE, POINTS = "box", "polygon", "mask", "ellipse", "points"
AREA_KINDS = (BOX, POLYGON, MASK, ELLIPSE)
"""Tags of the shapes that cover an area, so that a box can stand for them."""
KINDS = {"rectangle": BOX, "polygon": POLYGON, "ellipse": ELLIPSE, "mask": MASK}
"""The same by CVAT's own names (its ShapeType)."""
Attributes = tuple[tuple[str, str], ...]
Runs: TypeAlias = "Sequence[int] | np.ndarray"
MOST_PIXELS = 1 << 28


@dataclass(frozen=True)
class CvatShape:
    """A shape that covers an area, or points; coordinates are in pixels, x before y.

    Attributes:
        kind: its tag: ``box``, ``polygon``, ``mask``, ``ellipse`` or ``points``.
        label: name of the class.
        extent: corners before the shape is turned; of a mask half-open.
        rotation: how far a box or an ellipse is turned about its centre, in degrees.
        points: outline of a polygon, or points, as x, y, x, y, …
        runs: of a mask, row by row within its extent: so many pixels outside, inside, outside, …
        occluded: whether something hides a part of it.
        group: number that shapes of one group share; 0 for none.
        attributes: names and values as the document has them.
        track: number, in its task, of the track that it is of; None for none, or where it is not
            known.
        z_order: its layer; what is in a higher one lies above. 0 where it is not known.
    """

    kind: str
    label: str
    extent: PixelBox
    rotation: float = 0.0
    points: tuple[float, ...] = ()
    runs: tuple[int, ...] = ()
    occluded: bool = False
    group: int = 0
    attributes: Attributes = ()
    track: int | None = None
    z_order: int = 0

    @property
    def _ellipse(self) -> tuple[float, float, float, float]:
        """Centre and radii, of any shape those of the ellipse in its extent."""
        left, top, right, bottom = self.extent
        return (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2

    @property
    def outline(self) -> Sequence[float]:
        """What a shape other than a mask is drawn by, as it is turned: x, y, x, y, …"""
        if self.kind == POLYGON:
            return self.points
        if self.kind == ELLIPSE:
            return ellipse_outline(*self._ellipse, self.rotation)
        return box_outline(self.extent, self.rotation)

    @property
    def corners(self) -> PixelBox:
        """The enclosing box: of a turned shape larger than its extent, of a mask maybe smaller."""
        if self.kind == MASK:
            return _mask_corners(self.runs, self.extent)
        if not self.rotation:
            return self.extent
        x, y, rx, ry = self._ellipse
        if self.kind != ELLIPSE:
            return enclose_points(self.outline)
        angle = math.radians(self.rotation)
        half_width = math.hypot(rx * math.cos(angle), ry * math.sin(angle))
        half_height = math.hypot(rx * math.sin(angle), ry * math.cos(angle))
        return x - half_width, y - half_height, x + half_width, y + half_height


@dataclass(frozen=True)
class CvatTag:
    """A class of the whole image."""

    label: str
    attributes: Attributes = ()


@dataclass(frozen=True)
class CvatImage:
    """One ``<image>`` of "CVAT for images".

    Attributes:
        number: of the frame, as the document has it.
        name, subset: '' where the document has none.
        height, width: in pixels.
        shapes: those that cover an area, in order.
        tags: classes of the whole image.
        others: how many shapes there are besides, by tag.
        task: number of the task that it is of, where that is known.
    """

    number: int
    name: str
    subset: str
    height: int | None
    width: int | None
    shapes: tuple[CvatShape, ...] = ()
    tags: tuple[CvatTag, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    task: int | None = None


def convert_frame(frame: Any, *_: object) -> list[CvatImage]:
    """What is drawn on a frame, and its name and size.

    For the parameter ``convert_annotations`` of CVAT's ``GetCVATDataExtractor``: the list is then
    what the extractor's item has for annotations. It hands the frame itself over, whose name is as
    people see it; items have lost the case of its extension since 2.73. Values are rounded as in
    CVAT's XML (``dump_as_cvat_annotation`` in its ``dataset_manager/formats/cvat.py``), so that an
    export of the server's and one of the bridge's are the same.

    Args:
        frame: CVAT's, with ``tags`` and ``labeled_shapes``.
    """
    kinds = [str(one.type) for one in frame.labeled_shapes]
    shapes = (
        make_shape(
            kind,
            one.points,
            one.rotation,
            label=one.label,
            occluded=bool(one.occluded),
            group=one.group or 0,
            attributes=_attributes(one.attributes),
            track=getattr(one, "track_id", None),
            z_order=one.z_order or 0,
        )
        for kind, one in zip(kinds, frame.labeled_shapes, strict=True)
        if kind in KINDS
    )
    image = CvatImage(
        number=frame.frame,
        name=frame.name,
        subset="",
        height=frame.height,
        width=frame.width,
        shapes=tuple(shapes),
        tags=tuple(CvatTag(tag.label, _attributes(tag.attributes)) for tag in frame.tags),
        others=Counter(kind for kind in kinds if kind not in KINDS),
        task=getattr(frame, "task_id", None),
    )
    return [image]


def make_shape(
    kind: str, points: Sequence[float], rotation: float = 0.0, digits: int = 2, **marks: Any
) -> CvatShape:
    """A shape from the points that CVAT has of it.

    Args:
        kind: CVAT's ShapeType, one of :data:`KINDS`.
        points: of a rectangle its corners, of a polygon its outline, of an ellipse its centre and
            the rightmost x and topmost y, of a mask its runs and then its extent.
        rotation: in degrees; counts for rectangles and ellipses.
        digits: of a pixel that are kept: those of CVAT's XML, unless somebody else wrote it.
        marks: the other fields of the shape.
    """
    extent: PixelBox
    if kind == "mask":
        first_column, first_row, last_column, last_row = (int(value) for value in points[-4:])
        marks["runs"] = tuple(int(value) for value in points[:-4])
        extent = first_column, first_row, last_column + 1, last_row + 1
    elif kind == "polygon":
        marks["points"] = _rounded(points, digits)
        extent = enclose_points(marks["points"])
    elif kind == "ellipse":
        x, y, right, top = points
        cx, cy, rx, ry = _rounded((x, y, right - x, y - top), digits)
        extent = cx - rx, cy - ry, cx + rx, cy + ry
    else:
        left, top, right, bottom = _rounded(points, digits)
        extent = left, top, right, bottom
    turns = kind in ("rectangle", "ellipse")
    return CvatShape(
        kind=KINDS[kind],
        extent=extent,
        rotation=round(float(rotation), digits) if turns and parse_degrees(rotation) else 0.0,
        **marks,
    )


def _rounded(values: Iterable[float], digits: int) -> tuple[float, ...]:
    return tuple(round(float(value), digits) for value in values)


def _attributes(attributes: Iterable[Any]) -> Attributes:
    return tuple((one.name, str(one.value)) for one in attributes)


def _mask_corners(runs: tuple[int, ...], extent: PixelBox) -> PixelBox:
    """What the pixels of a mask enclose; its extent where it has none."""
    left, top = (int(value) for value in extent[:2])
    corners = enclose_pixels(_pixels_of_extent(runs, extent))
    if corners is None:
        return extent
    return left + corners[0], top + corners[1], left + corners[2], top + corners[3]


def draw_shape(shape: CvatShape, size: tuple[int, int]) -> np.ndarray:
    """The pixels of a shape, bool of shape (height, width); what is outside is cut off.

    Raises:
        TfodError: there are more than any frame has.
    """
    _require_drawable(size)
    if shape.kind == MASK:
        return decode_runs(shape.runs, shape.extent, size)
    if shape.kind == BOX and not shape.rotation:
        return fill_box(shape.extent, size)
    return fill_polygon(shape.outline, size)


def decode_runs(runs: Runs, extent: PixelBox, size: tuple[int, int]) -> np.ndarray:
    """A mask from CVAT's runs: row by row in its extent, so many pixels outside, inside, …

    Args:
        runs: as many pixels in all as the extent has.
        extent: left, top, right, bottom, half-open.
        size: height and width of the image; what lies outside of it is cut off.

    Raises:
        TfodError: there are more pixels than any frame has.
    """
    _require_drawable(size)
    left, top, right, bottom = (int(value) for value in extent)
    part = _pixels_of_extent(runs, extent)
    height, width = size
    mask = np.zeros(size, bool)
    rows = slice(max(top, 0), min(bottom, height))
    columns = slice(max(left, 0), min(right, width))
    part = part[
        rows.start - top : max(rows.stop - top, 0),
        columns.start - left : max(columns.stop - left, 0),
    ]
    mask[rows, columns] = part
    return mask


def _pixels_of_extent(runs: Runs, extent: PixelBox) -> np.ndarray:
    left, top, right, bottom = (int(value) for value in extent)
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(bottom - top, right - left)


def _require_drawable(size: tuple[int, int]) -> None:
    height, width = size
    if height * width > MOST_PIXELS:
        raise TfodError(f"a frame of {width}x{height} is too large for masks; correct its size")


def encode_runs(mask: np.ndarray) -> tuple[list[int], PixelBox] | None:
    """CVAT's runs of a mask and their extent, half-open; None where the mask is empty."""
    corners = enclose_pixels(mask)
    if corners is None:
        return None
    left, top, right, bottom = (int(value) for value in corners)
    return run_lengths(mask[top:bottom, left:right].ravel()), corners
