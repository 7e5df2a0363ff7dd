"""One side of a comparison: the records of a dataset, of images and masks a hash."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.masks import decode_mask_png
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import bytes_of
from tfod.example.wire import Kind
from tfod.formats.dataset import Batch, Classes, Images
from tfod.formats.options import Options as ReadOptions
from tfod.formats.table import FORMATS
from tfod.formats.writer import Mask, masks_of
from tfod.tfrecord.image_names import safe_relative_path

KEYPOINTS = "keypoints"
_NOT_FINITE = -9e9, 8e9, -8e9
"""In place of NaN and both infinities, which are then equal to themselves."""
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    **{one.name: (one.default,) for one in keys.OBJECT_ATTRIBUTES},
    "view": ("", "Unspecified"),  # Pascal VOC's, which create_pascal_tf_record.py writes
}


@dataclass(frozen=True, eq=False)
class Record:
    """One record of a side.

    Attributes:
        number: among all records of the side, from 0.
        subset, name, source_id: texts; empty where there is none, or an id that repeats the name.
        size: height and width in pixels; 0 where unknown.
        image: a hash of the image's bytes; empty for none.
        boxes: float32 of shape (n, 4), normalized ``xmin, ymin, xmax, ymax``, all finite.
        classes: ids of the boxes' classes in the side's label map.
        of_objects: by name a value of each box, None for a default; of pixels a hash.
        of_image: by name what is said of the whole image.
    """

    number: int
    subset: str
    name: str
    source_id: str
    size: tuple[int, int]
    image: str
    boxes: np.ndarray
    classes: Sequence[int]
    of_objects: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    of_image: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Side:
    """One of the two datasets: what was read, as what, and what was odd about it."""

    path: str
    format: str
    label_map: LabelMap
    subsets: Sequence[str]
    records: Sequence[Record]
    notes: Sequence[str]

    @property
    def boxes(self) -> int:
        """How many there are."""
        return sum(len(one.boxes) for one in self.records)

    @functools.cached_property
    def names(self) -> Mapping[int, str]:
        """The classes' names by their ids."""
        return {one.id: one.class_name for one in self.label_map.items}


def read_side(path: str, format_name: str, options: ReadOptions) -> Side:
    """Read a dataset.

    Raises:
        TfodError: as the reader of its format does, or an object has no class.
    """
    dataset = FORMATS[format_name].read(path, options)
    classes = Classes(dataset.label_maps)
    records: list[Record] = []
    for batch in dataset.read():
        records += _records(batch, classes, len(records))
    notes = dataset.finish(len(records), sum(len(one.boxes) for one in records))
    subsets = list(dict.fromkeys([*dataset.subsets, *(one.subset for one in records)]))
    return Side(path, format_name, classes.label_map, subsets, records, notes)


def _records(batch: Batch, classes: Classes, first: int) -> Iterator[Record]:
    images = Images.as_they_are(batch, classes)
    boxes = np.nan_to_num(images.boxes, True, *_NOT_FINITE)
    for row, filename in enumerate(images.filenames):
        source_id, data = images.source_ids[row] or "", images.encoded(row)
        height, width = images.sizes[row].tolist()
        places = slice(*images.splits[row : row + 2])
        one = None if images.is_plain else images.detections[row]
        yield Record(
            number=first + row,
            subset=batch.subset,
            name=safe_relative_path(filename or ""),
            source_id=source_id if source_id != filename else "",
            size=(height, width),
            image=_digest(data) if data else "",
            boxes=boxes[places],
            classes=images.classes[places],
            of_objects=_of_objects(one) if one else {},
            of_image=dict(_of_image(one, images.detections, row)) if one else {},
        )


def _of_objects(one: Detection) -> dict[str, Sequence[Any]]:
    """By name the values of objects that have any which says something."""
    found: dict[str, Sequence[Any]] = {
        name: [None if value in _DEFAULTS.get(name, ()) else value for value in values]
        for name, values in one.attributes.items()
    }
    found["masks"] = [_pixels(mask) for mask in masks_of(one)]
    if one.keypoints is not None:
        visible = one.keypoints.visibility[..., None]
        places = np.nan_to_num(np.where(visible > 0, one.keypoints.xy, 0), True, *_NOT_FINITE)
        points = np.concatenate((places, visible), axis=-1)
        found[KEYPOINTS] = [each if each[:, 2].any() else None for each in points]
    return {name: values for name, values in found.items() if any(x is not None for x in values)}


def _of_image(one: Detection, found: Sequence[Detection], row: int) -> Iterator[tuple[str, Any]]:
    """By name what a record says of the whole image."""
    if one.captions:
        yield "captions", list(one.captions)
    if one.image_labels:
        labels = [(x.text or x.label, x.confidence in (None, 1)) for x in one.image_labels]
        yield "image classes", labels
    for name, mask in one.image_masks.items():
        yield name, _digest(mask.data)
    yield from one.image_attributes.items()
    yield from one.image_extra.items()
    if isinstance(found, Detections):
        for key in one.unread_keys:
            for column in found.examples.columns_of(key):
                is_bytes = column.kind is Kind.BYTES
                values = bytes_of(column.buffer, column[row]) if is_bytes else column[row].tolist()
                if values:
                    yield key, values


def _digest(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def _pixels(mask: Mask | None) -> str | None:
    """A hash of a mask's pixels, however it is encoded; of its bytes, where it does not decode."""
    if mask is None:
        return None
    try:
        pixels = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except (ValueError, ImportError):
        return _digest(bytes(mask))
    return f"{pixels.shape} {_digest(np.packbits(pixels).tobytes())}"
