"""Fixes of boxes: BOX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tfod.check.amounts import plural
from tfod.check.finding import JsonValue
from tfod.check.records.batch import BOX_PREFIX
from tfod.check.records.column_order import ROUNDING, BoxColumns, ColumnOrder, is_many
from tfod.errors import TfodError
from tfod.shards.repair.changes import Change
from tfod.shards.repair.objects import (
    CannotDropError,
    drop_objects,
    object_values,
    own_attributes,
)
from tfod.shards.repair.record import FAR, EditedRecord

CLIPPED = frozenset({"BOX003", "BOX004"})
ONE_BY_ONE = CLIPPED | {"BOX006"}
"""Repairs that give a box other coordinates, which is right where it is a slip of that box."""


def why_not_one_by_one(columns: BoxColumns, codes: frozenset[str]) -> str | None:
    """Why the boxes of shards are not to be repaired one by one; None where they may be.

    Args:
        columns: of the boxes as the repair found them.
        codes: of the rules whose findings are to be repaired.
    """
    orders = [str(order) for order in columns.candidates]
    if orders and codes & ONE_BY_ONE:
        skip = ",".join(sorted(codes & ONE_BY_ONE))
        return (
            f"{columns.improper:,} of {columns.boxes:,} boxes are inverted or far outside, and "
            f"none is with other columns: pass {' or '.join(orders)}, and look at the result with "
            f"tfod show; or pass --skip {skip} to leave them"
        )
    if is_many(columns.inverted, columns.boxes) and "BOX006" in codes:
        return (
            f"{columns.inverted:,} of {columns.boxes:,} boxes are inverted, which are too many for "
            "slips of single boxes; correct the script that wrote them, pass --columns if you know "
            "which of their columns it mixed up, or --skip BOX006 to leave them"
        )
    clipped = codes & CLIPPED
    if is_many(columns.outside, columns.boxes) and clipped:
        return (
            f"{columns.outside:,} of {columns.boxes:,} boxes are far outside the image, which are "
            "too many for slips of single boxes; correct the script that wrote them, or pass "
            f"--skip {','.join(sorted(clipped))} to leave them"
        )
    return None


def read_columns(record: EditedRecord, order: ColumnOrder) -> Iterator[Change]:
    """Read the boxes of a record in another order of their columns.

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
    boxes = record.objects
    if boxes is not None:
        yield from _drop(record, ~boxes.finite, "has a coordinate that is not a number")


def put_in_order(record: EditedRecord) -> Iterator[Change]:
    """The smaller coordinate is the left or upper one."""
    boxes = record.objects
    if boxes is None:
        return
    with np.errstate(invalid="ignore"):
        mask = boxes.normalized & (boxes.size < 0).any(axis=1)
    pairs = np.sort(boxes.corners.reshape(-1, 2, 2), axis=1)
    yield from _rewrite(record, mask, pairs.reshape(-1, 4), "put in order")


def clip_far_outside(record: EditedRecord) -> Iterator[Change]:
    """What is outside the image is no part of an object, if these are parts of this image."""
    boxes = record.objects
    if boxes is None or record.size_is_doubtful:
        return
    mask = boxes.normalized & (boxes.overhang > FAR)
    if mask.any() and not record.looks_swapped():
        yield from _clip(record, mask)


def clip_slightly_outside(record: EditedRecord) -> Iterator[Change]:
    """What is outside the image is no part of an object."""
    boxes = record.objects
    if boxes is not None:
        outside = boxes.overhang
        mask = boxes.normalized & (outside > ROUNDING) & (outside <= FAR)
        yield from _clip(record, mask)


def drop_without_area(record: EditedRecord) -> Iterator[Change]:
    """A box without width or height holds nothing."""
    boxes = record.objects
    if boxes is not None:
        size = boxes.size
        mask = boxes.normalized & (size == 0).any(axis=1) & (size >= 0).all(axis=1)
        yield from _drop(record, mask, "has no area")


def drop_duplicates(record: EditedRecord) -> Iterator[Change]:
    """An object that comes twice with all its values is one object."""
    boxes = record.objects
    if boxes is None or len(set(map(tuple, boxes.corners.tolist()))) == len(boxes.corners):
        return
    try:
        shares = object_values(record)
        own = own_attributes(record)
    except CannotDropError:
        return
    seen = set()
    again = np.zeros(len(boxes.corners), bool)
    for number in np.flatnonzero(boxes.finite).tolist():
        values = tuple(
            bytes(rows[number] + 0) if isinstance(rows[number], np.ndarray) else rows[number]
            for rows in (*shares.values(), own)
        )
        again[number] = values in seen
        seen.add(values)
    yield from _drop(record, again, "is the same as one before it")


def _clip(record: EditedRecord, mask: np.ndarray) -> Iterator[Change]:
    """Clip boxes to the image, and remove those of which nothing is left."""
    boxes = record.objects
    if boxes is None or not mask.any():
        return
    clipped = np.clip(boxes.corners, 0.0, 1.0)
    # An inverted box has an extent, too; it is put in order by its own rule.
    gone = mask & (clipped[:, 2:] == clipped[:, :2]).any(axis=1)
    yield from _rewrite(record, mask & ~gone, clipped, "clipped to the image")
    yield from _drop(record, gone, "lies outside the image")


def _rewrite(
    record: EditedRecord, mask: np.ndarray, corners: np.ndarray, what: str
) -> Iterator[Change]:
    """Give the marked boxes other corners."""
    boxes = record.objects
    if boxes is None or not mask.any():
        return
    before = boxes.corners
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
    boxes = record.objects
    numbers: Sequence[int] = np.flatnonzero(mask).tolist()
    if boxes is None or not numbers:
        return
    before = boxes.corners
    try:
        drop_objects(record, numbers)
    except CannotDropError:
        return
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
