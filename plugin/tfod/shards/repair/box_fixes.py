"""Fixes of boxes: BOX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from tfod.check.findings.finding import JsonValue, plural
from tfod.check.records.column_order import ROUNDING, TOLERATED, ColumnOrder
from tfod.check.records.expectation import BOX_PREFIX
from tfod.check.rules.boxes import swapped_axes
from tfod.errors import TfodError
from tfod.shards.repair.objects import CannotDropError, drop_objects, object_values, own_attributes
from tfod.shards.repair.record import Change, EditedRecord

FAR = TOLERATED - 1 + ROUNDING
"""A box that reaches farther outside is BOX003's, others are BOX004's."""


def read_columns(record: EditedRecord, order: ColumnOrder) -> Iterator[Change]:
    """Read the boxes of a record in another order of their columns, if it has any.

    Raises:
        TfodError: the columns were mixed up in pixels, and the size of the image is not known.
    """
    boxes = record.objects
    if boxes is None:
        return
    sizes = boxes.width[boxes.rows], boxes.height[boxes.rows]
    if order.in_pixels and not all(np.isfinite(size).all() for size in sizes):
        name = record.text(record.field_mapping.filename) or "a record without a file name"
        raise TfodError(f"--pixel-columns: the size of the image is not known of {name}")
    after = order.read(boxes.corners, *sizes)
    record.set_boxes(after)
    yield Change(
        f"{plural(len(after), 'box')} read by {order}: the first, "
        f"{_spelled(boxes.corners[0])}, became {_spelled(after[0])}",
        feature=BOX_PREFIX,
        before=[_json(number, box) for number, box in enumerate(boxes.corners)],
        after=[_json(number, box) for number, box in enumerate(after)],
        code="BOX013",
    )


def drop_not_finite(record: EditedRecord) -> Iterator[Change]:
    """A box with NaN or infinity is nowhere."""
    yield from _drop(record, ~record.boxes.finite, "has a coordinate that is not a number")


def put_in_order(record: EditedRecord) -> Iterator[Change]:
    """The smaller coordinate is the left or upper one."""
    boxes = record.boxes
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized & (boxes.size < 0).any(axis=1)
    pairs = np.sort(boxes.corners.reshape(-1, 2, 2), axis=1)
    yield from _rewrite(record, mask, pairs.reshape(-1, 4), "put in order")


def clip_far_outside(record: EditedRecord) -> Iterator[Change]:
    """What is outside the image is no part of an object, if these are parts of this image."""
    if record.size_is_doubtful or not reaches_far(record):
        return
    boxes = record.boxes
    if not any(True for _ in swapped_axes(boxes)):  # x divided by the height
        yield from _clip(record, boxes.normalized & (boxes.overhang > FAR))


def clip_slightly_outside(record: EditedRecord) -> Iterator[Change]:
    """What is outside the image is no part of an object."""
    boxes, outside = record.boxes, record.boxes.overhang
    yield from _clip(record, boxes.normalized & (outside > ROUNDING) & (outside <= FAR))


def drop_without_area(record: EditedRecord) -> Iterator[Change]:
    """A box without width or height holds nothing."""
    boxes, size = record.boxes, record.boxes.size
    mask = boxes.normalized & (size == 0).any(axis=1) & (size >= 0).all(axis=1)
    yield from _drop(record, mask, "has no area")


def drop_duplicates(record: EditedRecord) -> Iterator[Change]:
    """An object that comes twice with all its values is one object."""
    boxes = record.boxes
    if len(set(map(tuple, boxes.corners.tolist()))) == len(boxes.corners):
        return
    try:
        lists = [*object_values(record).values(), own_attributes(record)]
    except CannotDropError:
        return
    seen = set()
    again = np.zeros(len(boxes.corners), bool)
    for number in np.flatnonzero(boxes.finite).tolist():
        rows = (one[number] for one in lists)
        # -0.0 is 0.0.
        values = tuple(bytes(row + 0) if isinstance(row, np.ndarray) else row for row in rows)
        again[number] = values in seen
        seen.add(values)
    yield from _drop(record, again, "is the same as one before it")


def reaches_far(record: EditedRecord) -> bool:
    """Whether a box is so far outside that another image may be meant."""
    boxes = record.objects
    return boxes is not None and bool((boxes.normalized & (boxes.overhang > FAR)).any())


def _clip(record: EditedRecord, mask: np.ndarray) -> Iterator[Change]:
    """Clip boxes to the image, and remove those of which nothing is left."""
    clipped = np.clip(record.boxes.corners, 0.0, 1.0)
    # An inverted box has an extent, too; it is put in order by its own rule.
    gone = mask & (clipped[:, 2:] == clipped[:, :2]).any(axis=1)
    yield from _rewrite(record, mask & ~gone, clipped, "clipped to the image")
    yield from _drop(record, gone, "lies outside the image")


def _rewrite(
    record: EditedRecord, mask: np.ndarray, corners: np.ndarray, what: str
) -> Iterator[Change]:
    if not mask.any():
        return
    before = record.boxes.corners
    after = np.where(mask[:, None], corners, before)
    record.set_boxes(after)
    for number in np.flatnonzero(mask).tolist():
        yield Change(
            f"box {number} {what}: {_spelled(before[number])} became {_spelled(after[number])}",
            feature=BOX_PREFIX,
            before=_json(number, before[number]),
            after=_json(number, after[number]),
        )


def _drop(record: EditedRecord, mask: np.ndarray, why: str) -> Iterator[Change]:
    """Remove the marked objects, if that can be done with all their lists."""
    if not mask.any():
        return
    before = record.boxes.corners
    numbers = np.flatnonzero(mask).tolist()
    with contextlib.suppress(CannotDropError):
        drop_objects(record, numbers)
        for number in numbers:
            yield Change(
                f"object {number} removed, its box {why}: {_spelled(before[number])}",
                feature=BOX_PREFIX,
                before=_json(number, before[number]),
                objects_dropped=1,
            )


def _spelled(corners: np.ndarray) -> str:
    return ", ".join(f"{value:.6g}" for value in corners.tolist())


def _json(number: int, corners: np.ndarray) -> dict[str, JsonValue]:
    # JSON has no NaN.
    box: list[JsonValue] = [
        value if np.isfinite(value) else repr(value) for value in corners.tolist()
    ]
    return {"object": number, "box": box}
