"""What is wrong with a record as a Detection: a table of rows and feature keys.

Each function looks at the columns of one part of a Detection and yields a problem for each row that
does not hold what it should. The checker reports them by its rules; an importer stops at them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import ExtraError, attributes_of
from tfod.detection.columns import DetectionColumns
from tfod.example.wire import Kind

_ONE_EACH = "write the record again with one value for each object"
_TYPES = "write the shard again with the right type"


class Wrong(enum.Enum):
    """What is wrong; the checker has a rule for each."""

    NOT_AN_EXAMPLE = "the record cannot be read"
    KIND = "a feature holds another kind of list"
    SEVERAL_VALUES = "a feature of one value holds several"
    BOX_LENGTHS = "the four lists of boxes differ in length"
    OBJECT_LENGTHS = "a list is not one value an object"
    BOX_NUMBERS = "boxes are not four numbers each"
    PIXEL_SIZE = "boxes in pixels come without the image's size"
    MASK_SIZE = "masks of numbers are not of the image's size"
    KEYPOINTS = "keypoints are not the same number for each object"
    IMAGE_CLASSES = "the lists of image classes differ in length"
    EXTRA_ATTRIBUTES = "tfod/attributes cannot be understood"

    @property
    def hides_boxes(self) -> bool:
        """Whether the objects of a record that has it cannot be told apart."""
        return self in _HIDES_BOXES


_HIDES_BOXES = frozenset(
    (Wrong.NOT_AN_EXAMPLE, Wrong.BOX_LENGTHS, Wrong.BOX_NUMBERS, Wrong.PIXEL_SIZE)
)


@dataclass(frozen=True)
class DetectionProblem:
    """One thing that is wrong with one record.

    Attributes:
        row: of the batch.
        wrong: what.
        key: the feature key as the record has it; a common prefix where several are concerned.
        cause: the same as a sentence of an error message, without the key.
        fix: what the user can do; may be empty.
        value: what is there in place of what was expected.
    """

    row: int
    wrong: Wrong
    key: str | None
    cause: str
    fix: str = ""
    value: Mapping[str, int] = field(default_factory=dict)


_ONE_TEXT = (keys.FILENAME, keys.SOURCE_ID, keys.FORMAT, keys.SHA256)
READ_KINDS: Mapping[str, tuple[Kind, ...]] = {
    **dict.fromkeys(_ONE_TEXT, (Kind.BYTES,)),
    keys.HEIGHT: (Kind.INT64,),
    keys.WIDTH: (Kind.INT64,),
    keys.ENCODED: (Kind.BYTES,),
    **dict.fromkeys(keys.BOX, (Kind.FLOAT,)),
    keys.CLASS_TEXT: (Kind.BYTES,),
    keys.CLASS_LABEL: (Kind.INT64,),
    keys.MASK: (Kind.BYTES, Kind.FLOAT),
    keys.KEYPOINT_X: (Kind.FLOAT,),
    keys.KEYPOINT_Y: (Kind.FLOAT,),
    keys.KEYPOINT_VISIBILITY: (Kind.INT64,),
    keys.KEYPOINT_TEXT: (Kind.BYTES,),
    keys.EXTRA_ATTRIBUTES: (Kind.BYTES,),
    keys.IMAGE_CLASS_LABEL: (Kind.INT64,),
    keys.IMAGE_CLASS_CONFIDENCE: (Kind.FLOAT,),
    keys.IMAGE_CLASS_TEXT: (Kind.BYTES,),
    **dict.fromkeys(keys.IMAGE_ATTRIBUTES.values(), (Kind.INT64,)),
    **dict.fromkeys(keys.IMAGE_MASKS.values(), (Kind.BYTES,)),
}
"""The kinds of list that a reader takes under each key, the usual one first. Other keys are read as
they are (attributes), or not at all."""
READ_ONCE = (
    *(*_ONE_TEXT, keys.HEIGHT, keys.WIDTH, keys.ENCODED, keys.EXTRA_ATTRIBUTES),
    *keys.IMAGE_MASKS.values(),
)


def find_problems(found: DetectionColumns) -> list[DetectionProblem]:
    """All problems of a batch, in the order of the rows; of a row in the order of its parts."""
    problems = [one for look in _LOOKS for one in look(found)]
    problems.sort(key=lambda one: one.row)
    return problems


def _refused(found: DetectionColumns) -> Iterator[DetectionProblem]:
    for row, one in found.examples.refused.items():
        yield DetectionProblem(row, Wrong.NOT_AN_EXAMPLE, None, one.reason)


def _kinds(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Lists of another kind than is read; an empty one of any kind is no value."""
    mapping = found.mapping
    wanted = [(found.columns_of(key), kinds) for key, kinds in READ_KINDS.items()]
    wanted += [
        (found.examples.columns_of(key), kinds)
        for key, kinds in (
            (mapping.box[0] if found.flat_boxes is not None else None, (Kind.FLOAT,)),
            (mapping.annotation_id, (Kind.INT64,)),
            (mapping.image_id, (Kind.INT64, Kind.BYTES)),
        )
        if key
    ]
    for columns, kinds in wanted:
        for column in columns:
            if column.kind is None or column.kind in kinds:
                continue
            for row in column.rows[column.lengths > 0].tolist():
                cause = f"is {column.kind.value}, expected {kinds[0].value}"
                yield DetectionProblem(row, Wrong.KIND, column.key, cause, _TYPES)


