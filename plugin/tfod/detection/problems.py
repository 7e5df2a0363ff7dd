"""Problems of records as Detections, for importers and the checker.

Each function yields the problems of one part of a Detection. The checker has a rule for each code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import ExtraError, read_attributes
from tfod.detection.box_geometry import LOOKS_LIKE_PIXELS, find_pixel_boxes
from tfod.detection.columns import OD_API, DetectionColumns, resolve_keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.example.example_batch import Column
from tfod.example.wire import Kind

READ = "read"
"""Case of a problem that importers tolerate: they read or ignore the value."""
EMPTY_RECORD = "nothing"
"""Case of a record without any feature of its layout."""
_ONE_EACH = "write the record again with one value for each object"
_TYPES = "write the shard again with the right type"
_HIDE_BOXES = frozenset(("BOX001", "BOX014", "IMG015"))


class DetectionProblem(NamedTuple):
    """A problem of one record.

    Attributes:
        code: code of the checker's rule.
        key: feature key in the record, or the common prefix of several keys.
        cause: rest of the sentence that begins with the key.
        value: invalid value; for BOX001, all lengths of the record by key.
        case: case of the rule, such as READ; importers stop at a problem without a case.
    """

    row: int
    code: str
    key: str | None
    cause: str
    fix: str = ""
    value: int | str | Mapping[str, int] | None = None
    case: str = ""

    @property
    def message(self) -> str:
        """The whole sentence, without location and full stop."""
        return f"{self.key} {self.cause}" if self.key else self.cause

    def hides_boxes(self, mapping: FieldMapping) -> bool:
        """Return whether the boxes of the record cannot be read."""
        return not self.case and (self.code in _HIDE_BOXES or self.key in mapping.box)


Problems: TypeAlias = Iterator[DetectionProblem]
_TEXT, _NUMBER = FeatureSpec(Kind.BYTES, (), b""), FeatureSpec(Kind.INT64, (), 0)
_TEXTS, _NUMBERS, _FLOATS = map(FeatureSpec, (Kind.BYTES, Kind.INT64, Kind.FLOAT))
_TEXT_KEYS = (keys.FILENAME, keys.SOURCE_ID, keys.FORMAT, keys.SHA256, keys.ENCODED)
_IMAGE_IDS = (keys.IMAGE_CLASS_LABEL, *keys.IMAGE_ATTRIBUTES.values())
READ_FEATURES: FeatureDescription = {
    **dict.fromkeys((*_TEXT_KEYS, keys.EXTRA_ATTRIBUTES, *keys.IMAGE_MASKS.values()), _TEXT),
    **dict.fromkeys((keys.HEIGHT, keys.WIDTH), _NUMBER),
    **dict.fromkeys((*keys.BOX, keys.KEYPOINT_X, keys.KEYPOINT_Y), _FLOATS),
    keys.IMAGE_CLASS_CONFIDENCE: _FLOATS,
    **dict.fromkeys((keys.CLASS_TEXT, keys.KEYPOINT_TEXT, keys.IMAGE_CLASS_TEXT), _TEXTS),
    **dict.fromkeys((keys.CLASS_LABEL, keys.KEYPOINT_VISIBILITY, *_IMAGE_IDS), _NUMBERS),
    keys.MASK: replace(_TEXTS, other_kinds=(Kind.FLOAT,)),
}
"""Features that importers expect under the keys of the OD API; other keys have no expectations."""


@functools.lru_cache(16)
def read_features(mapping: FieldMapping) -> FeatureDescription:
    """Return the features that importers expect under the keys of a layout."""
    names, hidden, moved = resolve_keys(mapping)
    renamed = {names.get(key, key): spec for key, spec in READ_FEATURES.items()}
    absent = (hidden | moved).difference(names.values())
    features = {key: spec for key, spec in renamed.items() if key not in absent}
    if len(mapping.box) == 1:
        features[mapping.box[0]] = _FLOATS
    if mapping.image_id:
        features[mapping.image_id] = replace(_NUMBER, other_kinds=(Kind.BYTES,))
    if mapping.annotation_id:
        features[mapping.annotation_id] = _NUMBERS
    return features


def find_problems(batch: DetectionColumns) -> list[DetectionProblem]:
    """Return all problems of a batch, by row and then by part."""
    expected = {**read_features(batch.mapping), **(batch.expected or {})}
    parts = (
        _find_empty_records(batch),
        _find_wrong_types(batch, expected),
        _find_wrong_shapes(batch, expected),
        _find_incomplete_boxes(batch),
        _find_wrong_units(batch),
        _find_unknown_sizes(batch),
        _find_wrong_lengths(batch, expected),
        _find_wrong_mask_sizes(batch),
        _find_wrong_keypoints(batch),
        _find_several_classes(batch),
        _find_uneven_classes(batch),
        _find_unreadable_attributes(batch),
    )
    return sorted((problem for part in parts for problem in part), key=lambda problem: problem.row)


def _find_empty_records(batch: DetectionColumns) -> Problems:
    """Yield records without any feature of the layout."""
    layout_keys = keys.KNOWN_KEYS if batch.mapping == OD_API else batch.mapping.all_keys
    is_empty = np.ones(len(batch), bool)
    is_empty[list(batch.examples.unreadable)] = False
    for column in batch.examples.lists.values():
        if column.key in layout_keys:
            is_empty[column.rows] = False
    for row in np.flatnonzero(is_empty).tolist() if layout_keys else ():
        cause = "the record has none of the features of this layout"
        yield DetectionProblem(row, "EXA003", None, cause, case=EMPTY_RECORD)


def _columns(
    batch: DetectionColumns, expected: FeatureDescription
) -> Iterator[tuple[Column, FeatureSpec, FeatureSpec | None]]:
    """Yield each list that has an expected feature, that feature, and the one importers expect."""
    read = read_features(batch.mapping)
    for key, spec in expected.items():
        for column in batch.examples.find_columns(key):
            if column.kind is not None:
                yield column, spec, read.get(key)


def _find_wrong_types(batch: DetectionColumns, expected: FeatureDescription) -> Problems:
    """Yield lists of an unexpected type; to importers, an empty list has no value."""
    for column, spec, read in _columns(batch, expected):
        kind = column.kind
        assert kind is not None
        stops = read is not None and not read.accepts(kind)
        if spec.accepts(kind) and not stops:
            continue
        expected_kind = read.kind if read is not None and spec.accepts(kind) else spec.kind
        cause = f"is {kind.value}, expected {expected_kind.value}"
        for row, length in zip(column.rows.tolist(), column.lengths.tolist(), strict=True):
            case = "" if stops and length else READ
            if not case or not spec.accepts(kind):
                yield DetectionProblem(row, "EXA004", column.key, cause, _TYPES, kind.value, case)


def _find_wrong_shapes(batch: DetectionColumns, expected: FeatureDescription) -> Problems:
    """Yield lists with an unexpected number of values; to importers, an empty list is missing."""
    for column, spec, read in _columns(batch, expected):
        kind = column.kind
        assert kind is not None
        is_single = read is not None and read.length is not None and read.accepts(kind)
        is_counted = spec.length is not None and spec.accepts(kind)
        if not (is_single or is_counted):
            continue
        counts = column.lengths
        is_wrong = counts != spec.length if is_counted else counts > 1
        shape = "one" if is_single or spec.shape == () else f"{spec.length}, of shape {spec.shape}"
        rows = column.rows[is_wrong].tolist()
        for row, count in zip(rows, counts[is_wrong].tolist(), strict=True):
            cause = f"holds {count} values, expected {shape}"
            case = "" if is_single and count > 1 else READ
            yield DetectionProblem(row, "EXA005", column.key, cause, value=count, case=case)


def _find_incomplete_boxes(batch: DetectionColumns) -> Problems:
    """Yield flat lists of boxes without four numbers per object."""
    flat = batch.flat_boxes
    if flat is not None:
        fix = "write the record again with x, y, width and height of each object"
        for row in np.flatnonzero(flat.counts % 4).tolist():
            cause = f"holds {flat.counts[row]} numbers, expected four for each object"
            yield DetectionProblem(row, "BOX014", flat.key, cause, fix)


def _find_wrong_units(batch: DetectionColumns) -> Problems:
    """Yield boxes in pixels that are read as normalized, and the reverse."""
    if not batch.mapping.box or batch.flat_boxes is not None:
        return
    sides = [batch.column(key, Kind.FLOAT) for key in keys.BOX]
    is_far = any((np.abs(side.values) > LOOKS_LIKE_PIXELS).any() for side in sides)
    if not (is_far or batch.has_pixel_boxes):
        return
    counts = sides[0].counts
    has_equal_counts = np.logical_and.reduce([side.counts == counts for side in sides])
    corners = np.stack([x.values[np.repeat(has_equal_counts, x.counts)] for x in sides], axis=1)
    rows = np.repeat(np.flatnonzero(has_equal_counts), counts[has_equal_counts])
    if batch.has_pixel_boxes:
        sizes = batch.sizes[rows][:, [1, 0, 1, 0]]
        is_wrong = (corners <= 1).all(axis=1) & (corners > 0).any(axis=1)
        is_wrong |= (np.abs(corners) > LOOKS_LIKE_PIXELS * sizes).any(axis=1)
        is_wrong &= (sizes > LOOKS_LIKE_PIXELS).all(axis=1)
        cause = "does not look like pixels of the image"
        fix = "correct the boxes, or leave out --boxes pixels"
    else:
        is_wrong, cause = find_pixel_boxes(corners), "looks like pixels"
        fix = "divide x by the image width and y by the image height"
        if 2 * is_wrong.sum() > len(corners):  # as in the checker's BOX005
            fix += "; to convert all boxes, type: "
            fix += "tfod convert SOURCE normalized --to shards --boxes pixels"
        else:
            fix += "; to drop such boxes, type: tfod repair SOURCE repaired --odd-boxes drop"
    for row, number in zip(*np.unique(rows[is_wrong], return_index=True), strict=True):
        numbers = ", ".join(f"{value:g}" for value in corners[is_wrong][number].tolist())
        message = f"{cause}: xmin, ymin, xmax, ymax are {numbers}"
        yield DetectionProblem(int(row), "BOX005", batch.mapping.box_prefix, message, fix)


def _find_unknown_sizes(batch: DetectionColumns) -> Problems:
    """Yield boxes in images of unknown size, which importers need for boxes in pixels."""
    rows = np.flatnonzero((batch.box_counts > 0) & (batch.sizes <= 0).any(axis=1)).tolist()
    if batch.has_pixel_boxes:
        flat = batch.flat_boxes
        key = (batch.column(keys.XMIN, Kind.FLOAT) if flat is None else flat).key
        cause = "is in pixels, but the image size is unknown: neither the record nor the image "
        cause += "header contains it"
        fix = "write the size into the record, or set its keys in field_mapping: height and width"
        for row in rows:
            yield DetectionProblem(row, "IMG015", key, cause, fix)
        return
    for row in rows:
        count = int(batch.box_counts[row])
        boxes = f"{count:,} box{'es' if count > 1 else ''}"
        cause = f"the image size is unknown, and the image has {boxes}"
        yield DetectionProblem(row, "IMG015", None, cause, case=READ)


def _find_wrong_lengths(batch: DetectionColumns, expected: FeatureDescription) -> Problems:
    """Yield non-empty lists without one value per object; importers ignore such attributes."""
    mapping, boxes = batch.mapping, batch.box_counts
    is_readable = np.full(len(batch), bool(mapping.box))
    for column in (x for key in mapping.box for x in batch.examples.find_columns(key)):
        if column.kind not in (None, Kind.FLOAT):
            is_readable &= column.counts == 0
    sides = [batch.examples.column(key, Kind.FLOAT) for key in mapping.box]
    lists = list(_list_columns(batch, expected))

    def lengths(row: int) -> dict[str, int]:
        listed = (column for column, _ in lists if column.counts[row])
        return {column.key: int(column.counts[row]) for column in (*sides, *listed)}

    is_uneven = sum((side.counts != boxes for side in sides[1:]), np.zeros(len(batch), bool))
    for row in np.flatnonzero(is_readable & is_uneven).tolist():
        counts = ", ".join(f"{x.counts[row]} {x.key.rpartition('/')[2]}" for x in sides)
        cause = f"lists differ in length: {counts}"
        prefix = mapping.box_prefix or "image/object/bbox"
        yield DetectionProblem(row, "BOX001", prefix, cause, _ONE_EACH, lengths(row))
    for column, case in lists:
        is_uneven = (column.counts > 0) & (column.counts != boxes)
        for row in np.flatnonzero(is_readable & is_uneven).tolist():
            cause = f"holds {column.counts[row]} values for {boxes[row]} boxes"
            yield DetectionProblem(row, "BOX001", column.key, cause, _ONE_EACH, lengths(row), case)


def _list_columns(
    batch: DetectionColumns, expected: FeatureDescription
) -> Iterator[tuple[Column, str]]:
    """Yield lists with one value per object, and the case of a list with another length."""
    for key in (keys.CLASS_TEXT, keys.CLASS_LABEL, keys.MASK):
        yield batch.column(key, READ_FEATURES[key].kind), ""
    if batch.annotation_id_column is not None:
        yield batch.annotation_id_column, ""
    for column in (x for key in keys.OBJECT_ATTRIBUTES for x in batch.find_columns(key.key)):
        spec = expected.get(column.key)
        if column.kind is not None and (spec is None or spec.accepts(column.kind)):
            yield column, READ


def _find_wrong_mask_sizes(batch: DetectionColumns) -> Problems:
    """Yield numerical masks whose size is not objects x height x width."""
    column = batch.column(keys.MASK, Kind.FLOAT)
    for row in np.flatnonzero(column.counts).tolist() if len(column.rows) else ():
        height, width = batch.sizes[row].tolist()
        count, boxes = int(column.counts[row]), int(batch.box_counts[row])
        if count != boxes * height * width:
            cause = (
                f"holds {count} numbers, expected {boxes} x {height} x {width} "
                "(objects, image/height, image/width)"
            )
            yield DetectionProblem(row, "BOX015", column.key, cause)


def _find_wrong_keypoints(batch: DetectionColumns) -> Problems:
    """Yield lists of x and y that differ in length or are not a multiple of the objects."""
    x, y = (batch.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y))
    if not len(x.rows):
        return
    x_counts, y_counts, boxes = x.counts, y.counts, batch.box_counts
    is_uneven = (x_counts != y_counts) | (boxes == 0) | (x_counts % np.maximum(boxes, 1) != 0)
    is_used = ((x_counts > 0) | (y_counts > 0)) & x.present
    for row in np.flatnonzero(is_used & is_uneven).tolist():
        yield DetectionProblem(
            row,
            "BOX016",
            "image/object/keypoint",
            f"has {x_counts[row]} x and {y_counts[row]} y coordinates for {boxes[row]} objects",
            "write the same number of points for each object",
        )


def _find_several_classes(batch: DetectionColumns) -> Problems:
    """Yield images with several numbers for their only class that are not a one-hot vector."""
    if not batch.has_one_class:
        return
    column = batch.column(keys.IMAGE_CLASS_LABEL, Kind.INT64)
    for row in np.flatnonzero(column.counts > 1).tolist():
        numbers = column[row]
        if np.count_nonzero(numbers) != 1 or numbers.max() != 1:
            cause = f"holds {len(numbers)} values, expected one, or a single 1 among zeros"
            yield DetectionProblem(row, "EXA005", column.key, cause, "write one class per image")


def _find_uneven_classes(batch: DetectionColumns) -> Problems:
    """Yield lists of image classes that differ in length."""
    text = batch.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES).counts
    label = batch.column(keys.IMAGE_CLASS_LABEL, Kind.INT64).counts
    if batch.has_one_class:  # several numbers are a one-hot vector
        label = np.minimum(label, 1)
    confidence = batch.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT).counts
    counts = np.where(text > 0, text, label)
    uneven = sum((x != 0) & (x != counts) for x in (label, confidence))
    for row in np.flatnonzero(uneven).tolist():
        yield DetectionProblem(
            row,
            "LAB019",
            "image/class",
            f"holds {text[row]} text, {label[row]} label, {confidence[row]} confidence",
            "write the record again with lists of equal length",
        )


def _find_unreadable_attributes(batch: DetectionColumns) -> Problems:
    key = keys.EXTRA_ATTRIBUTES
    for row in batch.column(key, Kind.BYTES).rows.tolist():
        try:
            read_attributes(batch, row, int(batch.box_counts[row]))
        except ExtraError as error:
            yield DetectionProblem(row, "EXA013", key, str(error), "export the shard again")
