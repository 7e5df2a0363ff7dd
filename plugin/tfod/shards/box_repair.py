"""Repair of boxes that need a decision: clip those over the edge, or drop all that are invalid."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tfod.checker.advice import Causes
from tfod.checker.analysis.column_order import MAX_COORDINATE
from tfod.checker.finding import Finding, JsonValue
from tfod.detection import keys
from tfod.detection.attributes import select_extra_attributes
from tfod.detection.box_geometry import find_pixel_boxes
from tfod.detection.detections import Detections
from tfod.errors import TfodError
from tfod.example.example import bytes_feature, float_feature, int64_feature
from tfod.example.example_batch import Column, ExampleBatch, copy_bytes
from tfod.example.wire import Kind
from tfod.formats.numbers import multiply_as_typed
from tfod.formats.options import OddBoxes
from tfod.formats.reading import odd_boxes
from tfod.shards.fixes import EditedRecord, make_change
from tfod.sources.layouts import BOX_KEY
from tfod.tfrecord.reader import Record, RecordBatch

if TYPE_CHECKING:
    from tfod.checker.report import Report

_PIXELS = "boxes that look like pixels"
_OUTSIDE = ("BOX003", "BOX004")
_CODES = {
    odd_boxes.NOT_FINITE: "BOX002",
    odd_boxes.INVERTED: "BOX006",
    odd_boxes.NO_AREA: "BOX007",
    _PIXELS: "BOX005",
}
"""The rule that reports each defect; those outside the image depend on the distance."""
_REASONS = {
    odd_boxes.NOT_FINITE: "a coordinate is not a finite number",
    odd_boxes.INVERTED: "its maximum is below its minimum",
    odd_boxes.NO_AREA: "it has no width or no height",
    odd_boxes.OUTSIDE: "it is wholly outside the image",
    odd_boxes.OVER_THE_EDGE: "it extends outside the image",
    _PIXELS: "it looks like pixels",
}
_UNCLEAR = frozenset(("BOX001", "BOX015", "BOX016", "EXA013"))
"""Problems because of which it is unclear which values belong to which object."""
_POINTS = (keys.KEYPOINT_X, keys.KEYPOINT_Y, keys.KEYPOINT_VISIBILITY, keys.KEYPOINT_TEXT)


def find_causes(report: Report) -> list[Finding]:
    """Return the findings because of which all boxes of a shard are wrong, even if they look right.

    Then no single box may be clipped or dropped.
    """
    return Causes(report).find_general({*_CODES.values(), *_OUTSIDE})


def removes(policy: OddBoxes, finding: Finding) -> bool:
    """Return whether a repair with this policy removes a finding, because it changes its box."""
    if not isinstance(finding.value, dict) or "box" not in finding.value:
        return False
    (defect,) = _find_defects(np.array([finding.value["box"]], np.float64))
    if policy is OddBoxes.CLIP:
        return defect == odd_boxes.OVER_THE_EDGE and finding.code in _OUTSIDE
    return bool(defect)


class BoxRepair:
    """Clips boxes or drops their objects, and counts them.

    Args:
        policy: CLIP or DROP; None to leave all boxes.
        includes: whether the findings of a rule are to be repaired.

    Attributes:
        odd_rows: rows of the batch that have an invalid box.
    """

    def __init__(self, policy: OddBoxes | None, includes: Callable[[str], bool]) -> None:
        self._policy, self._includes = policy, includes
        self._boxes = self._dropped = 0
        self.odd_rows: Set[int] = frozenset()

    def begin(self, detections: Detections) -> None:
        """Find the rows of a batch to repair."""
        if self._policy is None:
            return
        boxes = np.array(_find_defects(detections.boxes), object)
        self._boxes += len(boxes)
        first_boxes = detections.box_splits[1:]
        self.odd_rows = {*np.searchsorted(first_boxes, np.flatnonzero(boxes), "right").tolist()}

    def require_plausible(self) -> None:
        """Raise TfodError if no object would remain."""
        if 0 < self._boxes == self._dropped:
            raise TfodError(
                f"nothing is written: --odd-boxes drop would drop all {self._boxes:,} objects; "
                "correct the script that wrote the boxes"
            )

    def repair(self, record: EditedRecord) -> tuple[EditedRecord | None, list[Finding]]:
        """Return a record with its other fixes as it is with its new boxes, and the changes.

        The record is None if it is dropped, because each record of its layout is one object.
        """
        new = _read_again(record)
        first, last = new.detections.box_splits[:2].tolist()
        boxes = new.detections.boxes[first:last].astype(np.float64)
        clipped, kept, changes = boxes.copy(), np.ones(len(boxes), bool), []
        for number, defect in enumerate(_find_defects(boxes)):
            code = _CODES.get(defect) or _find_code(boxes[number])
            is_clipped = self._policy is OddBoxes.CLIP
            can_be_changed = defect == odd_boxes.OVER_THE_EDGE if is_clipped else defect
            if not can_be_changed or not self._includes(code):
                continue
            clipped[number] = np.clip(boxes[number], 0, 1)
            kept[number] = is_clipped
            after = clipped[number].tolist() if is_clipped else None
            changes.append(_describe(number, boxes[number].tolist(), after, defect, code))
        if not changes or {item.code for item in new.detections.problems} & _UNCLEAR:
            return record, []
        new.new = _write_boxes(new, clipped) if kept.all() else _select_objects(new, kept)
        self._dropped += int((~kept).sum())
        if kept.any() or not new.field_mapping.image_id:
            return new, changes
        assert isinstance(changes[0].value, dict)
        changes[0] = changes[0]._replace(value={**changes[0].value, "record_dropped": True})
        return None, changes


def _find_defects(boxes: np.ndarray) -> list[str]:
    """Return the defect of each normalized box; '' for a valid box."""
    defects = odd_boxes.list_box_defects(boxes)
    if any(defects):
        outside = (odd_boxes.OUTSIDE, odd_boxes.OVER_THE_EDGE)
        for box in np.flatnonzero(find_pixel_boxes(boxes)).tolist():
            defects[box] = _PIXELS if defects[box] in outside else defects[box]
    return defects


def _find_code(corners: np.ndarray) -> str:
    """Return the rule that reports a box outside the image."""
    overhang = float(np.maximum(corners - 1, -corners).max())
    return _OUTSIDE[overhang <= MAX_COORDINATE - 1 + odd_boxes.FLOAT32_ERROR]


def _describe(
    number: int, before: list[float], after: list[float] | None, defect: str, code: str
) -> Finding:
    old, new = (", ".join(f"{side:.6g}" for side in box) for box in (before, after or ()))
    message = f"object {number} dropped, because {_REASONS[defect]}: {old}"
    if after:
        message = f"box {number} clipped to the image: {old} → {new}"
    shown: list[JsonValue] = [side if np.isfinite(side) else repr(side) for side in before]
    new_value: JsonValue = {"object": number, "box": [*after]} if after else None
    change = make_change(message, BOX_KEY, {"object": number, "box": shown}, new_value)
    return change._replace(code=code)


def _read_again(record: EditedRecord) -> EditedRecord:
    """Return the record as if it was read with its new features."""
    payload = bytearray(record.payload())
    records = RecordBatch.from_record(Record(0, 0, payload, 0, len(payload)), record.example.shard)
    detections = Detections(ExampleBatch.of(records), record.detections.mapping)
    return replace(record, detections=detections, row=0, new={})


def _write_boxes(record: EditedRecord, boxes: np.ndarray) -> dict[str, bytes | None]:
    """Return the lists of a record with new normalized boxes, by key."""
    box_keys = record.field_mapping.box
    if len(box_keys) == len(keys.BOX):
        return {key: float_feature(boxes[:, side]) for side, key in enumerate(box_keys)}
    sides = np.tile(record.detections.sizes[record.row][::-1], 2)
    corners = multiply_as_typed(boxes.astype(np.float32), np.tile(sides, (len(boxes), 1)))
    corners[:, 2:] -= corners[:, :2]  # x, y, width and height in pixels
    return {box_keys[0]: float_feature(corners.reshape(-1))}


def _select_objects(record: EditedRecord, kept: np.ndarray) -> dict[str, bytes | None]:
    """Return the lists of a record with the values of these objects only, by key."""
    detections, mapping, count = record.detections, record.field_mapping, len(kept)
    named = (*keys.BOX, keys.CLASS_TEXT, keys.CLASS_LABEL, keys.AREA)
    lists = {*mapping.box, mapping.annotation_id, *map(detections.map_key, named)}
    lengths = dict.fromkeys(_POINTS, record.example.value_count(keys.KEYPOINT_X))
    if len(mapping.box) == 1:
        lengths[mapping.box[0]] = 4 * count
    features: dict[str, bytes | None] = {}
    for column in detections.examples.columns_in(record.row):
        key, values = column.key, column[record.row]
        if key in lists or key.startswith(keys.OBJECT_PREFIX):
            is_full = len(values) == lengths.get(key, count)
            if len(values) and (is_full or (key == keys.MASK and column.kind is Kind.FLOAT)):
                by_object = values.reshape(count, -1, *values.shape[1:])[kept]
                features[key] = _encode(column, by_object.reshape(-1, *values.shape[1:]))
    if texts := record.texts(keys.EXTRA_ATTRIBUTES):
        extra = select_extra_attributes(texts[0], np.flatnonzero(kept).tolist())
        features[keys.EXTRA_ATTRIBUTES] = bytes_feature([extra]) if extra else None
    return features


def _encode(column: Column, values: np.ndarray) -> bytes:
    if column.kind is Kind.BYTES:
        return bytes_feature(copy_bytes(column.buffer, values))
    return float_feature(values) if column.kind is Kind.FLOAT else int64_feature(values.tolist())
