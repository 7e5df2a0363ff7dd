"""What is wrong with a record as a Detection: a table of rows and feature keys.

Each function looks at the columns of one part of a Detection and yields a problem for each row that
does not hold what it should. The checker reports them by its rules; an importer stops at them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tfod.detection import keys
from tfod.detection.attributes import unreadable_extras
from tfod.detection.boxes import BoxFormat
from tfod.detection.columns import DetectionColumns
from tfod.example.columns import Column
from tfod.example.wire import Kind

ONE_EACH = "write the record again with one value for each object"
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


def wrong_kinds(columns: Sequence[Column], wanted: Sequence[Kind]) -> Iterator[DetectionProblem]:
    """Lists of another kind than is read; an empty one of any kind is no value.

    Args:
        columns: of one key.
        wanted: the kinds that are read, the usual one first.
    """
    for column in columns:
        if column.kind is None or column.kind in wanted:
            continue
        for row in column.rows[np.diff(column.splits) > 0].tolist():
            cause = f"is {column.kind.value}, expected {wanted[0].value}"
            yield DetectionProblem(row, Wrong.KIND, column.key, cause, _TYPES)


def several_values(column: Column) -> Iterator[DetectionProblem]:
    """More than one value where one is read."""
    for row in np.flatnonzero(column.counts > 1).tolist():
        count = int(column.counts[row])
        cause = f"holds {count} values, expected one"
        yield DetectionProblem(row, Wrong.SEVERAL_VALUES, column.key, cause)


def box_lengths(boxes: Sequence[Column], key: str) -> Iterator[DetectionProblem]:
    """Four lists, one for each side, that differ in length; ``key`` is what they are called."""
    counts = np.stack([one.counts for one in boxes])
    for row in np.flatnonzero((counts != counts[0]).any(axis=0)).tolist():
        lengths = {
            one.key.rpartition("/")[2]: int(number)
            for one, number in zip(boxes, counts[:, row], strict=True)
        }
        told = ", ".join(f"{number} {name}" for name, number in lengths.items())
        yield DetectionProblem(
            row,
            Wrong.BOX_LENGTHS,
            key,
            f"lists of different lengths: {told}",
            ONE_EACH,
            lengths,
        )


def object_lengths(column: Column, boxes: np.ndarray) -> Iterator[DetectionProblem]:
    """A list that has values, but not one for each object.

    Args:
        column: the list.
        boxes: how many objects each record has, int64 of shape (records,).
    """
    for row in np.flatnonzero((column.counts > 0) & (column.counts != boxes)).tolist():
        cause = f"holds {column.counts[row]} values for {boxes[row]} boxes"
        yield DetectionProblem(row, Wrong.OBJECT_LENGTHS, column.key, cause, ONE_EACH)


_NUMBERS: Mapping[BoxFormat, str] = {
    "xyxy": "xmin, ymin, xmax, ymax",
    "yxyx": "ymin, xmin, ymax, xmax",
    "xyxy_pixels": "xmin, ymin, xmax, ymax in pixels",
    "xywh_pixels": "x, y, width, height",
}


def box_numbers(column: Column, stated: BoxFormat) -> Iterator[DetectionProblem]:
    """A list of all numbers of the boxes that is not four an object."""
    for row in np.flatnonzero(column.counts % 4).tolist():
        yield DetectionProblem(
            row,
            Wrong.BOX_NUMBERS,
            column.key,
            f"holds {column.counts[row]} numbers, expected four for each object",
            f"write the record again with {_NUMBERS[stated]} of each object",
        )


def pixel_boxes_without_size(column: Column, sizes: np.ndarray) -> Iterator[DetectionProblem]:
    """Boxes in pixels of images whose size is not known.

    Args:
        column: the boxes, or their first numbers.
        sizes: height and width of each image, int64 of shape (records, 2), 0 where unknown.
    """
    for row in np.flatnonzero((column.counts > 0) & (sizes <= 0).any(axis=1)).tolist():
        yield DetectionProblem(
            row,
            Wrong.PIXEL_SIZE,
            column.key,
            "is in pixels, and the image's size is not known (neither from the record nor from "
            "the image's header)",
            "write the size into the record, or give its keys the field_mapping height and width",
        )


def mask_sizes(column: Column, boxes: np.ndarray, sizes: np.ndarray) -> Iterator[DetectionProblem]:
    """Masks of numbers that are not objects x height x width.

    Args:
        column: the numbers.
        boxes: how many objects each record has, int64 of shape (records,).
        sizes: height and width of each image, int64 of shape (records, 2), 0 where unknown.
    """
    for row in np.flatnonzero(column.counts).tolist():
        height, width = sizes[row].tolist()
        count, expected = int(column.counts[row]), int(boxes[row]) * height * width
        if count != expected:
            cause = (
                f"holds {count} numbers, expected {boxes[row]} x {height} x {width} "
                "(objects, image/height, image/width)"
            )
            yield DetectionProblem(row, Wrong.MASK_SIZE, column.key, cause)


def keypoint_lengths(x: Column, y: Column, boxes: np.ndarray) -> Iterator[DetectionProblem]:
    """Lists of x and y that differ, or do not go into the number of objects."""
    a, b = x.counts, y.counts
    uneven = (a != b) | (boxes == 0) | (a % np.maximum(boxes, 1) != 0)
    for row in np.flatnonzero(((a > 0) | (b > 0)) & x.present & uneven).tolist():
        yield DetectionProblem(
            row,
            Wrong.KEYPOINTS,
            "image/object/keypoint",
            f"{a[row]} x and {b[row]} y for {boxes[row]} objects",
            "write the same number of points for each object",
        )


def image_class_lengths(
    text: Column, label: Column, confidence: Column
) -> Iterator[DetectionProblem]:
    """Lists about the classes of the whole image that differ in length."""
    counts = np.where(text.counts > 0, text.counts, label.counts)
    uneven = np.zeros(len(counts), bool)
    for one in (label, confidence):
        uneven |= (one.counts != 0) & (one.counts != counts)
    for row in np.flatnonzero(uneven).tolist():
        yield DetectionProblem(
            row,
            Wrong.IMAGE_CLASSES,
            "image/class",
            f"{text.counts[row]} text, {label.counts[row]} label, "
            f"{confidence.counts[row]} confidence",
            "write the record again with lists of one length",
        )


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
    problems = [
        DetectionProblem(row, Wrong.NOT_AN_EXAMPLE, None, one.reason)
        for row, one in found.examples.refused.items()
    ]
    for key, kinds in READ_KINDS.items():
        problems += wrong_kinds(found.columns_of(key), kinds)
    problems += _mapped_problems(found)
    for key in READ_ONCE:
        problems += several_values(found.column(key, READ_KINDS[key][0]))
    boxes, mapping, flat = found.box_counts, found.mapping, found.flat_boxes
    if flat is not None:
        problems += box_numbers(flat, mapping.stated_boxes)
    else:
        sides = [found.column(key, Kind.FLOAT) for key in keys.BOX]
        problems += box_lengths(sides, mapping.box_prefix or "image/object/bbox")
    if mapping.stated_boxes.endswith("pixels"):
        first = found.column(keys.XMIN, Kind.FLOAT) if flat is None else flat
        problems += pixel_boxes_without_size(first, found.sizes)
    for key in (keys.CLASS_TEXT, keys.CLASS_LABEL, keys.MASK):
        problems += object_lengths(found.column(key, READ_KINDS[key][0]), boxes)
    problems += _rare_problems(found, boxes)
    problems.sort(key=lambda one: one.row)
    return problems


def _mapped_problems(found: DetectionColumns) -> Iterator[DetectionProblem]:
    """Of what only other mappings than the OD API's have."""
    mapping, examples = found.mapping, found.examples
    if found.flat_boxes is not None:
        yield from wrong_kinds(examples.columns_of(mapping.box[0]), (Kind.FLOAT,))
    if mapping.annotation_id:
        yield from wrong_kinds(examples.columns_of(mapping.annotation_id), (Kind.INT64,))
    if mapping.image_id:
        columns = examples.columns_of(mapping.image_id)
        yield from wrong_kinds(columns, (Kind.INT64, Kind.BYTES))
        for column in columns:
            yield from several_values(column)


def _rare_problems(found: DetectionColumns, boxes: np.ndarray) -> Iterator[DetectionProblem]:
    """Of what few records have."""
    if found.columns_of(keys.MASK):
        masks = found.column(keys.MASK, Kind.FLOAT)
        if len(masks.rows):
            yield from mask_sizes(masks, boxes, found.sizes)
    if found.columns_of(keys.KEYPOINT_X):
        x, y = (found.column(key, Kind.FLOAT) for key in (keys.KEYPOINT_X, keys.KEYPOINT_Y))
        yield from keypoint_lengths(x, y, boxes)
    yield from image_class_lengths(
        found.column(keys.IMAGE_CLASS_TEXT, Kind.BYTES),
        found.column(keys.IMAGE_CLASS_LABEL, Kind.INT64),
        found.column(keys.IMAGE_CLASS_CONFIDENCE, Kind.FLOAT),
    )
    if found.annotation_id_column is not None:
        yield from object_lengths(found.annotation_id_column, boxes)
    for row, reason in unreadable_extras(found).items():
        yield DetectionProblem(
            row, Wrong.EXTRA_ATTRIBUTES, keys.EXTRA_ATTRIBUTES, reason, "export the shard again"
        )
