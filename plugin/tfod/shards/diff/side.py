"""One side of a comparison: a dataset in columns, some thirty bytes a box; of images a hash.

For what is not kept of all, the pixels of images, records are read again.
"""

from __future__ import annotations

import importlib.util
import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfod.convert.dataset import Classes, Dataset, Images
from tfod.convert.writers.writer import Mask, masks_of
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.masks import decode_mask_png, decode_pixels
from tfod.detection.labels.label_map import LabelMap
from tfod.example.columns import bytes_of
from tfod.example.wire import Kind
from tfod.kernel import hash_spans
from tfod.tfrecord.image_names import safe_relative_path

CAN_DECODE = importlib.util.find_spec("PIL") is not None
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")
_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    **{one.name: (one.default,) for one in keys.OBJECT_ATTRIBUTES},
    "view": ("", "Unspecified"),  # Pascal VOC's, which create_pascal_tf_record.py writes
}
_NOT_FINITE = -9e9, 8e9, -8e9
"""In place of NaN and both infinities, which are then equal to themselves."""
NOT_A_NUMBER = -(2.0**100)
"""Values that are no numbers are numbers from here down, made of a hash."""


class Texts(dict[str, int]):
    """Numbers for texts, the same on both sides; in the order in which they are first seen."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]

    def codes(self, texts: Iterable[str | None]) -> np.ndarray:
        """A number for each text, -1 for none; int32."""
        return np.array([self[one] if one else -1 for one in texts], np.int32)


_EMPTY: Mapping[str, np.ndarray] = {
    **dict.fromkeys(("subset", "counts"), np.zeros(0, np.int64)),
    **dict.fromkeys(("names", "source_ids", "classes"), np.zeros(0, np.int32)),
    "sizes": np.zeros((0, 2), np.int64),
    "images": np.zeros(0, np.uint64),
    "boxes": np.zeros((0, 4), np.float32),
}


class Values(NamedTuple):
    """Values of one name: of which boxes or records, sorted, int64; and what they are, float64.

    A number is itself, anything else one below :data:`NOT_A_NUMBER`. Defaults are left out.
    """

    numbers: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Side:
    """A dataset of n records and m boxes.

    Attributes:
        path, format: what was read, and as what; ``read`` begins to read it again.
        label_map: all its classes.
        notes: what was odd, as sentences.
        subsets: their names; ``subset`` is the place of each record's in it, int64 of shape (n,).
        names, source_ids: numbers of texts, -1 for none or for an id that repeats the name.
        sizes: height and width in pixels, int64 of shape (n, 2); 0 where unknown.
        images: a hash of each image's bytes, uint64 of shape (n,); 0 for none.
        splits: where the boxes of each record begin, and the end; int64 of shape (n + 1,).
        boxes: float32 of shape (m, 4), normalized ``xmin, ymin, xmax, ymax``.
        classes: numbers of texts, int32 of shape (m,).
        of_objects, of_images: by name other values, of boxes and of records.
        points: keypoints by number of the box: x, y and visibility of each, of shape (points, 3).
    """

    path: str
    format: str
    read: Callable[[], Dataset]
    label_map: LabelMap
    notes: Sequence[str]
    subsets: Sequence[str]
    subset: np.ndarray
    names: np.ndarray
    source_ids: np.ndarray
    sizes: np.ndarray
    images: np.ndarray
    splits: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray
    of_objects: Mapping[str, Values]
    of_images: Mapping[str, Values]
    points: Mapping[int, np.ndarray]


def read_side(path: str, format_name: str, read: Callable[[], Dataset], texts: Texts) -> Side:
    """Read a dataset into columns.

    Raises:
        TfodError: as the reader of its format does, or an object has no class.
    """
    dataset = read()
    classes = Classes(dataset.label_maps)
    parts = {key: [one] for key, one in _EMPTY.items()}
    values = _OtherValues()
    records = boxes = 0
    for number, batches in enumerate(dataset.subsets.values()):
        for batch in batches:
            images = Images.as_they_are(batch, classes)
            if not images.is_plain:
                values.add(images, records, boxes)
            names = [safe_relative_path(one or "") for one in images.filenames]
            ids = zip(images.source_ids, images.filenames, strict=True)
            for key, column in (
                ("subset", np.full(len(names), number)),
                ("names", texts.codes(names)),
                ("source_ids", texts.codes(one if one != name else None for one, name in ids)),
                ("sizes", images.sizes),
                ("images", _hashes(images)),
                ("counts", np.diff(images.splits)),
                ("boxes", np.nan_to_num(images.boxes, True, *_NOT_FINITE)),
                ("classes", np.array(images.classes, np.int32)),
            ):
                parts[key].append(column)
            records, boxes = records + len(names), boxes + len(images.boxes)
    columns = {key: np.concatenate(parts.pop(key)) for key in _EMPTY}
    items = classes.label_map.items
    places = np.searchsorted(np.array([one.id for one in items], np.int64), columns["classes"])
    columns["classes"] = texts.codes(one.class_name for one in items)[places]
    splits = np.concatenate((np.zeros(1, np.int64), np.cumsum(columns.pop("counts"))))
    return Side(
        path,
        format_name,
        read,
        classes.label_map,
        dataset.finish(),
        list(dataset.subsets),
        splits=splits,
        of_objects=_joined(values.of_objects),
        of_images=_joined(values.of_images),
        points=values.points,
        **columns,
    )


def _hashes(images: Images) -> np.ndarray:
    found = images.detections
    if isinstance(found, Detections):
        start, end = found.encoded.T
        return hash_spans(found.examples.buffer, np.stack((start, end - start), axis=1))
    return np.concatenate(
        [np.zeros(0, np.uint64)]
        + [hash_spans(one.encoded or b"", _whole(one.encoded or b"")) for one in found]
    )


def _whole(data: bytes | memoryview) -> np.ndarray:
    return np.array([[0, len(data)]], np.int64)


class _OtherValues:
    """What records have besides boxes and classes, while they are read."""

    def __init__(self) -> None:
        self.of_objects = defaultdict[str, list[Values]](list)
        self.of_images = defaultdict[str, list[Values]](list)
        self.points: dict[int, np.ndarray] = {}

    def add(self, images: Images, records: int, boxes: int) -> None:
        """Add a batch that so many records and boxes came before."""
        if isinstance(images.detections, Detections) and self._add_flags(images.detections, boxes):
            return
        for row, one in enumerate(images.detections):
            start = boxes + images.splits[row]
            for name, values in one.attributes.items():
                defaults = _DEFAULTS.get(name, ())
                self._add(name, start, [_number(value, defaults) for value in values])
            self._add("masks", start, [_mask_number(mask) for mask in masks_of(one)])
            if one.keypoints is not None:
                shown = one.keypoints.visibility[..., None] > 0
                points = np.concatenate(
                    (np.where(shown, one.keypoints.xy, 0), one.keypoints.visibility[..., None]), -1
                )
                self.points |= {start + at: points[at] for at in np.flatnonzero(shown.any((1, 2)))}
            for name, value in _of_image(one, images.detections, row):
                found = Values(np.array([records + row]), np.array([_number(value)]))
                self.of_images[name].append(found)

    def _add_flags(self, found: Detections, boxes: int) -> bool:
        """Add a batch at once that has no more than numbers under the OD API's keys, as most."""
        columns = {}
        for attribute in keys.OBJECT_ATTRIBUTES:
            some = found.columns_of(attribute.key)
            if len(some) == 1 and some[0].key in found.other_keys:
                columns[some[0].key] = attribute, some[0]
        if columns.keys() < set(found.other_keys) or not all(
            column.kind is not Kind.BYTES and np.array_equal(column.counts, found.box_counts)
            for _, column in columns.values()
        ):
            return False
        for attribute, column in columns.values():
            values = column.values.astype(np.float64)
            values[values == attribute.default] = np.nan
            self._add(attribute.name, boxes, values)
        return True

    def _add(self, name: str, start: int, values: Sequence[float | None] | np.ndarray) -> None:
        column = np.array(values, np.float64)
        there = np.flatnonzero(~np.isnan(column))
        if len(there):
            self.of_objects[name].append(Values(start + there, column[there]))


