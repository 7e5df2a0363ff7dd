"""Shards as exported by Roboflow: ``train/ valid/ test/``, each with its label map.

The layout is derived from Roboflow's exports of 2020 to 2024.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.labels.label_map import LabelMap, quote
from tfod.errors import TfodError, excerpt
from tfod.example.example import (
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
    text_feature,
)
from tfod.formats import tfrecord as shards
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE
from tfod.tfrecord.shard_sets.shard_names import SHARD_EXTENSIONS, to_stem
from tfod.tfrecord.writer import ShardLayout
from tfod.version import __version__

DEFAULT_NAME = "Objects"
"""Roboflow's default name for the annotations of a project."""
_FOLDERS = {"val": "valid", "validation": "valid"}


def get_subset_folder(subset: str, existing: Iterable[str] = ()) -> str:
    """Return the folder name of a subset; raise TfodError if another subset uses it."""
    folder = _FOLDERS.get(subset, to_stem(subset))
    for other in existing:
        if other != subset and get_subset_folder(other) == folder:
            raise TfodError(
                f"the subsets {excerpt(other)} and {excerpt(subset)} would both be written to "
                f"{folder}/; rename one of them"
            )
    return folder


def make_text_files(
    label_map: LabelMap, subsets: Iterable[str], name: str = DEFAULT_NAME
) -> dict[str, str]:
    """Return Roboflow's note about the export and the label map of each subset, by path."""
    label_map_text = "".join(  # four spaces, double quotes, commas, display names
        f"item {{\n    name: {quote(item.class_name)},\n    id: {item.id},\n"
        f"    display_name: {quote(item.display_name or item.class_name)}\n}}\n"
        for item in label_map.items
    )
    note = (
        f"Written by tfod {__version__} in the layout of Roboflow's TFRecord export.\n"
        "These files were not made by Roboflow.\n"
    )
    file = to_stem(name) + "_label_map.pbtxt"
    paths = [os.path.join(get_subset_folder(subset), file) for subset in subsets]
    return {ROBOFLOW_NOTE: note, **dict.fromkeys(paths, label_map_text)}


def encode(detection: Detection) -> bytes:
    """Encode an image with the eleven keys of Roboflow's records, in alphabetical order."""
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


class Writer(shards.Writer):
    """Writes one shard per subset, with its label map, into a folder."""

    LAYOUT = "roboflow"

    def begin(self, subset: str) -> None:
        folder = get_subset_folder(subset, self._writers)
        path = os.path.join(folder, DEFAULT_NAME + SHARD_EXTENSIONS[0])
        self._writers[subset] = self._output.add_subset(subset, ShardLayout(), lambda _: [path])

    def _encode(self, subset: str, detection: Detection, payload: bytes) -> Iterable[bytes]:
        return (encode(detection),)

    def _add_label_map(self, name: str, content: bytes) -> None:
        """Do nothing: :meth:`finish` writes a label map into each folder."""

    def finish(self, label_map: LabelMap) -> None:
        for name, text in make_text_files(label_map, self._writers).items():
            self._output.add_text(name, text.encode())
            self.label_map_file = name
        super().finish(label_map)
