"""From an Example of any keys to a Detection: roles say which key holds what.

What the roles name is looked at as if it had the keys of the TF Object Detection API, so that
there is one decoder; other keys of that API (masks, attributes) mean what they always mean.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detection_decoder import decode_detection
from tfod.detection.picture import read_picture_header
from tfod.detection.roles import Roles
from tfod.example.example import Example
from tfod.example.wire import Kind

_USUAL_KEYS = {
    **Roles().by_name,
    "image_class_text": keys.IMAGE_CLASS_TEXT,
    "image_class_label": keys.IMAGE_CLASS_LABEL,
    "area": keys.AREA,
}
# Those that a profile has unless it says that it has not.
_FIRST_ROLES = frozenset(role for role, key in Roles().by_name.items() if key)
_TO_SCALE = "write the record again with x, y, width, height of each object"


@dataclass(frozen=True)
class MappedRecord:
    """A record of any keys.

    Attributes:
        example: the record itself.
        detection: what it says of its picture.
        image_id: of the picture; None where the format has none.
        annotation_ids: one for each object, or none at all.
    """

    example: Example
    detection: Detection
    image_id: int | str | None = None
    annotation_ids: Sequence[int] = ()


def decode_mapped(example: Example, roles: Roles, repeating: Collection[str] = ()) -> MappedRecord:
    """Read an Example by the roles of its keys. Copies no pictures and no masks.

    Args:
        example: the record.
        roles: which key holds what.
        repeating: keys that only repeat what others say, such as the number of channels.

    Raises:
        RecordError: a feature has the wrong kind, lists of one object differ in length, or boxes
            in pixels come without the picture's size.
    """
    names, hidden = _usual_keys(roles)
    view = example.renamed(names, (*hidden, *repeating))
    boxes = _boxes_of_pixels(example, roles) if len(roles.box) == 1 else None
    detection = decode_detection(view, boxes)
    return MappedRecord(
        example,
        detection,
        _image_id(example, roles.image_id),
        _annotation_ids(example, roles.annotation_id, len(detection.boxes)),
    )


@functools.lru_cache(16)
def _usual_keys(roles: Roles) -> tuple[dict[str, str], tuple[str, ...]]:
    """Usual key of each role to its own key; and the keys that are looked at otherwise, or not."""
    names: dict[str, str] = {}
    hidden = [*keys.BOX, *roles.box]
    for role, own in roles.by_name.items():
        usual = _USUAL_KEYS[role]
        if usual is None:
            hidden += [own] if own else []
        elif own:
            names[usual] = own
        elif role in _FIRST_ROLES:  # the format has none, whatever is under the usual key
            hidden.append(usual)
    if len(roles.box) == len(keys.BOX):
        names.update(zip(keys.BOX, roles.box, strict=True))
    return names, tuple(hidden)


def _boxes_of_pixels(example: Example, roles: Roles) -> np.ndarray:
    """Normalized corners, float32 of shape (n, 4), from x, y, width, height in pixels."""
    key = roles.box[0]
    values = example.floats(key)
    if len(values) % 4:
        raise example.error(
            f"holds {len(values)} numbers, expected four for each object",
            feature=key,
            remedy=_TO_SCALE,
        )
    if not len(values):
        return np.zeros((0, 4), "<f4")
    size = _size(example, roles)
    if size is None:
        raise example.error(
            "is in pixels, and the picture's size is not known (neither from the record nor from "
            "the picture's header)",
            feature=key,
            remedy="write the size into the record, or give its keys the roles height and width",
        )
    height, width = size
    boxes = values.astype(np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    scaled: np.ndarray = (boxes / (width, height, width, height)).astype("<f4")
    return scaled


def _size(example: Example, roles: Roles) -> tuple[int, int] | None:
    height, width = (example.ints(key) if key else [] for key in (roles.height, roles.width))
    if len(height) == len(width) == 1 and height[0] > 0 and width[0] > 0:
        return height[0], width[0]
    spans = example.byte_spans(roles.encoded) if roles.encoded else []
    if len(spans) != 1:
        return None
    header = read_picture_header(example.buffer, *spans[0])
    return (header.height, header.width) if header and header.height and header.width else None


def _image_id(example: Example, key: str | None) -> int | str | None:
    if not key or key not in example:
        return None
    if example.kind(key) is Kind.BYTES:
        texts = [text.decode("utf-8", "replace") for text in example.byte_strings(key)]
        values: Sequence[int | str] = texts
    else:
        values = example.ints(key)
    if len(values) > 1:
        raise example.error(f"holds {len(values)} values, expected one", feature=key)
    return values[0] if values else None


def _annotation_ids(example: Example, key: str | None, count: int) -> Sequence[int]:
    ids = example.ints(key) if key else []
    if ids and len(ids) != count:
        raise example.error(
            f"holds {len(ids)} values for {count} boxes",
            feature=key,
            remedy="write the record again with one value for each object",
        )
    return ids
