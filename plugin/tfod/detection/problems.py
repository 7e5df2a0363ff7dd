"""What is wrong with a record as a Detection: the one list of importers and of the checker.

Each function looks at the columns of one part of a Detection and yields a problem for each row that
does not hold what it should. The checker has a rule for each code; an importer stops at a problem
that has no case.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import ExtraError, attributes_of
from tfod.detection.box_geometry import LOOKS_LIKE_PIXELS, pixel_boxes
from tfod.detection.columns import OD_API, DetectionColumns, usual_keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec
from tfod.example.example_batch import Column
from tfod.example.wire import Kind

READ = "read"
"""The case of what importers read, or leave out, all the same."""
NOTHING = "nothing"
"""The case of a record that has none of the features of its layout."""
_ONE_EACH = "write the record again with one value for each object"
_TYPES = "write the shard again with the right type"
_HIDE_BOXES = frozenset(("BOX001", "BOX014", "IMG015"))


class DetectionProblem(NamedTuple):
    """One thing that is wrong with one record.

    Attributes:
        row: row of the batch.
        code: code of the checker's rule.
        key: feature key as the record has it; a common prefix if several keys are concerned.
        cause: rest of the sentence that begins with the key.
        fix: what the user can do; may be empty.
        value: offending value; of BOX001 all lengths of the record by key.
        case: case of the rule; an importer stops at a problem without one.
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
        """The whole sentence, without place and full stop."""
        return f"{self.key} {self.cause}" if self.key else self.cause

    def hides_boxes(self, mapping: FieldMapping) -> bool:
        """Whether the objects of the record cannot be told apart."""
        return not self.case and (self.code in _HIDE_BOXES or self.key in mapping.box)


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
    keys.MASK: replace(_TEXTS, also=(Kind.FLOAT,)),
}
"""What importers expect under the keys of the OD API. They read other keys as they are."""


@functools.lru_cache(16)
def read_features(mapping: FieldMapping) -> FeatureDescription:
    """Return what importers expect of the keys of a layout."""
    names, hidden, moved = usual_keys(mapping)
    own = {names.get(key, key): spec for key, spec in READ_FEATURES.items()}
    absent = (hidden | moved).difference(names.values())
    features = {key: spec for key, spec in own.items() if key not in absent}
    if len(mapping.box) == 1:
        features[mapping.box[0]] = _FLOATS
    if mapping.image_id:
        features[mapping.image_id] = replace(_NUMBER, also=(Kind.BYTES,))
    if mapping.annotation_id:
        features[mapping.annotation_id] = _NUMBERS
    return features


def find_problems(found: DetectionColumns) -> list[DetectionProblem]:
    """Return all problems of a batch by row, those of a row in the order of its parts."""
    expected = {**read_features(found.mapping), **(found.expected or {})}
    parts = (
        *(_nothing(found), _types(found, expected), _shapes(found, expected), _boxes(found)),
        *(
            _pixels(found),
            _unknown_sizes(found),
            _lengths(found, expected),
            _mask_sizes(found),
            _keypoints(found),
        ),
        *(_one_class(found), _image_classes(found), _extra_attributes(found)),
    )
    return sorted((problem for part in parts for problem in part), key=lambda one: one.row)


