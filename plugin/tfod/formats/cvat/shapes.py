"""The shapes of a frame, as in CVAT's XML: their boxes, outlines, pixels and attributes."""

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
"""XML tags of the shapes that cover an area, so that a box can represent them."""
KINDS = {"rectangle": BOX, "polygon": POLYGON, "ellipse": ELLIPSE, "mask": MASK}
"""XML tags by CVAT's names of these shapes (ShapeType)."""
Attributes = tuple[tuple[str, str], ...]
Runs: TypeAlias = "Sequence[int] | np.ndarray"
MAX_PIXELS = 1 << 28


@dataclass(frozen=True)
class CvatShape:
    """A shape that covers an area, or points. Coordinates are in pixels, x before y.

    Attributes:
        kind: XML tag: ``box``, ``polygon``, ``mask``, ``ellipse`` or ``points``.
        extent: corners before rotation; half-open for a mask.
        rotation: rotation of a box or an ellipse about its centre, in degrees.
        points: outline of a polygon, or points, as x, y, x, y, …
        runs: run lengths of a mask, row by row within its extent: outside, inside, outside, …
        occluded: whether a part of the object is hidden.
        group: number of the group; 0 for none.
        attributes: names and values as texts.
        track: number of the track in the task; None if unknown or none.
        z_order: layer; higher layers hide lower ones. 0 if unknown.
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
        """Centre and radii of the ellipse that fills the extent."""
        left, top, right, bottom = self.extent
        return (left + right) / 2, (top + bottom) / 2, (right - left) / 2, (bottom - top) / 2

    @property
    def outline(self) -> Sequence[float]:
        """The rotated outline of a shape other than a mask: x, y, x, y, …"""
        if self.kind == POLYGON:
            return self.points
        if self.kind == ELLIPSE:
            return ellipse_outline(*self._ellipse, self.rotation)
        return box_outline(self.extent, self.rotation)

    @property
    def corners(self) -> PixelBox:
        """The enclosing box; larger than the extent if rotated, and often smaller for a mask."""
        if self.kind == MASK:
            return _enclose_mask(self.runs, self.extent)
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
    """An ``<image>`` of "CVAT for images".

    Attributes:
        number: number of the frame in the document.
        name, subset: names of the image and its subset; '' if missing.
        shapes: shapes that cover an area, in order.
        tags: classes of the whole image.
        other_shapes: counts of other shapes by tag.
        task: number of the task, if known.
    """

    number: int
    name: str
    subset: str
    height: int | None
    width: int | None
    shapes: tuple[CvatShape, ...] = ()
    tags: tuple[CvatTag, ...] = ()
    other_shapes: Mapping[str, int] = field(default_factory=dict)
    task: int | None = None


def convert_frame(frame: Any, *_: object) -> list[CvatImage]:
    """Convert a frame of CVAT with its shapes and tags.

    This is the parameter ``convert_annotations`` of CVAT's ``GetCVATDataExtractor``, whose items
    then have this list as annotations. It receives the frame itself with its original name; names
    of items have lost the case of the extension since 2.73. Values are rounded as in CVAT's XML
    (``dump_as_cvat_annotation``), so that exports of the server and of the bridge are the same.
    """
    kinds = [str(shape.type) for shape in frame.labeled_shapes]
    shapes = (
        make_shape(
            kind,
            shape.points,
            shape.rotation,
            label=shape.label,
            occluded=bool(shape.occluded),
            group=shape.group or 0,
            attributes=_to_texts(shape.attributes),
            track=getattr(shape, "track_id", None),
            z_order=shape.z_order or 0,
        )
        for kind, shape in zip(kinds, frame.labeled_shapes, strict=True)
        if kind in KINDS
    )
    image = CvatImage(
        number=frame.frame,
        name=frame.name,
        subset="",
        height=frame.height,
        width=frame.width,
        shapes=tuple(shapes),
        tags=tuple(CvatTag(tag.label, _to_texts(tag.attributes)) for tag in frame.tags),
        other_shapes=Counter(kind for kind in kinds if kind not in KINDS),
        task=getattr(frame, "task_id", None),
    )
    return [image]


def make_shape(
    kind: str, points: Sequence[float], rotation: float = 0.0, decimals: int = 2, **fields: Any
) -> CvatShape:
    """Make a shape from CVAT's points.

    Args:
        kind: CVAT's ShapeType, one of :data:`KINDS`.
        points: corners of a rectangle; outline of a polygon; centre, rightmost x and topmost y of
            an ellipse; run lengths and extent of a mask.
        rotation: rotation of a rectangle or an ellipse, in degrees.
        decimals: decimals to keep; CVAT's XML has 2.
        fields: remaining fields of the shape.
    """
    extent: PixelBox
    if kind == "mask":
        first_column, first_row, last_column, last_row = (int(value) for value in points[-4:])
        fields["runs"] = tuple(int(value) for value in points[:-4])
        extent = first_column, first_row, last_column + 1, last_row + 1
    elif kind == "polygon":
        fields["points"] = _round(points, decimals)
        extent = enclose_points(fields["points"])
    elif kind == "ellipse":
        x, y, right, top = points
        cx, cy, rx, ry = _round((x, y, right - x, y - top), decimals)
        extent = cx - rx, cy - ry, cx + rx, cy + ry
    else:
        left, top, right, bottom = _round(points, decimals)
        extent = left, top, right, bottom
    is_rotated = kind in ("rectangle", "ellipse") and parse_degrees(rotation)
    return CvatShape(
        kind=KINDS[kind],
        extent=extent,
        rotation=round(float(rotation), decimals) if is_rotated else 0.0,
        **fields,
    )


def _round(values: Iterable[float], decimals: int) -> tuple[float, ...]:
    return tuple(round(float(value), decimals) for value in values)


def _to_texts(attributes: Iterable[Any]) -> Attributes:
    return tuple((attribute.name, str(attribute.value)) for attribute in attributes)


def _enclose_mask(runs: tuple[int, ...], extent: PixelBox) -> PixelBox:
    """Return the box that encloses the pixels of a mask, or its extent if it is empty."""
    left, top = (int(value) for value in extent[:2])
    corners = enclose_pixels(_decode_extent(runs, extent))
    if corners is None:
        return extent
    return left + corners[0], top + corners[1], left + corners[2], top + corners[3]


def draw_shape(shape: CvatShape, size: tuple[int, int]) -> np.ndarray:
    """Return the pixels of a shape within the image, bool of shape (height, width)."""
    _require_drawable(size)
    if shape.kind == MASK:
        return decode_runs(shape.runs, shape.extent, size)
    if shape.kind == BOX and not shape.rotation:
        return fill_box(shape.extent, size)
    return fill_polygon(shape.outline, size)


def decode_runs(runs: Runs, extent: PixelBox, size: tuple[int, int]) -> np.ndarray:
    """Decode the pixels of a mask within the image, bool of shape (height, width).

    ``runs`` and ``extent`` are as in :class:`CvatShape`, ``size`` is the height and width of the
    image. Raises TfodError if the size is too large for a frame.
    """
    _require_drawable(size)
    left, top, right, bottom = (int(value) for value in extent)
    part = _decode_extent(runs, extent)
    height, width = size
    mask = np.zeros(size, bool)
    rows = slice(max(top, 0), min(bottom, height))
    columns = slice(max(left, 0), min(right, width))
    mask[rows, columns] = part[
        rows.start - top : max(rows.stop - top, 0),
        columns.start - left : max(columns.stop - left, 0),
    ]
    return mask


def _decode_extent(runs: Runs, extent: PixelBox) -> np.ndarray:
    left, top, right, bottom = (int(value) for value in extent)
    return np.repeat(np.arange(len(runs)) % 2 == 1, runs).reshape(bottom - top, right - left)


def _require_drawable(size: tuple[int, int]) -> None:
    height, width = size
    if height * width > MAX_PIXELS:
        raise TfodError(f"a frame of {width}x{height} is too large for masks; correct its size")


def encode_runs(mask: np.ndarray) -> tuple[list[int], PixelBox] | None:
    """Return CVAT's run lengths of a mask and their half-open extent; None for an empty mask."""
    corners = enclose_pixels(mask)
    if corners is None:
        return None
    left, top, right, bottom = (int(value) for value in corners)
    return run_lengths(mask[top:bottom, left:right].ravel()), corners
