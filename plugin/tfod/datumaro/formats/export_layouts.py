"""Layouts of exported files: file names, folders and label maps.

Roboflow's layout follows its exports of 2020 to 2024, the layout of the Keras recipe
keras.io/examples/keras_recipes/creating_tfrecords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tfod.datumaro.formats.export_options import ExportOptions
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import format_labels
from tfod.formats.layouts.roboflow import DEFAULT_NAME, get_subset_folder, make_text_files
from tfod.sources.label_map_search import LABEL_MAP_FILE, LABELS_FILE
from tfod.tfrecord.shard_sets.search import find_subsets
from tfod.tfrecord.shard_sets.shard_names import EXTENSION, RECIPE_RECORDS, SHARD_EXTENSIONS
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import ShardSetWriter

_RECIPE_SHARD = re.compile(r".+_\d\d+-\d+\.tfrec", re.DOTALL)  # other names have no subset


class Layout:
    """``<subset>.tfrecord`` and ``label_map.pbtxt``, in one folder."""

    EXTENSION = SHARD_EXTENSIONS[0]

    def __init__(self, folder: str, options: ExportOptions) -> None:
        self.folder = folder
        self._options = options

    def locate(self, subset: str, written: Iterable[str]) -> tuple[str, str]:
        """Return the folder of a subset's shards and the prefix of their names.

        Raises TfodError if one of the ``written`` subsets already has this folder.
        """
        return self.folder, subset

    def make_writer(self, subset: str, written: Iterable[str], output: Output) -> ShardSetWriter:
        """Create the writer of a subset; raises TfodError like :meth:`locate`."""
        return ShardSetWriter(
            *self.locate(subset, written),
            num_shards=self._options.num_shards,
            shard_size=self._options.shard_size,
            compression=self._options.compression,
            output=output,
        )

    def make_texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        """Return the label maps of the subsets by path; relative paths are in the folder."""
        return {LABEL_MAP_FILE: label_map.to_text()}

    def find_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        """Return absolute paths of existing shards in this layout, by subset."""
        return find_subsets(os.path.abspath(self.folder), self.EXTENSION)


class LabelsLayout(Layout):
    """``<subset>.tfrecord`` and ``labels.txt``."""

    def make_texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        return {LABELS_FILE: format_labels(label_map.items)}


class RecipeLayout(Layout):
    """``file_00-4096.tfrec``, or ``train_00-4096.tfrec`` for a subset, and the label map."""

    EXTENSION = EXTENSION

    def make_writer(self, subset: str, written: Iterable[str], output: Output) -> ShardSetWriter:
        return ShardSetWriter(self.folder, subset, shard_records=RECIPE_RECORDS, output=output)

    def find_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        return {
            subset: [path for path in paths if _RECIPE_SHARD.fullmatch(path)]
            for subset, paths in super().find_shards(subsets).items()
        }


class RoboflowLayout(Layout):
    """``train/ valid/ test/``, each with ``<Name>.tfrecord`` and ``<Name>_label_map.pbtxt``."""

    @property
    def _name(self) -> str:
        return self._options.name or DEFAULT_NAME

    def locate(self, subset: str, written: Iterable[str]) -> tuple[str, str]:
        return os.path.join(self.folder, get_subset_folder(subset, written)), self._name

    def make_texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        return make_text_files(label_map, subsets, self._name)

    def find_shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        paths = {subset: os.path.join(self.folder, get_subset_folder(subset)) for subset in subsets}
        return {
            subset: find_subsets(os.path.abspath(path), self.EXTENSION).get(self._name, [])
            for subset, path in paths.items()
        }
