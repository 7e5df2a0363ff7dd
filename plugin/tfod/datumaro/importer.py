"""Finding shards for Datumaro: which format they are of, and an importer for each."""

from __future__ import annotations

import contextlib
import os
from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, NamedTuple

from tfod.datumaro import compat
from tfod.detection import keys
from tfod.errors import ShardError, ShardsNotFoundError, TfodError
from tfod.sources.layouts import Layout, choose_layout, peek
from tfod.sources.reading import find_readable
from tfod.tfrecord.shard_sets.search import ShardSet, find_shards, is_roboflow_export
from tfod.tfrecord.shard_sets.shard_names import SHARD_EXTENSIONS
from tfod.tfrecord.storage.urls import is_url, is_zip


class Look(NamedTuple):
    """What the first records of shards say of their format.

    Attributes:
        layout: the layout that fits best, if any.
        keys: their feature keys; empty if no record could be read.
        is_roboflow: whether the shards lie as in Roboflow's exports.
    """

    layout: Layout | None
    keys: Collection[str]
    is_roboflow: bool

    @property
    def has_usual_keys(self) -> bool:
        """Whether any key is one of the OD API's."""
        return not keys.KNOWN_KEYS.isdisjoint(self.keys)


class ShardImporter(compat.Importer):
    """What our importers share: sources are a file, a folder, a glob."""

    WHICH: ClassVar[str]
    """What is said to be missing where shards are not of the format."""
    TAKES_DAMAGED: ClassVar[bool] = False
    """Whether it takes what has no record with features, since its import says what is wrong."""
    OPTIONS: ClassVar[dict[str, str]] = {
        "--label-map": "label map file, or the name of one that tfod ships "
        "(default: the one beside the shards)"
    }
    """The options of the command line, with their help."""

    @classmethod
    def build_cmdline_parser(cls, **kwargs: Any) -> Any:
        parser = super().build_cmdline_parser(**kwargs)
        for flag, text in cls.OPTIONS.items():
            parser.add_argument(flag, help=text)
        return parser

    @staticmethod
    @abstractmethod
    def is_ours(look: Look) -> bool:
        """Whether shards are of this format."""

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Say how sure it is, by the first records."""
        is_ours = False
        with contextlib.suppress(ShardsNotFoundError):
            look = _look_at(context.root_path)
            is_ours = cls.is_ours(look) if look.keys else cls.TAKES_DAMAGED
        if not is_ours:
            context.fail(f"there must be TFRecord shards {cls.WHICH}")
        return compat.FormatDetectionConfidence.MEDIUM

    @classmethod
    def find_sources(cls, path: str) -> list[dict[str, Any]]:
        """One source for all files, so that all subsets get one list of classes."""
        if is_url(path):
            return []
        try:
            find_shards(path)
        except ShardsNotFoundError:
            return []
        except ShardError:
            pass  # the import says what is wrong
        return [{"url": path, "format": cls.NAME}]

    def __call__(self, path: str, **options: Any) -> list[dict[str, Any]]:
        """Make the import's sources. Also takes a glob, which Datumaro's own check refuses.

        Raises:
            DatasetImportError: there is no such file; the message says what was looked for. Or it
                is a URL: Datumaro asks for images in any order, and remote shards have one.
        """
        if is_url(path):
            raise compat.errors.DatasetImportError(
                f"{path}: Datumaro reads files of this machine only; copy it here first"
            )
        options.pop("stream", None)
        try:
            find_shards(path)
        except (ShardsNotFoundError, ShardError) as error:
            raise compat.errors.DatasetImportError(str(error)) from error
        return [{"url": os.path.normpath(path), "format": self.NAME, "options": options}]

    @classmethod
    def get_file_extensions(cls) -> list[str]:
        """The extensions for which Datumaro 1.x asks this importer at all."""
        return list(SHARD_EXTENSIONS)

    @classmethod
    def get_plugin_cls(cls) -> type:
        """Datumaro 1.x asks its registry's entries for their class when it detects formats."""
        return cls


class TfDetectionApiImporter(ShardImporter):
    """TF Object Detection API shards: a file, a folder, a glob, or Roboflow's folders."""

    NAME = "tf_detection_api"
    WHICH = "with the features of the TF OD API"
    TAKES_DAMAGED = True
    OPTIONS: ClassVar[dict[str, str]] = {
        **ShardImporter.OPTIONS,
        "--profile": "profile of shards with other keys: a YAML, JSON or Python file, or a name; "
        "its field_mapping says which key holds what (tfod describe --as-profile writes one)",
    }

    @staticmethod
    def is_ours(look: Look) -> bool:
        """Roboflow's folders are left to the importer of that name."""
        return not look.is_roboflow and look.has_usual_keys


class RoboflowTfrecordImporter(TfDetectionApiImporter):
    """Roboflow's TFRecord exports: ``train/ valid/ test/``, each with its own label map."""

    NAME = "roboflow_tfrecord"
    WHICH = "as Roboflow exports them"
    TAKES_DAMAGED = False

    @staticmethod
    def is_ours(look: Look) -> bool:
        return look.is_roboflow and look.has_usual_keys


class KerasCocoImporter(ShardImporter):
    """Shards of the Keras recipe: a file, a folder, a glob."""

    NAME = "tf_keras_coco"
    WHICH = "with the features of the Keras recipe"

    @staticmethod
    def is_ours(look: Look) -> bool:
        return look.layout is not None and look.layout.has_other_boxes


class ImageClassificationImporter(ShardImporter):
    """Shards of images with a label under the usual keys, and none of the OD API's."""

    NAME = "tf_image_classification"
    WHICH = "with an image and its label"

    @staticmethod
    def is_ours(look: Look) -> bool:
        has_boxes = look.layout is None or look.layout.field_mapping.box
        return not look.has_usual_keys and not has_boxes


def _look_at(path: str) -> Look:
    """Look at the first records with features, and at how the shards lie.

    Raises:
        ShardsNotFoundError: there are no shards.
    """
    try:
        shards = find_readable(path, finds_label_maps=False)
    except ShardsNotFoundError:
        raise
    except (TfodError, OSError):
        return Look(None, (), False)
    counts = peek([shard for dataset in shards.datasets for shard in dataset.shards])
    choice = choose_layout(counts)
    has_ids = keys.SOURCE_ID in counts.keys  # which Roboflow's have not
    is_roboflow = not has_ids and _lie_as_roboflows(path, shards.sets)
    return Look(choice[0] if choice else None, counts.keys, is_roboflow)


def _lie_as_roboflows(path: str, sets: Sequence[ShardSet]) -> bool:
    if is_roboflow_export(path):
        return True
    root = os.path.abspath(path)
    return (os.path.isdir(root) or is_zip(root)) and all(
        os.path.dirname(os.path.abspath(shard)) != root for one in sets for shard in one.paths
    )
