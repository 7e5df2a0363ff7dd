"""The formats that ``tfod convert`` knows: their names, how they are recognized, read and written.

A new format is one entry of :data:`FORMATS`. What reads and writes it is loaded when it is asked
for: a command reads one and writes one.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfod.errors import TfodError
from tfod.shards.create.problems import STRICT, Policy
from tfod.tfrecord.shard_names import parse_shard_name
from tfod.tfrecord.shard_search import find_all_shards, looks_like_shard

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
    """One format.

    Attributes:
        title: what people call it.
        is_at: whether a path that is there holds it; several formats may say so.
        read: reads a dataset from a path; None where it is only written.
        writer: the class that writes it; None where it is only read. Shards are written otherwise.
        ending: of the file that stands for a dataset of one subset; '' where it is a folder.
        has_ids: whether it has ids of classes and of images, not only names.
    """

    title: str
    is_at: Callable[[str], bool]
    read: Callable[[str, ReadOptions], Dataset] | None = None
    writer: Callable[[], type[Writer]] | None = None
    ending: str = ""
    has_ids: bool = False


def _loaded(module: str, name: str) -> Any:
    """What a module has under a name: of a command that reads one format only its own is loaded."""
    return getattr(importlib.import_module(f"tfod.{module}"), name)


def _reads(module: str, name: str) -> Callable[[str, ReadOptions], Dataset]:
    return lambda path, options: _loaded(module, name)(path, options)


def _looks(module: str, name: str) -> Callable[[str], bool]:
    return lambda path: bool(_loaded(module, name)(path))


def _writes(module: str, name: str) -> Callable[[], type[Writer]]:
    return lambda: _loaded(module, name)


def _has_shards(path: str) -> bool:
    try:
        # Of a file that is named everybody else takes for granted that it is a shard.
        is_other = os.path.isfile(path) and not path.lower().endswith(".zip")
        return looks_like_shard(path) if is_other else bool(find_all_shards(path))
    except TfodError:
        return False


SHARDS = "shards"
_READERS, _WRITERS = "shards.convert", "convert.writers"
FORMATS: dict[str, Format] = {
    SHARDS: Format(
        "TFRecord shards",
        _has_shards,
        _reads(f"{_READERS}.read_shards", "read_shards"),
        has_ids=True,
    ),
    "coco": Format(
        "COCO",
        _looks(f"{_READERS}.read_planned", "coco_files"),
        _reads(f"{_READERS}.read_planned", "read_coco_folder"),
        _writes(f"{_WRITERS}.coco", "CocoWriter"),
        ".json",
        has_ids=True,
    ),
    "voc": Format(
        "Pascal VOC",
        _looks(f"{_READERS}.read_planned", "is_voc"),
        _reads(f"{_READERS}.read_planned", "read_voc_folder"),
        _writes(f"{_WRITERS}.voc", "VocWriter"),
    ),
    "yolo": Format(
        "YOLO",
        _looks(f"{_READERS}.read_yolo", "find_yolo"),
        _reads(f"{_READERS}.read_yolo", "read_yolo"),
        _writes(f"{_WRITERS}.yolo", "YoloWriter"),
    ),
    "cvat_xml": Format(
        "CVAT for images 1.1",
        _looks(f"{_READERS}.read_cvat_xml", "is_cvat_xml"),
        _reads(f"{_READERS}.read_cvat_xml", "read_cvat"),
        _writes(f"{_WRITERS}.cvat_xml", "CvatXmlWriter"),
        ".xml",
    ),
    # Its shards are recognized as such, by their keys.
    "tfds": Format(
        "TensorFlow Datasets",
        lambda _: False,
        _reads(f"{_READERS}.read_shards", "read_shards"),
        _writes(f"{_WRITERS}.tfds", "TfdsWriter"),
        has_ids=True,
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
    found = [name for name, one in FORMATS.items() if one.read and one.is_at(path)]
    if len(found) == 1:
        return found[0]
    if not found and not os.path.exists(path):
        raise TfodError(f"{path}: no such file or folder")
    what = f"could be {' or '.join(found)}" if found else "is of no format that is recognized"
    raise TfodError(f"{path} {what}; say which with {option}: {', '.join(READABLE)}")


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
    names = ", ".join(WRITABLE)
    raise TfodError(f"{path} does not say which format to write; say it with --to: {names}")


READABLE = tuple(name for name, one in FORMATS.items() if one.read)
WRITABLE = tuple(name for name, one in FORMATS.items() if one.writer or name == SHARDS)
