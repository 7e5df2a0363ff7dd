"""Shards of growing data, made on the fly: millions of records without images.

Seven records with 3 to 9 boxes, six on average, are the templates of all others, which NumPy fills
in: names, boxes and classes differ. It takes 5 µs a record.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tfod
from google_crc32c import value as crc32c
from sizes import CLASSES, HEIGHT, WIDTH

BOXES_IN_TURN = (6, 3, 9, 5, 7, 4, 8)
_DIGITS = 9
_TURNS_AT_ONCE = 3000
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_MASK = 0xA282EAD8
_SENTINEL = 77  # of ids in a template: nothing else there has its bytes
_SIDE = 0.77  # of boxes, likewise


@dataclass(frozen=True)
class _Template:
    """A record as it lies in a shard, and where in it the values are.

    Attributes:
        frame: header, payload and room for the checksum.
        boxes: how many it has.
        names: where the digits of its names begin.
        sides: where the floats of xmin, ymin, xmax and ymax begin.
        texts: where the digits of the class texts are, for each box.
        ids: where the class ids begin, a byte each.
    """

    frame: bytes
    boxes: int
    names: tuple[int, ...]
    sides: tuple[int, ...]
    texts: tuple[int, ...]
    ids: int


def write_shards(folder: Path, records: int, shards: int) -> int:
    """Write numbered shards without images, of as equal size as can be, and a label map.

    Returns:
        How many bytes they have together.
    """
    folder.mkdir()
    templates = [_template(boxes) for boxes in BOXES_IN_TURN]
    random = np.random.default_rng(7)
    bounds = [records * shard // shards for shard in range(shards + 1)]
    size = 0
    for shard, (start, stop) in enumerate(itertools.pairwise(bounds)):
        path = folder / f"train-{shard:05d}-of-{shards:05d}.tfrecord"
        with path.open("wb", buffering=0) as file:
            for data in _records(templates, start, stop, random):
                file.write(data)
                size += len(data)
    write_label_map(folder)
    return size


def write_label_map(folder: Path) -> None:
    """The label map of these shards."""
    items = tuple(tfod.LabelMapItem(number + 1, text) for number, text in enumerate(CLASSES))
    (folder / "label_map.pbtxt").write_text(tfod.LabelMap(items).to_text())


def _template(boxes: int) -> _Template:
    name = "#" * _DIGITS
    payload = tfod.encode_detection(
        tfod.Detection(
            filename=f"{name}.jpg",
            source_id=name,
            height=HEIGHT,
            width=WIDTH,
            boxes=np.full((boxes, 4), _SIDE, np.float32),
            class_text=[CLASSES[0]] * boxes,
            class_label=[_SENTINEL] * boxes,
        )
    )
    length = struct.pack("<Q", len(payload))
    frame = length + struct.pack("<I", _masked(crc32c(length))) + payload + bytes(4)
    text = CLASSES[0].encode()
    return _Template(
        frame,
        boxes,
        names=tuple(_places(frame, name.encode(), 2)),
        sides=tuple(
            frame.index(struct.pack(f"<{boxes}f", *[_SIDE] * boxes), frame.index(key))
            for key in (f"image/object/bbox/{side}".encode() for side in _SIDES)
        ),
        texts=tuple(place + len(text) - 2 for place in _places(frame, text, boxes)),
        ids=frame.index(bytes([_SENTINEL] * boxes), frame.index(b"image/object/class/label")),
    )


def _places(data: bytes, part: bytes, count: int) -> Iterator[int]:
    assert data.count(part) == count
    place = -1
    for _ in range(count):
        place = data.index(part, place + 1)
        yield place


def _records(
    templates: list[_Template], start: int, stop: int, random: np.random.Generator
) -> Iterator[bytes]:
    """The records of these numbers, many at a time."""
    turn = np.frombuffer(b"".join(one.frame for one in templates), np.uint8)
    ends = np.cumsum([len(one.frame) for one in templates])
    for first in range(start, stop, len(templates) * _TURNS_AT_ONCE):
        left = stop - first
        turns = min(-(-left // len(templates)), _TURNS_AT_ONCE)
        data = np.tile(turn, (turns, 1))
        for place, template in enumerate(templates):
            numbers = first + place + len(templates) * np.arange(turns)
            _fill(
                data[:, ends[place] - len(template.frame) : ends[place]], template, numbers, random
            )
        whole, rest = divmod(min(left, turns * len(templates)), len(templates))
        size = whole * len(turn) + (int(ends[rest - 1]) if rest else 0)
        yield data.tobytes()[:size]


def _fill(
    data: np.ndarray, template: _Template, numbers: np.ndarray, random: np.random.Generator
) -> None:
    """Give records of one template their values.

    Args:
        data: uint8 of shape (n, bytes of the record), the template n times.
        template: of them all.
        numbers: of the records.
        random: for boxes and classes.
    """
    count, boxes = len(numbers), template.boxes
    for place in template.names:
        data[:, place : place + _DIGITS] = _digits(numbers, _DIGITS)
    corners = _corners(random, (count, boxes))
    for place, side in zip(template.sides, range(4), strict=True):
        floats = np.ascontiguousarray(corners[:, :, side])
        data[:, place : place + 4 * boxes] = floats.view(np.uint8)
    classes = random.integers(0, len(CLASSES), (count, boxes), np.uint8)
    for box, place in enumerate(template.texts):
        data[:, place : place + 2] = _digits(classes[:, box], 2)
    data[:, template.ids : template.ids + boxes] = classes + 1
    payloads = np.ascontiguousarray(data[:, 12:-4])
    crcs = [_masked(crc32c(one)) for one in map(bytes, payloads)]
    data[:, -4:] = np.array(crcs, "<u4").view(np.uint8).reshape(count, 4)


def _corners(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Boxes in the image that are larger than a pixel: xmin, ymin, xmax, ymax."""
    low = random.random((*shape, 2), dtype=np.float32) / 2
    high = low + random.random((*shape, 2), dtype=np.float32) / 3 + np.float32(0.1)
    return np.concatenate((low, high), axis=-1)


def _digits(numbers: np.ndarray, digits: int) -> np.ndarray:
    powers = 10 ** np.arange(digits - 1, -1, -1)
    found: np.ndarray = numbers[:, None] // powers % 10 + ord("0")
    return found


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
