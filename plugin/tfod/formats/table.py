"""The formats of ``tfod convert``, and the way from one to another.

A new format is a module with ``read`` and a ``Writer``, one entry of :data:`FORMATS`, and a row in
:mod:`tfod.sources.format_recognition`. The module is loaded on demand.
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
    from tfod.formats.dataset import Converted, Dataset


@dataclass(frozen=True)
class Format:
    """One format: its module in this folder, and what of it is asked before it is loaded.

    Attributes:
        module: with ``read`` and ``Writer``.
        ending: of the file that stands for a dataset of one subset; '' where it is a folder.
        has_ids: whether it has ids of classes and of images, not only names.
    """

    module: str
    ending: str = ""
    has_ids: bool = False

    def read(self, path: str, options: Options) -> Dataset:
        """Read a dataset; what its reader raises."""
        dataset: Dataset = self._loaded.read(path, options)
        return dataset

    def is_file(self, path: str) -> bool:
        """Whether a path is to be one file, which stands for a dataset of one subset."""
        return bool(self.ending) and path.lower().endswith(self.ending)

    def write(self, path: str, dataset: Dataset, options: Options) -> Converted:
        """Write a dataset; what its writer raises."""
        is_file = self.is_file(path)
        converted: Converted = self._loaded.Writer.write(path, dataset, options, is_file)
        return converted

    @property
    def _loaded(self) -> Any:
        return importlib.import_module(f"tfod.formats.{self.module}")


SHARDS = "shards"
_FILES = frozenset((".zip", ".tar", ".gz", ".txt", ".yaml", ".yml", ".pbtxt", ".jpg", ".png"))
"""Endings that a folder does not have."""
FORMATS = {
    SHARDS: Format("tfrecord", has_ids=True),
    "coco": Format("coco", ".json", has_ids=True),
    "voc": Format("voc"),
    "yolo": Format("yolo"),
    "csv": Format("csv", ".csv"),
    "cvat_xml": Format("cvat.cvat_for_images", ".xml"),
}
"""By the names that ``--from`` and ``--to`` take."""
TARGETS = {
    **FORMATS,
    "keras_coco": Format("layouts.keras_coco", has_ids=True),
    "roboflow": Format("layouts.roboflow", has_ids=True),
}
"""The same, and layouts of shards that are only written by name: they are read as shards."""


def recognize(path: str, named: str | None, option: str = "--from") -> Recognized:
    """Recognize the format of a source, unless an option names it; ``names`` has exactly one.

    Raises:
        TfodError: the path does not exist, or its format is unclear.
    """
    if named == SHARDS or (named is None and contains_shards(path)):
        return Recognized([SHARDS], path)
    recognized = recognize_annotations(path, named)
    if len(recognized.names) == 1:
        return recognized
    if is_url(path):
        raise TfodError(
            f"{path}: holds no shards, and only shards are read from a URL; copy it here"
        )
    if not os.path.exists(path):
        raise TfodError(f"{path}: no such file or folder")
    names = recognized.names
    if not names and (description := describe_other_tool(path)):
        raise TfodError(description)
    what = f"could be {' or '.join(names)}" if names else "is of no format that is recognized"
    raise TfodError(f"{path} {what}; say which with {option}: {', '.join(FORMATS)}")


@contextlib.contextmanager
def open_source(
    path: str, options: Options, named: str | None, option: str = "--from"
) -> Iterator[tuple[str, Dataset]]:
    """Begin to read a data set, and give the name of its format.

    A zip of annotations is unpacked until the context ends.

    Raises:
        TfodError: as :func:`recognize`, and what the reader raises.
    """
    (name,), root = recognize(path, named, option)
    if name == SHARDS or not (os.path.isfile(path) and is_zip(path)):
        options = replace(options, source=path if os.path.isdir(path) else None)
        yield name, FORMATS[name].read(root, options)
        return
    from tfod.formats.reading.archives import unpacked  # needed for zips alone

    with unpacked(path) as unpacked_zip:
        folder = unpacked_zip.folder
        options = replace(options, source=folder, unpacked=options.images or folder)
        dataset = FORMATS[name].read(unpacked_zip.path(root), options)
        yield name, replace(dataset, shown=unpacked_zip.shown)


def format_of_target(path: str, named: str | None, source: str) -> str:
    """The name of the format that a path is to hold; of a folder shards, if the source is not.

    Raises:
        TfodError: the path does not say which.
    """
    if named is not None:
        if named not in FORMATS and parse_shard_name(path):
            raise TfodError(f"{path}: {named} is a folder of shards; name a folder")
        return named
    for name, one in FORMATS.items():
        if one.is_file(path):
            return name
    if parse_shard_name(path) is not None:
        return SHARDS
    if source != SHARDS:
        ending = os.path.splitext(path)[1].lower()
        if ending in _FILES and not os.path.isdir(path):
            raise TfodError(f"{path}: shards would be a folder of that name; leave {ending} out")
        return SHARDS
    names = ", ".join(TARGETS)
    what = "SOURCE is shards, and DEST does not say which format to write"
    raise TfodError(f"{path}: {what}; say it with --to: {names}")


def convert(
    source: str,
    target: str,
    options: Options,
    source_format: str | None = None,
    target_format: str | None = None,
) -> Converted:
    """Convert a dataset.

    Args:
        source: a path, as the reader of its format takes it.
        target: a folder, or a file of formats that have the annotations of a subset in one; of
            shards a folder, or the only shard.
        options: what else was asked for.
        source_format: its name; None where the path says it.
        target_format: likewise.

    Raises:
        OutputExistsError: there is something already, or it is in the source.
        TfodError: the source is not what it should be, no format is named, or an option is of
            another one.
    """
    source_format = recognize(source, source_format).names[0]
    target_format = format_of_target(target, target_format, source_format)
    if options.images and source_format != SHARDS and not os.path.isdir(options.images):
        raise TfodError(f"--images {options.images}: no such folder; name that of the images")
    if target_format != SHARDS and options.num_shards != 1:
        raise TfodError(f"{target}: only shards are written as several files; leave the number out")
    if source_format != SHARDS and options.boxes_in_pixels:
        raise TfodError(f"{source}: --boxes is for shards; leave it out")
    # Shards may lie among what they are made from, and replace only shards.
    if target_format != SHARDS or source_format == SHARDS:
        ProtectedPaths([source]).require_unprotected(target)
    one = TARGETS[target_format]
    is_file = one.is_file(target) or (target_format == SHARDS and bool(parse_shard_name(target)))
    folder = os.path.dirname(target) if is_file else target
    shard = target if is_file else os.path.join(target, "shard")
    if target_format == "roboflow":  # its label maps are in the folders of the subsets
        shard = next(glob.iglob(os.path.join(glob.escape(target), "*", "*.tfrecord")), shard)
    found = None if is_url(target) else TargetMap.find(folder, [shard], options.label_map)
    options = replace(options, target_map=found)
    with open_source(source, options, source_format) as (_, dataset):
        if source_format != SHARDS:  # images stay where they are when annotations are written
            no_images = options.no_images or one.is_file(target)
            options = replace(options, images=None, no_images=no_images)
        return one.write(target, dataset, options)
