"""Roboflow's layout of an export: ``train/ valid/ test/``, each with its shard and label map.

Read off its exports of 2020 to 2024: ``train/Objects.tfrecord`` and
``train/Objects_label_map.pbtxt``, class ids from 1 in alphabetical order, and records of exactly
eleven keys. Attributes, masks and keypoints have no place in them.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable

from tfod.datumaro.exporter import EMPTY_VALUES, count_image_attributes
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.labels.label_map import LabelMap, quoted
from tfod.errors import TfodError
from tfod.example.example import (
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
    text_feature,
)
from tfod.tfrecord.shard_sets.names import (
    SHARD_EXTENSIONS,
    parse_shard_name,
    stem_of_subset,
)
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE
from tfod.version import __version__

_LABEL_MAP = "_label_map.pbtxt"
LOST = "not written, Roboflow's records have no place for them"
_FOLDERS = {"val": "valid", "validation": "valid"}


class RoboflowLayout:
    """Names folders and files, encodes records, and counts in ``lost`` what they cannot hold."""

    def __init__(self, folder: str, name: str, lost: Counter[str]) -> None:
        self._folder = folder
        self.name = name
        self._lost = lost
        self._images: Counter[str] = Counter()
        self._boxes: Counter[str] = Counter()

    @property
    def _label_map_name(self) -> str:
        return stem_of_subset(self.name) + _LABEL_MAP

    @staticmethod
    def _folder_of(subset: str) -> str:
        return _FOLDERS.get(subset, stem_of_subset(subset))

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards of this layout and name that are on disk."""
        stem = stem_of_subset(self.name)
        found: dict[str, list[str]] = {}
        for subset in subsets:
            folder = os.path.abspath(os.path.join(self._folder, self._folder_of(subset)))
            for path in glob.glob(os.path.join(glob.escape(folder), "*" + SHARD_EXTENSIONS[0])):
                name = parse_shard_name(path)
                if name is not None and name.stem == stem:
                    found.setdefault(subset, []).append(path)
        return found

    def encode(self, detection: Detection, subset: str) -> bytes:
        """Encode an image as Roboflow does: its eleven keys, in alphabetical order."""
        self._count_lost(detection)
        self._images[subset] += 1
        self._boxes[subset] += len(detection.boxes)
        features = {
            keys.ENCODED: bytes_feature([bytes(detection.encoded or b"")]),
            keys.FILENAME: bytes_feature([(detection.filename or "").encode()]),
            keys.FORMAT: bytes_feature([(detection.format or "").encode()]),
            keys.HEIGHT: int64_feature([detection.height or 0]),
            keys.WIDTH: int64_feature([detection.width or 0]),
            keys.CLASS_TEXT: text_feature(detection.class_text or ()),
            keys.CLASS_LABEL: int64_feature(detection.class_label or ()),
        }
        for side, key in enumerate(keys.BOX):
            features[key] = float_feature(detection.boxes[:, side])
        return encode_example(dict(sorted(features.items())))

    def _count_lost(self, detection: Detection) -> None:
        lost = self._lost
        for name, values in detection.attributes.items():
            lost[name] += sum(value not in EMPTY_VALUES for value in values)
        if detection.keypoints is not None:
            lost["keypoints"] += int((detection.keypoints.visibility > 0).sum())
        if detection.image_labels:
            lost["classes of an image"] += len(detection.image_labels)
        if detection.captions:
            lost["captions"] += len(detection.captions)
        of_image = {**detection.image_attributes, **detection.image_extra}
        count_image_attributes(lost, of_image)
        if detection.source_id not in (None, detection.filename):
            lost["source_id (of the image)"] += 1

    def place(self, subset: str, others: Iterable[str]) -> tuple[str, str]:
        """A subset's folder, and what its shards are called.

        Raises:
            TfodError: another subset has taken the folder.
        """
        folder = self._folder_of(subset)
        for other in others:
            if other != subset and self._folder_of(other) == folder:
                raise TfodError(
                    f"the subsets {other!r} and {subset!r} would both be written to {folder}/; "
                    "rename one of them"
                )
        return os.path.join(self._folder, folder), self.name

    def texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        """The note, where Roboflow says what an export is, and the label map of each subset."""
        texts = {ROBOFLOW_NOTE: self._note(label_map)}
        for subset in subsets:
            path = os.path.join(self._folder_of(subset), self._label_map_name)
            texts[path] = _label_map_text(label_map)
        return texts

    def _note(self, label_map: LabelMap) -> str:
        lines = [
            f"{self.name}: {sum(self._images.values())} images",
            "",
            f"Written by tfod {__version__} in the layout of Roboflow's TFRecord export.",
            "Roboflow has not made these files.",
            "",
        ]
        for subset, images in self._images.items():
            boxes = self._boxes[subset]
            lines.append(f"{self._folder_of(subset)}/: {images} images, {boxes} boxes")
        lines += ["", "Classes and their ids:"]
        lines += [f"{item.id} {item.class_name}" for item in label_map.items]
        lines += [
            "",
            "Boxes only. Images have the names, the bytes and the sizes that they came with:",
            "nothing was resized or augmented.",
        ]
        return "\n".join(lines) + "\n"


def _label_map_text(label_map: LabelMap) -> str:
    """A label map as Roboflow spells it: four spaces, double quotes, commas, display names."""
    return "".join(
        f"item {{\n    name: {quoted(item.class_name)},\n    id: {item.id},\n"
        f"    display_name: {quoted(item.display_name or item.class_name)}\n}}\n"
        for item in label_map.items
    )
