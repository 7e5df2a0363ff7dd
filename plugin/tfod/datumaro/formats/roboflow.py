"""Roboflow's layout of an export: ``train/ valid/ test/``, each with its shard and label map.

Read off its exports of 2020 to 2024: ``train/Objects.tfrecord`` and
``train/Objects_label_map.pbtxt``, class ids from 1 in alphabetical order, and records of exactly
eleven keys. Attributes, masks and keypoints have no place in them.
"""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable

from tfod.datumaro.export_annotations import SAY_NOTHING, counts
from tfod.datumaro.exporter import ShardSets, SubsetWriter
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.label_map import LabelMap, quoted
from tfod.errors import TfodError
from tfod.example.example import (
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
    text_feature,
)
from tfod.tfrecord.shards import (
    ROBOFLOW_NOTE,
    SHARD_EXTENSIONS,
    parse_shard_name,
    shard_file_names,
    stem_of_subset,
)
from tfod.tfrecord.writer import ShardSetWriter
from tfod.version import __version__

_LABEL_MAP = "_label_map.pbtxt"
_FOLDERS = {"val": "valid", "validation": "valid"}


class RoboflowLayout:
    """Names folders and files, encodes records, and counts what they cannot hold.

    Args:
        folder: what is exported to.
        name: of the shards in each folder.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.folder = folder
        self.name = name
        self.lost: Counter[str] = Counter()
        self.images: Counter[str] = Counter()
        self.boxes: Counter[str] = Counter()

    @property
    def label_map_name(self) -> str:
        """File name of the label maps."""
        shard = shard_file_names(self.name, 1)[0]
        return shard[: -len(SHARD_EXTENSIONS[0])] + _LABEL_MAP

    def folder_of(self, subset: str) -> str:
        """Name of a subset's folder: Roboflow says ``valid`` where others say ``val``."""
        return _FOLDERS.get(subset, stem_of_subset(subset))

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards of this layout and name that are on disk."""
        stem = self.label_map_name[: -len(_LABEL_MAP)]
        found: dict[str, list[str]] = {}
        for subset in subsets:
            folder = os.path.abspath(os.path.join(self.folder, self.folder_of(subset)))
            for path in glob.glob(os.path.join(glob.escape(folder), "*" + SHARD_EXTENSIONS[0])):
                name = parse_shard_name(path)
                if name is not None and name.stem == stem:
                    found.setdefault(subset, []).append(path)
        return found

    def encode(self, detection: Detection, subset: str) -> bytes:
        """Encode an image as Roboflow does: its eleven keys, in alphabetical order."""
        self._count_lost(detection)
        self.images[subset] += 1
        self.boxes[subset] += len(detection.boxes)
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

    def losses(self, unsaved_masks: int) -> list[str]:
        """What the records could not take, counted."""
        lost = +self.lost + Counter({"masks": unsaved_masks})
        if not lost:
            return []
        return ["not written, Roboflow's records have no place for them: " + counts(lost)]

    def _count_lost(self, detection: Detection) -> None:
        lost = self.lost
        for name, values in detection.attributes.items():
            lost[name] += sum(value not in SAY_NOTHING for value in values)
        if detection.keypoints is not None:
            lost["keypoints"] += int((detection.keypoints.visibility > 0).sum())
        if detection.image_labels:
            lost["classes of an image"] += len(detection.image_labels)
        if detection.captions:
            lost["captions"] += len(detection.captions)
        of_image = {**detection.image_attributes, **detection.image_extra}
        lost.update(
            f"{name} (of the image)" for name, value in of_image.items() if value not in SAY_NOTHING
        )
        if detection.source_id not in (None, detection.filename):
            lost["source_id (of the image)"] += 1


class RoboflowSets(ShardSets):
    """The writers of all subsets in Roboflow's folders."""

    def __init__(
        self,
        layout: RoboflowLayout,
        classes: LabelMap,
        make_writer: Callable[[str], ShardSetWriter],
    ) -> None:
        super().__init__(layout.folder, make_writer, ROBOFLOW_NOTE, self._ours)
        self._layout = layout
        self._classes = classes

    def writer(self, subset: str) -> SubsetWriter:
        """The writer of a subset, made when it is first asked for.

        Raises:
            TfodError: another subset has taken its folder.
        """
        folder = self._layout.folder_of(subset)
        for other in self._writers:
            if other != subset and self._layout.folder_of(other) == folder:
                raise TfodError(
                    f"the subsets {other!r} and {subset!r} would both be written to {folder}/; "
                    "rename one of them"
                )
        return super().writer(subset)

    def publish(self, names: str, stale: Iterable[str] = ()) -> set[str]:
        """Complete all files, then give them their names; drop stale shards."""
        for subset in self._writers:
            where = self._folder, self._layout.folder_of(subset), self._layout.label_map_name
            self.add_file(os.path.join(*where), names.encode())
        return super().publish(self._note(), stale)

    def _ours(self, _: str) -> dict[str, list[str]]:
        return self._layout.shards(self._writers)

    def _note(self) -> str:
        """What the export is and who made it, in the file where Roboflow says that."""
        layout = self._layout
        total = sum(layout.images.values())
        lines = [
            f"{layout.name}: {total} images",
            "",
            f"Written by tfod {__version__} in the layout of Roboflow's TFRecord export.",
            "Roboflow has not made these files.",
            "",
        ]
        for subset, images in layout.images.items():
            boxes = layout.boxes[subset]
            lines.append(f"{layout.folder_of(subset)}/: {images} images, {boxes} boxes")
        lines += ["", "Classes and their ids:"]
        lines += [f"{item.id} {item.class_name}" for item in self._classes.items]
        lines += [
            "",
            "Boxes only. Images have the names, the bytes and the sizes that they came with:",
            "nothing was resized or augmented.",
        ]
        return "\n".join(lines) + "\n"


def label_map_text(label_map: LabelMap) -> str:
    """A label map as Roboflow spells it: four spaces, double quotes, commas, display names."""
    return "".join(
        f"item {{\n    name: {quoted(item.class_name)},\n    id: {item.id},\n"
        f"    display_name: {quoted(item.display_name or item.class_name)}\n}}\n"
        for item in label_map.items
    )
