"""Importers, with which Datumaro detects the format of shards and finds them."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from tfod.datumaro import compat
from tfod.detection import keys
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.sources.layouts import Layout, choose_layout, count_keys
from tfod.sources.reading import find_readable
from tfod.tfrecord.shard_sets.search import ShardSet, find_shards, is_roboflow_export
from tfod.tfrecord.shard_sets.shard_names import SHARD_EXTENSIONS
from tfod.tfrecord.storage.urls import is_url, is_zip


class Preview(NamedTuple):
    """The first records of shards, to detect their format.

    Attributes:
        layout: layout that fits best, if any.
        keys: feature keys; empty if no record could be read.
        is_roboflow: whether the folders match an export of Roboflow.
    """

    layout: Layout | None
    keys: Collection[str]
    is_roboflow: bool

    @property
    def has_usual_keys(self) -> bool:
        """Whether the keys include any of the OD API."""
        return not keys.KNOWN_KEYS.isdisjoint(self.keys)


class ShardImporter(compat.Importer):
    """Base class of our importers; their source is a file, a folder or a glob."""

    WHICH: ClassVar[str]
    """Description of the format's shards, for the message if they are missing."""
    TAKES_DAMAGED: ClassVar[bool] = False
    """Whether to detect shards without a readable record too; the import explains the damage."""
    OPTIONS: ClassVar[dict[str, str]] = {
        "--label-map": "path or name of a label map (default: found next to the shards)"
    }
    """The command-line options, with their help."""

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        parser = super().build_cmdline_parser(**kwargs)
        for flag, text in cls.OPTIONS.items():
            parser.add_argument(flag, help=text)
        return parser

    @staticmethod
    @abstractmethod
    def has_format(preview: Preview) -> bool:
        """Check whether shards are in this format."""

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Return the confidence that the first records are in this format."""
        has_format = False
        with contextlib.suppress(ShardsNotFoundError):
            preview = _read_preview(context.root_path)
            has_format = cls.has_format(preview) if preview.keys else cls.TAKES_DAMAGED
        if not has_format:
            context.fail(f"there must be TFRecord shards {cls.WHICH}")
        return compat.FormatDetectionConfidence.MEDIUM

    @classmethod
    def find_sources(cls, path: str) -> list[dict[str, Any]]:
        """Return one source for all files, so that all subsets share one list of classes."""
        if is_url(path):
            return []
        try:
            find_shards(path)
        except ShardsNotFoundError:
            return []
        except ShardError:
            pass  # the import reports it
        return [{"url": path, "format": cls.NAME}]

    def __call__(self, path: str, **options: Any) -> list[dict[str, Any]]:
        """Return the sources of an import; globs are accepted, unlike in Datumaro's own check.

        Raises DatasetImportError if there is no such file, or if the path is a URL: Datumaro reads
        images in any order, but remote shards can only be read from the beginning.
        """
        if is_url(path):
            raise compat.errors.DatasetImportError(
                f"{path}: Datumaro can only read local files; download the shards first"
            )
        options.pop("stream", None)
        try:
            find_shards(path)
        except (ShardsNotFoundError, ShardError) as error:
            raise compat.errors.DatasetImportError(str(error)) from error
        return [{"url": os.path.normpath(path), "format": self.NAME, "options": options}]

    @classmethod
    def get_file_extensions(cls) -> list[str]:
        """Return the extensions for which Datumaro 1.x calls this importer."""
        return list(SHARD_EXTENSIONS)

    @classmethod
    def get_plugin_cls(cls) -> type:
        """Return the class, which Datumaro 1.x requests when it detects formats."""
        return cls


class TfDetectionApiImporter(ShardImporter):
    """TF Object Detection API shards: a file, a folder, a glob, or Roboflow's folders."""

    NAME = "tf_detection_api"
    WHICH = "with the features of the TF OD API"
    TAKES_DAMAGED = True
    OPTIONS: ClassVar[dict[str, str]] = {
        **ShardImporter.OPTIONS,
        "--profile": "profile of shards with other keys: a YAML, JSON or Python file, or a name; "
        "its field_mapping lists the keys (tfod describe --as-profile writes a profile)",
    }

    @staticmethod
    def has_format(preview: Preview) -> bool:
        """Check for the OD API's keys, but leave Roboflow's exports to their own importer."""
        return not preview.is_roboflow and preview.has_usual_keys


class RoboflowTfrecordImporter(TfDetectionApiImporter):
    """Roboflow's TFRecord exports: ``train/ valid/ test/``, each with its own label map."""

    NAME = "roboflow_tfrecord"
    WHICH = "as Roboflow exports them"
    TAKES_DAMAGED = False

    @staticmethod
    def has_format(preview: Preview) -> bool:
        return preview.is_roboflow and preview.has_usual_keys


class KerasCocoImporter(ShardImporter):
    """Shards of the Keras recipe: a file, a folder, a glob."""

    NAME = "tf_keras_coco"
    WHICH = "with the features of the Keras recipe"

    @staticmethod
    def has_format(preview: Preview) -> bool:
        return preview.layout is not None and preview.layout.has_custom_boxes


class ImageClassificationImporter(ShardImporter):
    """Shards of images with a label under the usual keys, and without keys of the OD API."""

    NAME = "tf_image_classification"
    WHICH = "with an image and its label"

    @staticmethod
    def has_format(preview: Preview) -> bool:
        has_boxes = preview.layout is None or preview.layout.field_mapping.box
        return not preview.has_usual_keys and not has_boxes


def _read_preview(path: str) -> Preview:
    """Read the first records with features, or raise ShardsNotFoundError."""
    try:
        shards = find_readable(path, finds_label_maps=False)
    except ShardsNotFoundError:
        raise
    except (TfodError, OSError):
        return Preview(None, (), False)
    counts = count_keys([shard for dataset in shards.datasets for shard in dataset.shards])
    choice = choose_layout(counts)
    # Roboflow's records have no source id.
    is_roboflow = keys.SOURCE_ID not in counts.keys and _has_subset_folders(path, shards.sets)
    return Preview(choice[0] if choice else None, counts.keys, is_roboflow)


def _has_subset_folders(path: str, sets: Sequence[ShardSet]) -> bool:
    if is_roboflow_export(path):
        return True
    root = os.path.abspath(path)
    return (os.path.isdir(root) or is_zip(root)) and all(
        os.path.dirname(os.path.abspath(shard)) != root for group in sets for shard in group.paths
    )
