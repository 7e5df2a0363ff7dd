"""The shards of an inventory one after the other, from files and out of zips alike."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from tfod.check.findings.collector import Collector
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources.archive_contents import Archives, Contents
from tfod.check.sources.inventory import Inventory, Location
from tfod.check.sources.label_maps import label_map_file
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP, load_label_map, read_text_file
from tfod.errors import LabelMapError
from tfod.tfrecord.storage.open import ShardStream

_ROOT = os.path.abspath(os.sep)


@dataclass(frozen=True)
class WalkedShard:
    """A shard that can be read now.

    Attributes:
        name: what reports call it.
        path: where it is; of an entry of a zip, where it would be if that were unpacked into the
            root of the disk.
        subset: the subset it belongs to.
        label_map: the label map that goes with it, under its own path; None where there is none.
        label_map_data: what is in that file; empty where it was named for all shards, or cannot
            be read.
        candidates: label maps that fit equally well, when there are several.
        size: its length in bytes, where that is known.
        open: opens it for reading.
        archive: the zip it is in, if it is in one.
    """

    name: str
    path: str
    subset: str
    label_map: LabelMapFile | None
    label_map_data: bytes
    candidates: Sequence[str]
    size: int | None
    open: Callable[[], AbstractContextManager[ShardStream | BinaryIO]]
    archive: Location | None = None


def walk_shards(
    inventory: Inventory, label_map: str | None, collector: Collector | None = None
) -> Iterator[WalkedShard]:
    """Walk through the shards in the order of the inventory.

    Args:
        inventory: what there is.
        label_map: file or name of one for all shards, in place of those beside them.
        collector: takes what is wrong with zips.

    Raises:
        LabelMapError: the label map for all shards cannot be read.
        OSError: a file cannot be read.
    """
    named = None
    if label_map is not None:
        found, liberties = load_label_map(label_map)
        named = LabelMapFile(label_map, found, "", liberties)
    read = functools.cache(_label_map_of_file)
    for shard in inventory.shards:
        location = shard.location
        beside, data = None, b""
        if shard.label_map and named is None:
            beside, data = read(shard.label_map)
        yield WalkedShard(
            name=location.name,
            path=location.path,
            subset=shard.subset,
            label_map=named or beside,
            label_map_data=data,
            candidates=() if named else shard.candidates,
            size=location.size(),
            open=location.open,
        )
    with Archives(needs_label_map=named is None) as archives:
        for location in inventory.archives:
            contents = archives.open(location.path, location.name)
            contents.begin(collector)
            yield from _walk_archive(contents, location, named)


def _walk_archive(
    contents: Contents, location: Location, named: LabelMapFile | None
) -> Iterator[WalkedShard]:
    for shard in contents.shards:
        beside, data = None, b""
        if shard.label_map is not None:
            path = os.path.join(_ROOT, shard.label_map.path)
            beside, data = contents.read_label_map(shard.label_map, path)
        yield WalkedShard(
            name=shard.name,
            path=shard.path,
            subset=shard.subset,
            label_map=named or beside,
            label_map_data=data,
            candidates=(),
            size=None,
            open=functools.partial(contents.archive.open, shard.entry),
            archive=location,
        )


def _label_map_of_file(path: str) -> tuple[LabelMapFile, bytes]:
    try:
        data = read_text_file(path, LONGEST_LABEL_MAP)
    except LabelMapError as error:
        return LabelMapFile(path, None, str(error)), b""
    return label_map_file(data, path), data
