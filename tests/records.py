"""Records and shards from plain values."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfod.detection.images.source_ids import LARGEST_FLOAT32
from tfod.example.example import bytes_feature, encode_example, float_feature, int64_feature
from tfod.tfrecord.writer import RecordWriter, write_records


def encode(features: Mapping[str, Any]) -> bytes:
    """Return an Example of plain values: str and bytes, int, float, or lists of them."""
    return encode_example({key: _feature(value) for key, value in features.items()})


def _feature(value: Any) -> bytes:
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if values and all(isinstance(text, (str, bytes)) for text in values):
        return bytes_feature(text.encode() if isinstance(text, str) else text for text in values)
    if any(isinstance(number, float) for number in values):
        return float_feature(values)
    return int64_feature(values)


def objects(
    boxes: Sequence[Sequence[float]],
    text: Sequence[str] | None = None,
    label: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Return the features of objects; boxes are xmin, ymin, xmax, ymax, normalized."""
    found: dict[str, Any] = {
        f"image/object/bbox/{side}": [float(box[place]) for box in boxes]
        for place, side in enumerate(("xmin", "ymin", "xmax", "ymax"))
    }
    if text is not None:
        found["image/object/class/text"] = list(text)
    if label is not None:
        found["image/object/class/label"] = list(label)
    return found


def image(name: str = "a.jpg", height: int = 100, width: int = 200) -> dict[str, Any]:
    """Return the features of an image without its bytes."""
    return {"image/filename": name, "image/height": height, "image/width": width}


def source_id_of(name: str) -> str:
    """Return a unique number for an image name, since most receivers need a number."""
    return str(zlib.crc32(name.encode()) % LARGEST_FLOAT32)


def frame(*payloads: bytes) -> bytes:
    """Return a shard of payloads."""
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for payload in payloads:
        writer.write(payload)
    return stream.getvalue()


def write_shard(
    folder: Path, subset: str, *records: bytes, label_map: str | None = "item { id: 1 name: 'cat' }"
) -> str:
    """Write a shard and a label map, and return the path of the shard."""
    folder.mkdir(parents=True, exist_ok=True)
    if label_map is not None:
        (folder / "label_map.pbtxt").write_text(label_map)
    return write_records(folder, subset, records)[0]
