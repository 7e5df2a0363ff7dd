"""How the files of an export lie: one class a layout, told what to write by the exporter.

Roboflow's is read off its exports of 2020 to 2024; that of the Keras recipe is of
keras.io/examples/keras_recipes/creating_tfrecords.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from tfod.datumaro.formats.options import DEFAULT_NAME, ExportOptions
from tfod.detection.labels.label_map import LabelMap, quoted
from tfod.detection.labels.labels_file import labels_text
from tfod.errors import TfodError
from tfod.sources.label_map_search import LABEL_MAP_FILE, LABELS_FILE
from tfod.tfrecord.shard_sets.names import (
    EXTENSION,
    SHARD_EXTENSIONS,
    file_names,
    stem_of_subset,
)
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE, shards_by_subset
from tfod.tfrecord.storage.publishing import Output
from tfod.tfrecord.writer import ShardSetWriter
from tfod.version import __version__

_MOST = 4096  # records a file: n_samples of the recipe
_OF_RECIPE = re.compile(r".+_\d\d+-\d+\.tfrec", re.DOTALL)  # others name a subset otherwise

_FOLDERS_OF_ROBOFLOW = {"val": "valid", "validation": "valid"}


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
            full = [_MOST] * (count - 1)
            done = writer.count if writer else 0
            return file_names(subset, [*full, done - sum(full)])

        writer = ShardSetWriter(
            self.folder, subset, shard_records=_MOST, name_files=name_files, output=output
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

    def _folder_of(self, subset: str) -> str:
        return _FOLDERS_OF_ROBOFLOW.get(subset, stem_of_subset(subset))

    def place(self, subset: str, others: Iterable[str]) -> tuple[str, str]:
        folder = self._folder_of(subset)
        for other in others:
            if other != subset and self._folder_of(other) == folder:
                raise TfodError(
                    f"the subsets {other!r} and {subset!r} would both be written to {folder}/; "
                    "rename one of them"
                )
        return os.path.join(self.folder, folder), self._name()

    def texts(self, label_map: LabelMap, subsets: Iterable[str]) -> dict[str, str]:
        """The note, where Roboflow says what an export is, and the label map of each subset."""
        name = stem_of_subset(self._name()) + "_label_map.pbtxt"
        spelt = "".join(  # four spaces, double quotes, commas, display names
            f"item {{\n    name: {quoted(item.class_name)},\n    id: {item.id},\n"
            f"    display_name: {quoted(item.display_name or item.class_name)}\n}}\n"
            for item in label_map.items
        )
        note = (
            f"Written by tfod {__version__} in the layout of Roboflow's TFRecord export.\n"
            "Roboflow has not made these files.\n"
        )
        label_maps = {os.path.join(self._folder_of(subset), name): spelt for subset in subsets}
        return {ROBOFLOW_NOTE: note, **label_maps}

    def shards(self, subsets: Iterable[str]) -> dict[str, list[str]]:
        folders = {one: os.path.join(self.folder, self._folder_of(one)) for one in subsets}
        return {
            subset: shards_by_subset(os.path.abspath(folder), self.EXTENSION).get(self._name(), [])
            for subset, folder in folders.items()
        }
