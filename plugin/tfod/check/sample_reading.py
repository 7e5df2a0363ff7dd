"""What there is to be seen of a record, whatever else is wrong with it."""

from __future__ import annotations

import numpy as np

from tfod.check.finding import Place
from tfod.check.samples import Sample
from tfod.detection.field_mapping import FieldMapping
from tfod.detection.image import image_size
from tfod.errors import TfodError
from tfod.example.example import Example


def read_sample(example: Example, place: Place, field_mapping: FieldMapping) -> Sample:
    """The image of a record and its boxes, as far as they can be read.

    Args:
        example: the record.
        place: where it is.
        field_mapping: what its keys are called.
    """
    image = _first(example, field_mapping.encoded)
    size = image_size(image) if image else None
    height, width = size or (
        read_size(example, field_mapping.height),
        read_size(example, field_mapping.width),
    )
    boxes = np.zeros((0, 4))
    classes: list[str] = []
    try:
        boxes = _boxes(example, field_mapping, height, width)
        if field_mapping.class_text:
            raw = example.byte_strings(field_mapping.class_text)
            classes = [value.decode("utf-8", "replace") for value in raw]
        if field_mapping.class_label and not classes:
            classes = [f"#{label}" for label in example.ints(field_mapping.class_label)]
    except TfodError:
        pass  # the image alone, then
    return Sample(
        place=place,
        codes=(),
        messages=(),
        image=image,
        height=height,
        width=width,
        boxes=boxes,
        classes=tuple(classes),
    )


def _boxes(example: Example, field_mapping: FieldMapping, height: int, width: int) -> np.ndarray:
    """Boxes, normalized, shape (n, 4)."""
    if len(field_mapping.box) == 4:
        sides = [example.floats(key) for key in field_mapping.box]
        rows = np.stack(sides) if len({len(side) for side in sides}) == 1 else None
        return np.zeros((0, 4)) if rows is None else rows.T.astype(np.float64)
    if len(field_mapping.box) == 1 and height and width:
        x, y, box_width, box_height = [*example.floats(field_mapping.box[0]).tolist(), 0, 0, 0, 0][
            :4
        ]
        corners = [x / width, y / height, (x + box_width) / width, (y + box_height) / height]
        return np.array([corners])
    return np.zeros((0, 4))


def _first(example: Example, key: str | None) -> bytes | None:
    try:
        values = example.byte_strings(key) if key else []
    except TfodError:
        return None
    return values[0] if values and values[0] else None


def read_name(example: Example, field_mapping: FieldMapping) -> str | None:
    """The image's file name; None where there is none."""
    name = _first(example, field_mapping.filename)
    return name.decode("utf-8", "replace") if name else None


def read_size(example: Example, key: str | None) -> int:
    """A height or a width in pixels; 0 where there is none that can be one."""
    try:
        values = example.ints(key) if key else []
    except TfodError:
        return 0
    return values[0] if values and 0 < values[0] < 1 << 31 else 0
