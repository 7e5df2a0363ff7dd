"""The classes that a record names, by text and by id, as far as they are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tfod.detection import keys
from tfod.example.example import Example

ClassName: TypeAlias = "tuple[str | None, int | None]"
"""Text and id of one class; None where the record does not say."""

OBJECT_CLASSES = (keys.CLASS_TEXT, keys.CLASS_LABEL)
PICTURE_CLASSES = (keys.IMAGE_CLASS_TEXT, keys.IMAGE_CLASS_LABEL)


def classes_of(example: Example, text_key: str, label_key: str) -> list[ClassName]:
    """The classes that two keys name together.

    Raises:
        RecordError: the keys hold lists of different lengths, or of the wrong kind.
    """
    texts: Sequence[str | None] = _texts(example, text_key)
    labels: Sequence[int | None] = example.ints(label_key)
    if texts and labels and len(texts) != len(labels):
        raise example.error(
            f"holds {len(labels)} values, but {text_key} holds {len(texts)}",
            feature=label_key,
            remedy="see what else is wrong with: tfod check",
        )
    count = max(len(texts), len(labels))
    return list(zip(texts or [None] * count, labels or [None] * count, strict=True))


def _texts(example: Example, key: str) -> list[str]:
    try:
        return [value.decode() for value in example.byte_strings(key)]
    except UnicodeDecodeError:  # as the decoder of Detections reads it
        return [_decode(value) for value in example.byte_strings(key)]


def _decode(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
