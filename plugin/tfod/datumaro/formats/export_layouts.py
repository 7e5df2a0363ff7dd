"""How the files of an export lie: one class a layout, told what to write by the exporter.

Roboflow's is read off its exports of 2020 to 2024; that of the Keras recipe is of
keras.io/examples/keras_recipes/creating_tfrecords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tfod.datumaro.formats.export_options import ExportOptions
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import labels_text
from tfod.formats.layouts.roboflow import DEFAULT_NAME, get_subset_folder, make_text_files
from tfod.sources.label_map_search import LABEL_MAP_FILE, LABELS_FILE
from tfod.tfrecord.shard_sets.search import shards_by_subset
from tfod.tfrecord.shard_sets.shard_names import (
    EXTENSION,
    RECIPE_RECORDS,
    SHARD_EXTENSIONS,
    recipe_file_names,
)
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import ShardSetWriter

_OF_RECIPE = re.compile(r".+_\d\d+-\d+\.tfrec", re.DOTALL)  # others name a subset otherwise


class Layout:
    """``<subset>.tfrecord`` and ``label_map.pbtxt``, in one folder."""

    EXTENSION = SHARD_EXTENSIONS[0]

    def __init__(self, folder: str, options: ExportOptions) -> None:
        self.folder = folder
        self._options = options

    def place(self, subset: str, others: Iterable[str]) -> tuple[str, str]:
        """The folder of a subset's shards, and what their names begin with.

        Raises:
            TfodError: one of the others, which are written already, has taken it.
        """
        return self.folder, subset

    def writer(self, subset: str, others: Iterable[str], output: Output) -> ShardSetWriter:
        """What writes a subset's shards. Raises TfodError as :meth:`place` does."""
        return ShardSetWriter(
            *self.place(subset, others),
            num_shards=self._options.num_shards,
            shard_size=self._options.shard_size,
            compression=self._options.compression,
            output=output,
        )

    def texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        """The texts beside the shards of these subsets, by absolute or relative path."""
        return {LABEL_MAP_FILE: label_map.to_text()}

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        """Absolute paths, by subset, of the shards there that lie as this layout has them.

        Those of other subsets are there, too, where they lie in the same folder.
        """
        return shards_by_subset(os.path.abspath(self.folder), self.EXTENSION)


class LabelsLayout(Layout):
    """``<subset>.tfrecord`` and ``labels.txt``."""

    def texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        return {LABELS_FILE: labels_text(label_map.items)}


class RecipeLayout(Layout):
    """``file_00-4096.tfrec``, of a subset ``train_00-4096.tfrec``, and the label map."""

    EXTENSION = EXTENSION

    def writer(self, subset: str, others: Iterable[str], output: Output) -> ShardSetWriter:
        writer: ShardSetWriter | None = None

        def name_files(count: int) -> list[str]:
            return recipe_file_names(subset, count, writer.count if writer else 0)

        writer = ShardSetWriter(
            self.folder, subset, shard_records=RECIPE_RECORDS, name_files=name_files, output=output
        )
        return writer

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        return {
            subset: [path for path in paths if _OF_RECIPE.fullmatch(path)]
            for subset, paths in super().shards(subsets).items()
        }


class RoboflowLayout(Layout):
    """``train/ valid/ test/``, each with ``<Name>.tfrecord`` and ``<Name>_label_map.pbtxt``."""

    def _name(self) -> str:
        return self._options.name or DEFAULT_NAME

    def place(self, subset: str, others: Iterable[str]) -> tuple[str, str]:
        return os.path.join(self.folder, get_subset_folder(subset, others)), self._name()

    def texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        return make_text_files(label_map, subsets, self._name())

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        folders = {one: os.path.join(self.folder, get_subset_folder(one)) for one in subsets}
        return {
            subset: shards_by_subset(os.path.abspath(folder), self.EXTENSION).get(self._name(), [])
            for subset, folder in folders.items()
        }
