"""The formats that ``tfod convert`` knows: their names, how they are recognized, read and written.

A new format is one entry of :data:`FORMATS`. What reads and writes it is loaded when it is asked
for: a command reads one and writes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfod.errors import TfodError
from tfod.shards.create.problems import STRICT, Policy
from tfod.tfrecord.shard_names import parse_shard_name
from tfod.tfrecord.shard_search import find_all_shards

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
    """

    title: str
    is_at: Callable[[str], bool]
    read: Callable[[str, ReadOptions], Dataset] | None = None
    writer: Callable[[], type[Writer]] | None = None
    ending: str = ""


def _read_shards(path: str, options: ReadOptions) -> Dataset:
    from tfod.shards.convert.read_shards import read_shards

    return read_shards(path, options.label_map)


def _coco_writer() -> type[Writer]:
    from tfod.convert.writers.coco import CocoWriter

    return CocoWriter


def _has_shards(path: str) -> bool:
    try:
        return bool(find_all_shards(path))
    except TfodError:
        return False


SHARDS = "shards"
FORMATS: dict[str, Format] = {
    SHARDS: Format("TFRecord shards", _has_shards, _read_shards),
    "coco": Format("COCO", lambda path: path.endswith(".json"), None, _coco_writer, ".json"),
}
"""By the names that ``--from`` and ``--to`` take."""


def format_of_source(path: str, named: str | None) -> str:
    """The name of the format of what is at a path.

    Raises:
        TfodError: the path is not there, or does not say which.
    """
    if named is not None:
        return named
    found = [name for name, one in FORMATS.items() if one.read and one.is_at(path)]
    if len(found) == 1:
        return found[0]
    if not found and not os.path.exists(path):
        raise TfodError(f"{path}: no such file or folder")
    what = f"could be {' or '.join(found)}" if found else "is of no format that is recognized"
    raise TfodError(f"{path} {what}; say which with --from: {', '.join(READABLE)}")


def format_of_target(path: str, named: str | None) -> str:
    """The name of the format that a path is to hold.

    Raises:
        TfodError: the path does not say which.
    """
    if named is not None:
        return named
    for name, one in FORMATS.items():
        if one.ending and path.lower().endswith(one.ending):
            return name
    if parse_shard_name(path) is not None:
        return SHARDS
    names = ", ".join(WRITABLE)
    raise TfodError(f"{path} does not say which format to write; say it with --to: {names}")


READABLE = tuple(name for name, one in FORMATS.items() if one.read)
WRITABLE = tuple(name for name, one in FORMATS.items() if one.writer or name == SHARDS)