def _joined(found: Mapping[str, Sequence[Values]]) -> dict[str, Values]:
    return {
        name: Values(*(np.concatenate(one) for one in zip(*parts, strict=True)))
        for name, parts in found.items()
    }


def _of_image(one: Detection, found: Sequence[Detection], row: int) -> Iterable[tuple[str, Any]]:
    """By name what a record says of the whole image."""
    if one.captions:
        yield "captions", list(one.captions)
    if one.image_labels:
        labels = [(x.text or x.label, x.confidence in (None, 1)) for x in one.image_labels]
        yield "image classes", labels
    for name, mask in one.image_masks.items():
        yield name, bytes(mask.data).hex()
    yield from one.image_attributes.items()
    yield from one.image_extra.items()
    if isinstance(found, Detections):
        for key in one.unread_keys:
            for column in found.examples.columns_of(key):
                is_bytes = column.kind is Kind.BYTES
                values = bytes_of(column.buffer, column[row]) if is_bytes else column[row].tolist()
                if values:
                    yield key, [one.hex() for one in values] if is_bytes else values


def _number(value: Any, defaults: Sequence[Any] = ()) -> float:
    """A value as a number; see :class:`Side`."""
    if value is None or value in defaults:
        return float("nan")
    if isinstance(value, (bool, int, float)):
        return float(value)
    return _mixed(json.dumps(value, sort_keys=True, default=repr).encode())


def _mask_number(mask: Mask | None) -> float | None:
    """Of the pixels of a mask, however it is encoded; of its bytes, where it does not decode."""
    if mask is None:
        return None
    try:
        pixels = mask if isinstance(mask, np.ndarray) else decode_mask_png(mask)
    except (ValueError, ImportError):
        return _mixed(bytes(mask))
    return _mixed(repr(pixels.shape).encode() + np.packbits(pixels).tobytes())


def _mixed(data: bytes) -> float:
    """A number that no other bytes have, of which 52 bits say something."""
    return NOT_A_NUMBER * (1 + (int(hash_spans(data, _whole(data))[0]) & (1 << 52) - 1) / (1 << 52))


def records_again(
    read: Callable[[], Dataset], wanted: Collection[int]
) -> Iterator[tuple[int, Detection]]:
    """The records of these numbers, as they come; each is valid until the next one."""
    rows = np.array(sorted(wanted), np.int64)
    first = 0
    for batches in read().subsets.values() if len(rows) else ():
        for batch in batches:
            places = np.searchsorted(rows, (first, first + len(batch.detections)))
            for row in rows[slice(*places)].tolist():
                yield row, batch.detections[row - first]
            first += len(batch.detections)
            if first > rows[-1]:
                return


def pixel_hash(one: Detection) -> int | None:
    """A hash of the pixels of a record's image, however they are encoded; None of a broken one."""
    try:
        pixels = decode_pixels(one.encoded or b"", _FORMATS)
    except ValueError:
        return None
    if pixels.ndim == 3 and (pixels == pixels[..., :1]).all():
        pixels = pixels[..., 0]  # a grey image in colour
    return hash((pixels.shape, pixels.tobytes()))