def _nothing(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Records without any feature of the layout."""
    known = keys.KNOWN_KEYS if found.mapping == OD_API else found.mapping.all_keys
    is_empty = np.ones(len(found), bool)
    is_empty[list(found.examples.refused)] = False
    for column in found.examples.lists.values():
        if column.key in known:
            is_empty[column.rows] = False
    for row in np.flatnonzero(is_empty).tolist() if known else ():
        cause = "the record has none of the features of this layout"
        yield DetectionProblem(row, "EXA003", None, cause, case=NOTHING)


def _columns(
    found: DetectionColumns, expected: FeatureDescription
) -> Iterator[tuple[Column, FeatureSpec, FeatureSpec | None]]:
    """Each list of which something is expected, what, and what importers expect of it."""
    read = read_features(found.mapping)
    for key, spec in expected.items():
        for column in found.examples.columns_of(key):
            if column.kind is not None:
                yield column, spec, read.get(key)


def _types(found: DetectionColumns, expected: FeatureDescription) -> Iterator[DetectionProblem]:
    """Lists of another type than expected; to importers, an empty list is no value."""
    for column, spec, read in _columns(found, expected):
        kind = column.kind
        assert kind is not None
        stops = read is not None and not read.takes(kind)
        if spec.takes(kind) and not stops:
            continue
        wanted = read.kind if read is not None and spec.takes(kind) else spec.kind
        cause = f"is {kind.value}, expected {wanted.value}"
        for row, length in zip(column.rows.tolist(), column.lengths.tolist(), strict=True):
            case = "" if stops and length else READ
            if not case or not spec.takes(kind):
                yield DetectionProblem(row, "EXA004", column.key, cause, _TYPES, kind.value, case)


def _shapes(found: DetectionColumns, expected: FeatureDescription) -> Iterator[DetectionProblem]:
    """Fewer or more values than expected; to importers, no value is a missing one."""
    for column, spec, read in _columns(found, expected):
        is_single = read is not None and read.length is not None
        if (not is_single and spec.length is None) or not (column.kind and spec.takes(column.kind)):
            continue
        counts = column.lengths
        is_wrong = counts > 1 if spec.length is None else counts != spec.length
        shape = "one" if is_single or spec.shape == () else f"{spec.length}, of shape {spec.shape}"
        rows = column.rows[is_wrong].tolist()
        for row, count in zip(rows, counts[is_wrong].tolist(), strict=True):
            cause = f"holds {count} values, expected {shape}"
            case = "" if is_single and count > 1 else READ
            yield DetectionProblem(row, "EXA005", column.key, cause, value=count, case=case)


def _boxes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """A list that is not four numbers for each object."""
    flat = found.flat_boxes
    if flat is not None:
        fix = "write the record again with x, y, width, height of each object"
        for row in np.flatnonzero(flat.counts % 4).tolist():
            cause = f"holds {flat.counts[row]} numbers, expected four for each object"
            yield DetectionProblem(row, "BOX014", flat.key, cause, fix)


def _pixels(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Boxes in pixels that are read as parts of the image, and the other way round."""
    if not found.mapping.box or found.flat_boxes is not None:
        return
    sides = [found.column(key, Kind.FLOAT) for key in keys.BOX]
    is_far = any((np.abs(one.values) > LOOKS_LIKE_PIXELS).any() for one in sides)
    if not (is_far or found.has_pixel_boxes):
        return
    counts = sides[0].counts
    is_even = np.logical_and.reduce([one.counts == counts for one in sides])
    corners = np.stack([one.values[np.repeat(is_even, one.counts)] for one in sides], axis=1)
    rows = np.repeat(np.flatnonzero(is_even), counts[is_even])
    if found.has_pixel_boxes:
        sizes = found.sizes[rows][:, [1, 0, 1, 0]]
        is_other = (corners <= 1).all(axis=1) & (corners > 0).any(axis=1)
        is_other |= (np.abs(corners) > LOOKS_LIKE_PIXELS * sizes).any(axis=1)
        is_other &= (sizes > LOOKS_LIKE_PIXELS).all(axis=1)
        cause = "does not look like pixels of the image"
        fix = "correct the boxes, or leave out --boxes pixels"
    else:
        is_other, cause = pixel_boxes(corners), "looks like pixels"
        fix = "divide x by the image's width and y by its height, as does: "
        fix += "tfod convert --boxes pixels"
    for row, number in zip(*np.unique(rows[is_other], return_index=True), strict=True):
        spelled = ", ".join(f"{value:g}" for value in corners[is_other][number].tolist())
        message = f"{cause}: xmin, ymin, xmax, ymax are {spelled}"
        yield DetectionProblem(int(row), "BOX005", found.mapping.box_prefix, message, fix)


def _unknown_sizes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Boxes in an image of unknown size; importers need it for boxes in pixels."""
    rows = np.flatnonzero((found.box_counts > 0) & (found.sizes <= 0).any(axis=1)).tolist()
    if found.has_pixel_boxes:
        flat = found.flat_boxes
        key = (found.column(keys.XMIN, Kind.FLOAT) if flat is None else flat).key
        cause = "is in pixels, and the image's size is not known (neither from the record nor from "
        cause += "the image's header)"
        fix = "write the size into the record, or give its keys the field_mapping height and width"
        for row in rows:
            yield DetectionProblem(row, "IMG015", key, cause, fix)
        return
    for row in rows:
        count = int(found.box_counts[row])
        cause = f"the size of the image is not known, and it has {count:,} box{'es' * (count > 1)}"
        yield DetectionProblem(row, "IMG015", None, cause, case=READ)


def _lengths(found: DetectionColumns, expected: FeatureDescription) -> Iterator[DetectionProblem]:
    """Lists that have values, but not one for each object; attributes are left out then."""
    mapping, boxes = found.mapping, found.box_counts
    is_readable = np.full(len(found), bool(mapping.box))
    for column in (one for key in mapping.box for one in found.examples.columns_of(key)):
        if column.kind not in (None, Kind.FLOAT):
            is_readable &= column.counts == 0
    sides = [found.examples.column(key, Kind.FLOAT) for key in mapping.box]
    lists = list(_object_lists(found, expected))

    def lengths(row: int) -> dict[str, int]:
        listed = (one for one, _ in lists if one.counts[row])
        return {one.key: int(one.counts[row]) for one in (*sides, *listed)}

    is_uneven = sum((one.counts != boxes for one in sides[1:]), np.zeros(len(found), bool))
    for row in np.flatnonzero(is_readable & is_uneven).tolist():
        counts = ", ".join(f"{one.counts[row]} {one.key.rpartition('/')[2]}" for one in sides)
        cause = f"lists of different lengths: {counts}"
        prefix = mapping.box_prefix or "image/object/bbox"
        yield DetectionProblem(row, "BOX001", prefix, cause, _ONE_EACH, lengths(row))
    for column, case in lists:
        is_uneven = (column.counts > 0) & (column.counts != boxes)
        for row in np.flatnonzero(is_readable & is_uneven).tolist():
            cause = f"holds {column.counts[row]} values for {boxes[row]} boxes"
            yield DetectionProblem(row, "BOX001", column.key, cause, _ONE_EACH, lengths(row), case)


def _object_lists(
    found: DetectionColumns, expected: FeatureDescription
) -> Iterator[tuple[Column, str]]:
    """The lists with one value for each object, and the case of one that has another length."""
    for key in (keys.CLASS_TEXT, keys.CLASS_LABEL, keys.MASK):
        yield found.column(key, READ_FEATURES[key].kind), ""
    if found.annotation_id_column is not None:
        yield found.annotation_id_column, ""
    for column in (one for key in keys.OBJECT_ATTRIBUTES for one in found.columns_of(key.key)):
        spec = expected.get(column.key)
        if column.kind is not None and (spec is None or spec.takes(column.kind)):
            yield column, READ


def _mask_sizes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Masks of numbers that are not objects x height x width."""
    column = found.column(keys.MASK, Kind.FLOAT)
    for row in np.flatnonzero(column.counts).tolist() if len(column.rows) else ():
        height, width = found.sizes[row].tolist()
        count, boxes = int(column.counts[row]), int(found.box_counts[row])
        if count != boxes * height * width:
            cause = (
                f"holds {count} numbers, expected {boxes} x {height} x {width} "
                "(objects, image/height, image/width)"
            )
            yield DetectionProblem(row, "BOX015", column.key, cause)


def _keypoints(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Lists of x and y that differ, or do not go into the number of objects."""
    x, y = (found.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y))
    if not len(x.rows):
        return
    a, b, boxes = x.counts, y.counts, found.box_counts
    uneven = (a != b) | (boxes == 0) | (a % np.maximum(boxes, 1) != 0)
    for row in np.flatnonzero(((a > 0) | (b > 0)) & x.present & uneven).tolist():
        yield DetectionProblem(
            row,
            "BOX016",
            "image/object/keypoint",
            f"{a[row]} x and {b[row]} y for {boxes[row]} objects",
            "write the same number of points for each object",
        )


def _one_class(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Several numbers where an image has one class, and none of them marks it."""
    if not found.has_one_class:
        return
    column = found.column(keys.IMAGE_CLASS_LABEL, Kind.INT64)
    for row in np.flatnonzero(column.counts > 1).tolist():
        numbers = column[row]
        if np.count_nonzero(numbers) != 1 or numbers.max() != 1:
            cause = f"holds {len(numbers)} values, expected one, or a single 1 among zeros"
            fix = "write one class for each image"
            yield DetectionProblem(row, "EXA005", column.key, cause, fix)


def _image_classes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Lists about the classes of the whole image that differ in length."""
    text = found.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES).counts
    label = found.column(keys.IMAGE_CLASS_LABEL, Kind.INT64).counts
    if found.has_one_class:  # which several numbers mark
        label = np.minimum(label, 1)
    confidence = found.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT).counts
    counts = np.where(text > 0, text, label)
    uneven = sum((one != 0) & (one != counts) for one in (label, confidence))
    for row in np.flatnonzero(uneven).tolist():
        yield DetectionProblem(
            row,
            "LAB019",
            "image/class",
            f"holds {text[row]} text, {label[row]} label, {confidence[row]} confidence",
            "write the record again with lists of one length",
        )


def _extra_attributes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    key = keys.EXTRA_ATTRIBUTES
    for row in found.column(key, Kind.BYTES).rows.tolist():
        try:
            attributes_of(found, row, int(found.box_counts[row]))
        except ExtraError as error:
            fix = "export the shard again"
            yield DetectionProblem(row, "EXA013", key, str(error), fix)
