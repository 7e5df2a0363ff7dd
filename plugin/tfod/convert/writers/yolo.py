"""YOLO as Ultralytics reads it: ``data.yaml``, ``images/<subset>`` and ``labels/<subset>/*.txt``.

A line is a class, counted from 0, and centre, width and height of its box, divided by the size.
Source: docs.ultralytics.com/datasets/detect and /pose; ``check_det_dataset`` and
``verify_image_label`` in ultralytics/data/utils.py.
"""

from __future__ import annotations

import json
import os
import re

import numpy as np

from tfod.convert.dataset import Images
from tfod.convert.numbers import digits, lines_of
from tfod.convert.writers.writer import Writer
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.tfrecord.shard_sets.names import stem_of_subset

_DECIMALS = 9
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""What YAML does not print, or has as the end of a line, and JSON leaves as it is."""
_REQUIRED = ("train", "val")
_NO_SUBSET = "subsets that Ultralytics asks for in data.yaml and that are not there"


def label_path(image: str) -> str:
    """Where Ultralytics looks for the objects of an image: the last ``images`` is ``labels``."""
    stem = os.path.splitext(image)[0] + ".txt"
    return f"{os.sep}labels{os.sep}".join(stem.rsplit(f"{os.sep}images{os.sep}", 1))


class YoloWriter(Writer):
    """Classes are numbered in the order of the label map; those that it lacks follow."""

    NO_SUBSETS = frozenset(
        (
            *("path", "names", "nc", "channels", "download", "yaml_file"),
            *("kpt_shape", "kpt_names", "flip_idx"),
        )
    )

    def __init__(self, folder: str, image_folder: str | None, target: str) -> None:
        super().__init__(folder, image_folder, target)
        self._places: dict[int, int] = {}
        self._subsets: list[str] = []

    def begin(self, subset: str) -> None:
        self._subsets.append(stem_of_subset(subset))

    def add(self, images: Images, label_map: LabelMap) -> None:
        subset = self._subsets[-1]
        names = self._image_names(images, subset)
        self._write_images(images, names, subset)
        self._count_losses(images)
        for item in label_map.items:
            self._places.setdefault(item.id, len(self._places))
        places = np.array([self._places[one] for one in images.classes], np.int64)
        left, top, right, bottom = images.boxes.astype(np.float64).T
        sides = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
        x, y, w, h = (digits(side, _DECIMALS) for side in sides)
        lines = lines_of(digits(places), b" ", x, b" ", y, b" ", w, b" ", h, b"\n").splitlines(True)
        for row, name in enumerate(names):
            path = label_path(os.path.join(self.folder, self.IMAGES, subset, name))
            start, end = images.splits[row : row + 2]
            try:
                self._write(path, b"".join(lines[start:end]))
            except (FileExistsError, NotADirectoryError):
                raise TfodError(
                    f"image {name!r} cannot be written, since the labels of another one are where "
                    "YOLO has those of it; rename one in the records"
                ) from None

    def finish(self, label_map: LabelMap) -> None:
        names = {one.id: one.class_name for one in label_map.items}
        for item in label_map.items:
            self._places.setdefault(item.id, len(self._places))
        parts = ["path: .\n"]
        parts += (f"{_quoted(one)}: {_quoted(f'images/{one}')}\n" for one in self._subsets)
        parts.append("names:\n")
        parts += (f"  {at}: {_quoted(names[one])}\n" for one, at in self._places.items())
        self.documents.append(os.path.join(self.folder, "data.yaml"))
        self._write(self.documents[-1], "".join(parts).encode())
        for one in _REQUIRED:
            if one not in self._subsets:
                self.losses[_NO_SUBSET][one] += 1


def _quoted(text: str) -> str:
    # JSON's escapes of what is beyond U+FFFF are two, which YAML takes for two characters.
    found = json.dumps(text, ensure_ascii=False)
    return _ESCAPED.sub(lambda one: f"\\u{ord(one[0]):04x}", found)
