"""Records for the two inputs for training, and the classes that both read from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.tfrecord.writer import write_records

from tests.image_kinds import image_of_pixels
from tests.records import encode, objects

PIXELS = np.random.default_rng(1).integers(0, 256, (4, 10, 3), np.uint8)
IMAGE = image_of_pixels(PIXELS)
MAP = LabelMap(
    (
        LabelMapItem(2, "cat", "Katze"),
        LabelMapItem(7, "dog"),
        LabelMapItem(5, "Katze"),  # a name that is also a display name
    )
)
CLASSES: list[tuple[list[str] | None, list[int] | None, list[int], LabelMap | None]] = [
    (["cat", "dog"], [7, 2], [2, 7], MAP),  # the text has precedence
    (["Katze", "cow"], None, [5, -1], MAP),  # the larger of two ids; an unknown text
    (None, [3, 0], [3, 0], MAP),
    (["", "dog"], [2, 3], [2, 7], MAP),  # no text, but an id
    (["", ""], [0, -1], [-1, -1], MAP),  # Datumaro writes objects without a class like this
    ([""], None, [-1], MAP),
    (None, None, [-1], MAP),
    (["", "zero"], [0, 1], [0, 0], LabelMap((LabelMapItem(0, "zero"),))),
    (["cat", "dog"], [4, 1], [4, 1], None),
]
"""Texts, ids, classes and label map of a record."""


def record(name: str = "a.png", **features: Any) -> bytes:
    """A record with an image; ``__`` in the name of a feature is a slash."""
    named = {key.replace("__", "/"): value for key, value in features.items()}
    names = {"image/filename": name, "image/source_id": name.partition(".")[0]}
    return encode({**names, "image/encoded": IMAGE, **named})


def boxes(count: int, text: Any = None, label: Any = None) -> dict[str, Any]:
    """Features of objects."""
    corners = [(0.1 * n, 0.2, 0.1 * n + 0.1, 0.5 + 0.1 * n) for n in range(count)]
    return objects(corners, text, label)


def write_train(
    folder: Path, *records: bytes, label_map: LabelMap | None = MAP, **options: Any
) -> Path:
    """A folder with shards of a subset and a label map."""
    write_records(folder, "train", records, **options)
    if label_map is not None:
        (folder / "label_map.pbtxt").write_text(label_map.to_text())
    return folder
