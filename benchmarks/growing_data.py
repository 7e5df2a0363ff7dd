"""Fast generation of millions of records without images, in 5 µs per record.

NumPy fills names, boxes and classes into seven templates with 3 to 9 boxes, 6 on average.
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

BOXES_PER_TEMPLATE = (6, 3, 9, 5, 7, 4, 8)
_DIGITS = 9
_MAX_ROUNDS = 3000
_SIDES = ("xmin", "ymin", "xmax", "ymax")
_MASK = 0xA282EAD8
# Values in templates, whose bytes occur nowhere else there.
_SENTINEL_ID = 77
_SENTINEL_SIDE = 0.77


@dataclass(frozen=True)
class _Template:
    """A record in a shard, and the offsets of its values.

    Attributes:
        frame: header, payload and four bytes for the checksum.
        boxes: number of boxes.
        names: offsets of the digits of its names.
        sides: offsets of the floats of xmin, ymin, xmax and ymax.
        texts: offset of the digits of the class text of each box.
        ids: offset of the class ids, of one byte each.
    """

    frame: bytes
    boxes: int
    names: tuple[int, ...]
    sides: tuple[int, ...]
    texts: tuple[int, ...]
    ids: int


def write_shards(folder: Path, records: int, shards: int) -> int:
    """Write numbered shards of about equal size and a label map, and return the total size."""
    folder.mkdir()
    templates = [_template(boxes) for boxes in BOXES_PER_TEMPLATE]
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
            boxes=np.full((boxes, 4), _SENTINEL_SIDE, np.float32),
            class_text=[CLASSES[0]] * boxes,
            class_label=[_SENTINEL_ID] * boxes,
        )
    )
    length = struct.pack("<Q", len(payload))
    frame = length + struct.pack("<I", _masked(crc32c(length))) + payload + bytes(4)
    text = CLASSES[0].encode()
    return _Template(
        frame,
        boxes,
        names=tuple(_find_offsets(frame, name.encode(), 2)),
        sides=tuple(
            frame.index(struct.pack(f"<{boxes}f", *[_SENTINEL_SIDE] * boxes), frame.index(key))
            for key in (f"image/object/bbox/{side}".encode() for side in _SIDES)
        ),
        texts=tuple(offset + len(text) - 2 for offset in _find_offsets(frame, text, boxes)),
        ids=frame.index(bytes([_SENTINEL_ID] * boxes), frame.index(b"image/object/class/label")),
    )


def _find_offsets(data: bytes, part: bytes, count: int) -> Iterator[int]:
    assert data.count(part) == count
    offset = -1
    for _ in range(count):
        offset = data.index(part, offset + 1)
        yield offset


def _records(
    templates: list[_Template], start: int, stop: int, random: np.random.Generator
) -> Iterator[bytes]:
    """Yield the records from ``start`` to ``stop`` in large blocks.

    A round is one record of each template. The last round of a block may be incomplete.
    """
    round_bytes = np.frombuffer(b"".join(template.frame for template in templates), np.uint8)
    ends = np.cumsum([len(template.frame) for template in templates])
    for first in range(start, stop, len(templates) * _MAX_ROUNDS):
        remaining = stop - first
        rounds = min(-(-remaining // len(templates)), _MAX_ROUNDS)
        data = np.tile(round_bytes, (rounds, 1))
        for index, template in enumerate(templates):
            numbers = first + index + len(templates) * np.arange(rounds)
            frames = data[:, ends[index] - len(template.frame) : ends[index]]
            _fill(frames, template, numbers, random)
        complete, partial = divmod(min(remaining, rounds * len(templates)), len(templates))
        size = complete * len(round_bytes) + (int(ends[partial - 1]) if partial else 0)
        yield data.tobytes()[:size]


def _fill(
    data: np.ndarray, template: _Template, numbers: np.ndarray, random: np.random.Generator
) -> None:
    """Write values into copies of a template; data is uint8 of shape (n, bytes of the record)."""
    count, boxes = len(numbers), template.boxes
    for offset in template.names:
        data[:, offset : offset + _DIGITS] = _digits(numbers, _DIGITS)
    corners = _random_corners(random, (count, boxes))
    for side, offset in enumerate(template.sides):
        floats = np.ascontiguousarray(corners[:, :, side])
        data[:, offset : offset + 4 * boxes] = floats.view(np.uint8)
    classes = random.integers(0, len(CLASSES), (count, boxes), np.uint8)
    for box, offset in enumerate(template.texts):
        data[:, offset : offset + 2] = _digits(classes[:, box], 2)
    data[:, template.ids : template.ids + boxes] = classes + 1
    payloads = np.ascontiguousarray(data[:, 12:-4])
    crcs = [_masked(crc32c(payload)) for payload in map(bytes, payloads)]
    data[:, -4:] = np.array(crcs, "<u4").view(np.uint8).reshape(count, 4)


def _random_corners(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    low = random.random((*shape, 2), dtype=np.float32) / 2
    high = low + random.random((*shape, 2), dtype=np.float32) / 3 + np.float32(0.1)
    return np.concatenate((low, high), axis=-1)


def _digits(numbers: np.ndarray, digits: int) -> np.ndarray:
    powers = 10 ** np.arange(digits - 1, -1, -1)
    characters: np.ndarray = numbers[:, None] // powers % 10 + ord("0")
    return characters


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
