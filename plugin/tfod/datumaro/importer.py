"""Finding shards for Datumaro: detection of the format, and the two importers."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tfod.datumaro import compat
from tfod.detection import keys
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import load_classes, read_classes
from tfod.detection.labels.search import is_named_label_map
from tfod.errors import LabelMapError, ShardError, ShardsNotFoundError, TfodError
from tfod.example.example import Example
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.names import SHARD_EXTENSIONS
from tfod.tfrecord.shard_sets.search import ShardSet, find_shards, is_roboflow_export
from tfod.tfrecord.storage.open import shard_size
from tfod.tfrecord.storage.urls import is_url, is_zip


class ShardImporter(compat.Importer):
    """What our importers share: sources are a file, a folder, a glob."""

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

    OPTIONS: ClassVar[dict[str, str]] = {
        **ShardImporter.OPTIONS,
        "--profile": "profile of shards with other keys: a YAML, JSON or Python file, or a name; "
        "its field_mapping says which key holds what (tfod describe --as-profile writes one)",
    }

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Say how sure we are; Roboflow's exports are left to the importer of that name."""
        kind = _detect(context.root_path)
        if kind is None:
            context.fail("there must be TFRecord shards with the features of the TF OD API")
        confidence = compat.FormatDetectionConfidence
        return confidence.MEDIUM if kind == cls.NAME else confidence.LOW


class RoboflowTfrecordImporter(TfDetectionApiImporter):
    """Roboflow's TFRecord exports: ``train/ valid/ test/``, each with its own label map."""

    NAME = "roboflow_tfrecord"

    @classmethod
    def detect(cls, context: Any) -> Any:
        """Take only what looks like Roboflow's."""
        if _detect(context.root_path) != cls.NAME:
            context.fail("there must be TFRecord shards as Roboflow exports them")
        return compat.FormatDetectionConfidence.MEDIUM


def _detect(path: str) -> str | None:
    """Name of the format that a path holds, by its first records; None when it is neither."""
    try:
        sets = find_shards(path)
        example = _first_example(sets)
    except ShardsNotFoundError:
        return None
    except (ShardError, OSError):
        return TfDetectionApiImporter.NAME  # damaged: the import says what is wrong
    if example is None:
        return TfDetectionApiImporter.NAME  # nothing in them: likewise
    if keys.KNOWN_KEYS.isdisjoint(example):
        return None
    if keys.SOURCE_ID not in example and _has_layout_of_roboflow(path, sets):
        return RoboflowTfrecordImporter.NAME
    return TfDetectionApiImporter.NAME


def first_example(path: str) -> Example | None:
    """The first record with features of the shards that a path means; None where there is none."""
    try:
        return _first_example(find_shards(path))
    except (ShardsNotFoundError, ShardError, OSError):
        return None


_RECORDS_TO_LOOK_AT = 10


def _first_example(sets: list[ShardSet]) -> Example | None:
    first = itertools.islice(_records(sets), _RECORDS_TO_LOOK_AT)
    return next((one for one in first if len(one)), None)


def _records(sets: list[ShardSet]) -> Iterator[Example]:
    for one in sets:
        for shard in one.paths:
            if shard_size(shard):
                for record in read_records(shard):
                    yield Example.of(record, shard)


def _has_layout_of_roboflow(path: str, sets: list[ShardSet]) -> bool:
    if is_roboflow_export(path):
        return True
    root = os.path.abspath(path)
    return (os.path.isdir(root) or is_zip(root)) and all(
        os.path.dirname(os.path.abspath(shard)) != root for one in sets for shard in one.paths
    )


def load_classes_of(
    source: str | None, wanted: str | None, warn: Callable[[str], object]
) -> LabelMap | None:
    """The classes of a file beside shards, or of the file or name that is wanted.

    None for a file that turns out to be some other protobuf text, as OpenCV's graphs.

    Raises:
        LabelMapError: a file that is wanted, or is named as a label map, is none.
    """
    if source is None:
        return None
    try:
        label_map, liberties = load_classes(source) if wanted else read_classes(source)
    except LabelMapError as error:
        if wanted or is_named_label_map(source):
            raise
        warn(f"not used: {error}")
        return None
    for liberty in liberties:
        warn(liberty)
    return label_map


@contextlib.contextmanager
def import_errors(path: str) -> Iterator[None]:
    """Turn errors of ours and of the file system into Datumaro's.

    Raises:
        DatasetImportError: with one line that says what, where and what to do.
    """
    try:
        yield
    except TfodError as error:
        raise compat.errors.DatasetImportError(str(error)) from error
    except OSError as error:
        raise compat.errors.DatasetImportError(f"{path}: {error.strerror}") from error