def _several_values(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """More than one value where one is read."""
    image_id = found.mapping.image_id
    own = found.examples.columns_of(image_id) if image_id else ()
    for column in chain(own, (found.column(key, READ_KINDS[key][0]) for key in READ_ONCE)):
        for row in np.flatnonzero(column.counts > 1).tolist():
            cause = f"holds {int(column.counts[row])} values, expected one"
            yield DetectionProblem(row, Wrong.SEVERAL_VALUES, column.key, cause)


def _boxes(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """A list that is not four numbers an object, or four lists that differ in length."""
    mapping, flat = found.mapping, found.flat_boxes
    if flat is not None:
        fix = "write the record again with x, y, width, height of each object"
        for row in np.flatnonzero(flat.counts % 4).tolist():
            cause = f"holds {flat.counts[row]} numbers, expected four for each object"
            yield DetectionProblem(row, Wrong.BOX_NUMBERS, flat.key, cause, fix)
        return
    sides = [found.column(key, Kind.FLOAT) for key in keys.BOX]
    names = [one.key.rpartition("/")[2] for one in sides]
    prefix = mapping.box_prefix or "image/object/bbox"
    counts = np.stack([one.counts for one in sides])
    for row in np.flatnonzero((counts != counts[0]).any(axis=0)).tolist():
        lengths: dict[str, int] = dict(zip(names, counts[:, row].tolist(), strict=True))
        listed = ", ".join(f"{number} {name}" for name, number in lengths.items())
        cause = f"lists of different lengths: {listed}"
        yield DetectionProblem(row, Wrong.BOX_LENGTHS, prefix, cause, _ONE_EACH, lengths)


def _pixels_without_size(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Boxes in pixels of images whose size is not known."""
    if not found.mapping.has_pixel_boxes:
        return
    flat = found.flat_boxes
    column = found.column(keys.XMIN, Kind.FLOAT) if flat is None else flat
    for row in np.flatnonzero((column.counts > 0) & (found.sizes <= 0).any(axis=1)).tolist():
        yield DetectionProblem(
            row,
            Wrong.PIXEL_SIZE,
            column.key,
            "is in pixels, and the image's size is not known (neither from the record nor from "
            "the image's header)",
            "write the size into the record, or give its keys the field_mapping height and width",
        )


def _object_lengths(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Lists that have values, but not one for each object."""
    boxes = found.box_counts
    per_object = (keys.CLASS_TEXT, keys.CLASS_LABEL, keys.MASK)
    columns = [found.column(key, READ_KINDS[key][0]) for key in per_object]
    if found.annotation_id_column is not None:
        columns.append(found.annotation_id_column)
    for column in columns:
        for row in np.flatnonzero((column.counts > 0) & (column.counts != boxes)).tolist():
            cause = f"holds {column.counts[row]} values for {boxes[row]} boxes"
            yield DetectionProblem(row, Wrong.OBJECT_LENGTHS, column.key, cause, _ONE_EACH)


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
            yield DetectionProblem(row, Wrong.MASK_SIZE, column.key, cause)


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
            Wrong.KEYPOINTS,
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
            yield DetectionProblem(row, Wrong.SEVERAL_VALUES, column.key, cause, fix)


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
            Wrong.IMAGE_CLASSES,
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
            yield DetectionProblem(row, Wrong.EXTRA_ATTRIBUTES, key, str(error), fix)


_LOOKS = (
    *(_refused, _kinds, _several_values, _boxes, _pixels_without_size, _object_lengths),
    *(_mask_sizes, _keypoints, _one_class, _image_classes, _extra_attributes),
)
