"""Two valid records with tiny real images; a mutant changes one thing."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from tfod.example.example import bytes_feature, encode_varint, float_feature, int64_feature
from tfod.tfrecord.framing import masked_crc32c

from tests.image_kinds import saved
from tests.records import encode, objects, source_id_of

WIDTH, HEIGHT = 40, 20
LABEL_MAP = b"item { id: 1 name: 'cat' }\nitem { id: 2 name: 'dog' }\n"
TF = {"profile": "tf_detection_api"}
"""The options of most mutants: without them, a mutant may change which profile fits."""
CAT_BOX = (0.25, 0.25, 0.5, 0.75)
DOG_BOX = (0.5, 0.1, 1.0, 0.9)


@cache
def jpeg(size: tuple[int, int] = (WIDTH, HEIGHT), **how: Any) -> bytes:
    """An image of the first record."""
    return saved("RGB", "JPEG", size, **how)


@cache
def png(size: tuple[int, int] = (WIDTH, HEIGHT)) -> bytes:
    """An image of the second record."""
    return saved("RGB", "PNG", size)


def features(name: str = "a.jpg", **changes: Any) -> dict[str, Any]:
    """The features of a valid record; ``changes`` by the last part of the key, None removes.

    Format and checksum match ``encoded``, unless they are changed as well.
    """
    encoded = changes.get("encoded", jpeg() if name.endswith(".jpg") else png())
    found: dict[str, Any] = {
        "image/encoded": encoded,
        "image/format": "png" if (encoded or b"").startswith(b"\x89PNG") else "jpeg",
        "image/filename": name,
        "image/key/sha256": hashlib.sha256(encoded or b"").hexdigest(),
        "image/source_id": source_id_of(name),
        "image/height": HEIGHT,
        "image/width": WIDTH,
        **objects([CAT_BOX, DOG_BOX], ["cat", "dog"], [1, 2]),
    }
    by_name = {key.rpartition("/")[2]: key for key in found}
    for short, value in changes.items():
        found[by_name.get(short, short)] = value
    return {key: value for key, value in found.items() if value is not None}


def with_boxes(
    boxes: Sequence[Sequence[float]],
    text: Sequence[str] | None = None,
    label: Sequence[int] | None = None,
    **changes: Any,
) -> bytes:
    """A valid record with these objects, cats by default."""
    rest = features(**changes)
    for key in objects([], [], []):
        del rest[key]
    if text is None and label is None:
        text, label = ["cat"] * len(boxes), [1] * len(boxes)
    return encode({**rest, **objects(boxes, text, label)})


def record(name: str = "a.jpg", **changes: Any) -> bytes:
    """A valid record with changes, serialized."""
    return encode(features(name, **changes))


def other() -> bytes:
    """The second record, with another image, which mutants do not change."""
    return record("b.png", encoded=png())


def frame(payload: bytes) -> bytes:
    """A record on disk: length, its checksum, payload, its checksum."""
    head = struct.pack("<Q", len(payload))
    crcs = [struct.pack("<I", masked_crc32c(part)) for part in (head, payload)]
    return head + crcs[0] + payload + crcs[1]


def shard(*payloads: bytes) -> bytes:
    """The bytes of a shard."""
    return b"".join(frame(one) for one in payloads)


def first(payload: bytes) -> bytes:
    """A shard of this record and a valid one."""
    return shard(payload, other())


def second(payload: bytes) -> bytes:
    """A shard of a valid record and this one."""
    return shard(other(), payload)


def flip(data: bytes, offset: int, bit: int = 0) -> bytes:
    """The same bytes with one bit flipped."""
    changed = bytearray(data)
    changed[offset] ^= 1 << bit
    return bytes(changed)


def padded(payload: bytes, length: int) -> bytes:
    """The payload with an unknown field at its end, which readers skip."""
    spare = length - len(payload) - 5
    size = bytes((spare & 0x7F | 0x80, spare >> 7 & 0x7F | 0x80, spare >> 14))
    return payload + b"\xfa\x01" + size + bytes(spare)


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, with its tag and length."""
    return encode_varint(number << 3 | 2) + encode_varint(len(content)) + content


def entry(key: str | bytes, feature: bytes) -> bytes:
    """An entry of the map in Features."""
    name = key.encode() if isinstance(key, str) else key
    return field(1, field(1, name) + field(2, feature))


def encoded_features(name: str = "a.jpg", **changes: Any) -> dict[str, bytes]:
    """The encoded features of a valid record."""
    return {key: encoded(value) for key, value in features(name, **changes).items()}


def encoded(value: Any) -> bytes:
    """A feature of a plain value, or of a list of them."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if isinstance(values[0], (str, bytes)):
        return bytes_feature(one.encode() if isinstance(one, str) else one for one in values)
    return (float_feature if isinstance(values[0], float) else int64_feature)(values)


def folder(*payloads: bytes, label_map: bytes | None = LABEL_MAP, **more: bytes) -> dict[str, Any]:
    """A folder with one shard, ``default.tfrecord``, and a label map unless that is None."""
    files: dict[str, Any] = {"default.tfrecord": shard(*payloads)}
    if label_map is not None:
        files["label_map.pbtxt"] = label_map
    return {**files, **more}
