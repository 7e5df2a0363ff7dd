"""The formats that ``tfod convert`` knows: their names, how they are recognized, read and written.

A new format is one entry of :data:`FORMATS`. What reads and writes it is loaded when it is asked
for: a command reads one and writes one.
"""

from __future__ import annotations

import importlib
import os
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfod.errors import TfodError
from tfod.shards.create.problems import STRICT, Policy
from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.shard_sets.search import find_all_shards, looks_like_shard
from tfod.tfrecord.storage.urls import is_url
from tfod.tfrecord.storage.zip_files import is_zip

if TYPE_CHECKING:
    from tfod.convert.dataset import Dataset
    from tfod.convert.writers.writer import Writer


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may be told.

    Attributes:
        label_map: a label map's file, or a name that tfod ships, in place of what is found.
        images: the folder of the images, where it is not the one that the format has.
        policy: what to do with boxes and images that do not fit, of formats other than shards.
    """

    label_map: str | None = None
    images: str | None = None
    policy: Policy = STRICT


@dataclass(frozen=True)
class Format:
    """One format, by the names ``module:function`` of what reads and writes it.

    Attributes:
        looks: whether a path that is there holds it; several formats may say so.
        reads: reads a dataset from a path, as :class:`ReadOptions` have it.
        writes: the class that writes it; '' where shards are written, which goes otherwise.
        ending: of the file that stands for a dataset of one subset; '' where it is a folder.
        has_ids: whether it has ids of classes and of images, not only names.
    """

    looks: str
    reads: str
    writes: str = ""
    ending: str = ""
    has_ids: bool = False

    def is_at(self, path: str) -> bool:
        """Whether a path that is there holds it."""
        return bool(_loaded(self.looks)(path))

    def read(self, path: str, options: ReadOptions) -> Dataset:
        """Read a dataset; what its reader raises."""
        dataset: Dataset = _loaded(self.reads)(path, options)
        return dataset

    def writer(self) -> type[Writer]:
        """The class that writes it."""
        writer: type[Writer] = _loaded(self.writes)
        return writer


def _loaded(name: str) -> Any:
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(f"tfod.{module}"), function)


def has_shards(path: str) -> bool:
    """Whether a path holds shards."""
    try:
        # Of a file that is named everybody else takes for granted that it is a shard.
        is_other = os.path.isfile(path) and not is_zip(path)
        return looks_like_shard(path) if is_other else bool(find_all_shards(path))
    except TfodError:
        return False


SHARDS = "shards"
_READ, _WRITE = "shards.convert.read_", "convert.writers."
FORMATS: dict[str, Format] = {
    SHARDS: Format("shards.convert.formats:has_shards", f"{_READ}shards:read_shards", has_ids=True),
    "coco": Format(
        f"{_READ}planned:coco_files",
        f"{_READ}planned:read_coco_folder",
        f"{_WRITE}coco:CocoWriter",
        ".json",
        has_ids=True,
    ),
    "voc": Format(
        f"{_READ}planned:is_voc", f"{_READ}planned:read_voc_folder", f"{_WRITE}voc:VocWriter"
    ),
    "yolo": Format(f"{_READ}yolo:find_yolo", f"{_READ}yolo:read_yolo", f"{_WRITE}yolo:YoloWriter"),
    "cvat_xml": Format(
        f"{_READ}cvat_xml:is_cvat_xml",
        f"{_READ}cvat_xml:read_cvat",
        f"{_WRITE}cvat_xml:CvatXmlWriter",
        ".xml",
    ),
}
"""By the names that ``--from`` and ``--to`` take."""


def format_of_source(path: str, named: str | None, option: str = "--from") -> str:
    """The name of the format of what is at a path, if it was not named with an option.

    Raises:
        TfodError: the path is not there, or does not say which.
    """
    if named is not None:
        return named
    if FORMATS[SHARDS].is_at(path):  # nothing else is loaded for the most usual source
        return SHARDS
    if path.lower().endswith(".zip") and os.path.isfile(path) and not zipfile.is_zipfile(path):
        return SHARDS  # whose reader says what is wrong with it
    found = [name for name, one in FORMATS.items() if one.is_at(path)]
    if len(found) == 1:
        return found[0]
    if not found and is_url(path):
        raise TfodError(
            f"{path}: holds no shards, and only shards are read from a URL; copy it here"
        )
    if not found and not os.path.exists(path):
        raise TfodError(f"{path}: no such file or folder")
    what = f"could be {' or '.join(found)}" if found else "is of no format that is recognized"
    raise TfodError(f"{path} {what}; say which with {option}: {', '.join(FORMATS)}")


def format_of_target(path: str, named: str | None, source: str) -> str:
    """The name of the format that a path is to hold; of a folder shards, if the source is not.

    Raises:
        TfodError: the path does not say which.
    """
    if named is not None:
        return named
    for name, one in FORMATS.items():
        if one.ending and path.lower().endswith(one.ending):
            return name
    if parse_shard_name(path) is not None or source != SHARDS:
        return SHARDS
    names = ", ".join(FORMATS)
    raise TfodError(f"{path} does not say which format to write; say it with --to: {names}")
