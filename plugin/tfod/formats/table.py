"""The formats of ``tfod convert``, and the conversion between them.

To add a format, write a module with ``read`` and a ``Writer``, and add it to :data:`FORMATS` and to
:mod:`tfod.sources.format_recognition`. Modules are loaded on demand.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tfod.errors import TfodError
from tfod.formats.options import Options
from tfod.formats.target_map import TargetMap
from tfod.sources.format_recognition import Recognized, contains_shards, recognize_annotations
from tfod.sources.other_tools import describe_other_tool
from tfod.tfrecord.shard_sets.shard_names import parse_shard_name
from tfod.tfrecord.storage.publishing import ProtectedPaths
from tfod.tfrecord.storage.urls import is_url, is_zip

if TYPE_CHECKING:
    from tfod.formats.dataset import ConversionResult, Dataset


@dataclass(frozen=True)
class Format:
    """A format and its module, which is loaded on demand.

    Attributes:
        module: name of the module in this package, with ``read`` and ``Writer``.
        extension: extension of a file with a single subset; '' if the format is always a folder.
        has_ids: whether the format stores ids of classes and images, not only names.
    """

    module: str
    extension: str = ""
    has_ids: bool = False

    def read(self, path: str, options: Options) -> Dataset:
        """Read a dataset. Raises the errors of its reader."""
        dataset: Dataset = self._load().read(path, options)
        return dataset

    def is_file(self, path: str) -> bool:
        """Return whether a path names a single file, for a dataset with one subset."""
        return bool(self.extension) and path.lower().endswith(self.extension)

    def write(self, path: str, dataset: Dataset, options: Options) -> ConversionResult:
        """Write a dataset. Raises the errors of its writer."""
        is_file = self.is_file(path)
        result: ConversionResult = self._load().Writer.write(path, dataset, options, is_file)
        return result

    def _load(self) -> Any:
        return importlib.import_module(f"tfod.formats.{self.module}")


SHARDS = "shards"
_FILE_EXTENSIONS = frozenset(
    (".zip", ".tar", ".gz", ".txt", ".yaml", ".yml", ".pbtxt", ".jpg", ".png")
)
"""Extensions that names of folders do not have."""
FORMATS = {
    SHARDS: Format("tfrecord", has_ids=True),
    "coco": Format("coco", ".json", has_ids=True),
    "voc": Format("voc"),
    "yolo": Format("yolo"),
    "csv": Format("csv", ".csv"),
    "cvat_xml": Format("cvat.cvat_for_images", ".xml"),
}
"""All formats, by their names for ``--from`` and ``--to``."""
TARGETS = {
    **FORMATS,
    "keras_coco": Format("layouts.keras_coco", has_ids=True),
    "roboflow": Format("layouts.roboflow", has_ids=True),
    "roboflow_coco": Format("layouts.roboflow_coco", has_ids=True),
}
"""The formats for ``--to``, which include layouts that are read as ``shards`` or ``coco``."""


def recognize(path: str, requested: str | None, option: str = "--from") -> Recognized:
    """Recognize the format of a source, or use the requested one; raise TfodError if unclear."""
    if requested == SHARDS or (requested is None and contains_shards(path)):
        return Recognized([SHARDS], path)
    recognized = recognize_annotations(path, requested)
    if len(recognized.names) == 1:
        return recognized
    if is_url(path):
        raise TfodError(
            f"{path} contains no shards, and other formats cannot be read from a URL; download it"
        )
    if not os.path.exists(path):
        raise TfodError(f"{path}: no such file or folder")
    names = recognized.names
    if not names and (description := describe_other_tool(path)):
        raise TfodError(description)
    problem = f"could be {' or '.join(names)}" if names else "has no known format"
    raise TfodError(f"{path} {problem}; choose the format with {option}: {', '.join(FORMATS)}")


@contextlib.contextmanager
def open_source(
    path: str, options: Options, requested: str | None, option: str = "--from"
) -> Iterator[tuple[str, Dataset]]:
    """Open a dataset, and yield the name of its format and the dataset.

    A zip of annotations stays unpacked until the context ends. Raises TfodError if the format is
    unclear, or the dataset cannot be read.
    """
    (name,), root = recognize(path, requested, option)
    if name == SHARDS or not (os.path.isfile(path) and is_zip(path)):
        options = replace(options, source=path if os.path.isdir(path) else None)
        yield name, FORMATS[name].read(root, options)
        return
    from tfod.formats.reading.archives import unpack  # only needed for zips

    with unpack(path) as unpacked_zip:
        folder = unpacked_zip.folder
        options = replace(options, source=folder, unpacked_folder=options.images or folder)
        dataset = FORMATS[name].read(unpacked_zip.to_unpacked_path(root), options)
        yield name, replace(dataset, restore_paths=unpacked_zip.restore_paths)


def choose_target_format(path: str, requested: str | None, source_format: str) -> str:
    """Return the name of the format to write; raise TfodError if it is unclear."""
    if requested is not None:
        if requested not in FORMATS and parse_shard_name(path):
            raise TfodError(f"{path}: {requested} is a folder; pass a folder")
        return requested
    for name, target_format in FORMATS.items():
        if target_format.is_file(path):
            return name
    if parse_shard_name(path) is not None:
        return SHARDS
    if source_format != SHARDS:
        extension = os.path.splitext(path)[1].lower()
        if extension in _FILE_EXTENSIONS and not os.path.isdir(path):
            raise TfodError(
                f"{path}: shards would be written to a folder of this name; remove {extension}"
            )
        return SHARDS
    names = ", ".join(TARGETS)
    problem = "SOURCE is shards, so the format of DEST is unclear"
    raise TfodError(f"{path}: {problem}; choose it with --to: {names}")


def convert(
    source: str,
    target: str,
    options: Options,
    source_format: str | None = None,
    target_format: str | None = None,
) -> ConversionResult:
    """Convert a dataset to another format.

    Args:
        source: path of the dataset.
        target: output folder, or a file for a single shard or a format with one file per subset.
        options: options of the conversion.
        source_format: name of the format to read; None to recognize it.
        target_format: name of the format to write; None to choose it by the path.

    Raises:
        OutputExistsError: the output already exists, or is inside the source.
        TfodError: the source is invalid, a format is unclear, or an option does not apply to it.
    """
    source_format = recognize(source, source_format).names[0]
    target_format = choose_target_format(target, target_format, source_format)
    if options.images and source_format != SHARDS and not os.path.isdir(options.images):
        raise TfodError(f"--images {options.images}: no such folder; pass the folder of images")
    if target_format != SHARDS and options.num_shards != 1:
        raise TfodError(
            f"{target}: only shards can be split into several files; remove the number of shards"
        )
    if target_format != "yolo" and options.keypoints:
        raise TfodError(f"{target}: --keypoints only applies to --to yolo; remove it")
    if source_format != SHARDS and options.boxes_in_pixels:
        raise TfodError(f"{source}: --boxes only applies to shards; remove it")
    # Shards may be written next to the annotations that they are made from.
    if target_format != SHARDS or source_format == SHARDS:
        ProtectedPaths([source]).require_unprotected(target)
    output = TARGETS[target_format]
    is_file = output.is_file(target) or (target_format == SHARDS and bool(parse_shard_name(target)))
    folder = os.path.dirname(target) if is_file else target
    shard = target if is_file else os.path.join(target, "shard")
    if target_format == "roboflow":  # its label maps are in the folders of the subsets
        shard = next(glob.iglob(os.path.join(glob.escape(target), "*", "*.tfrecord")), shard)
    target_map = None if is_url(target) else TargetMap.find(folder, [shard], options.label_map)
    options = replace(options, target_map=target_map)
    with open_source(source, options, source_format) as (_, dataset):
        if source_format != SHARDS:  # a single file of annotations is written without its images
            no_images = options.no_images or output.is_file(target)
            options = replace(options, images=None, no_images=no_images)
        return output.write(target, dataset, options)
