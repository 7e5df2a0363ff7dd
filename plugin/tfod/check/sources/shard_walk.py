"""The shards of an inventory one after the other, from files and out of zips alike."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO

from tfod.check.collector import Collector
from tfod.check.rules.labels import LabelMapFile
from tfod.check.sources.archive import Archive, ArchiveDamageError
from tfod.check.sources.archive_contents import look_through, read_entry
from tfod.check.sources.label_maps import label_map_file
from tfod.check.sources.search import Inventory, Location, ShardStream
from tfod.detection.label_map import LONGEST_LABEL_MAP, load_label_map
from tfod.tfrecord.shard_names import parse_shard_name
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.zip_directory import Entry

_ROOT = os.path.abspath(os.sep)


@dataclass(frozen=True)
class WalkedShard:
    """A shard that can be read now.

    Attributes:
        name: what reports call it.
        path: where it is; of an entry of a zip, where it would be if that were unpacked into the
            root of the disk.
        subset: the subset it belongs to.
        numbered: whether it is one of a numbered set.
        label_map: the label map that goes with it, under its own path; None where there is none.
        label_map_data: what is in that file; empty where it was named for all shards, or cannot
            be read.
        rivals: label maps that fit equally well, when there are several.
        size: its length in bytes, where that is known.
        open: opens it for reading.
        archive: the zip it is in, if it is in one.
    """

    name: str
    path: str
    subset: str
    numbered: bool
    label_map: LabelMapFile | None
    label_map_data: bytes
    rivals: Sequence[str]
    size: int | None
    open: Callable[[], AbstractContextManager[ShardStream | BinaryIO]]
    archive: Location | None = None


def walk_shards(
    inventory: Inventory, label_map: str | None, collector: Collector
) -> Iterator[WalkedShard]:
    """Walk through the shards in the order of the inventory.

    Args:
        inventory: what there is.
        label_map: file or name of one for all shards, in place of those beside them.
        collector: told of what is wrong with zips.

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
            numbered=shard.numbered,
            label_map=named or beside,
            label_map_data=data,
            rivals=() if named else shard.rivals,
            size=location.size(),
            open=location.open,
        )
    for location in inventory.archives:
        yield from _walk_archive(location, named, collector)


def _walk_archive(
    location: Location, named: LabelMapFile | None, collector: Collector
) -> Iterator[WalkedShard]:
    with Archive(location.path, location.name, collector) as archive:
        contents = look_through(archive, collector, needs_label_map=named is None)
        for group in contents.shard_sets:
            for path in group.paths:
                entry = contents.shards[path]
                map_entry = contents.label_maps.get(path)
                beside, data = None, b""
                if map_entry is not None:
                    beside, data = _label_map_of_entry(archive, map_entry)
                name = parse_shard_name(path)
                yield WalkedShard(
                    name=archive.place(entry).shard,
                    path=path,
                    subset=group.subset,
                    numbered=name is not None and name.total is not None,
                    label_map=named or beside,
                    label_map_data=data,
                    rivals=(),
                    size=None,
                    open=functools.partial(archive.open, entry),
                    archive=location,
                )


def _label_map_of_entry(archive: Archive, entry: Entry) -> tuple[LabelMapFile, bytes]:
    path = os.path.join(_ROOT, entry.path)
    try:
        data = read_entry(archive, entry, LONGEST_LABEL_MAP + 1)
    except ArchiveDamageError:
        return LabelMapFile(path, None, f"{archive.place(entry).shard}: cannot be read"), b""
    return label_map_file(data, path), data


def _label_map_of_file(path: str) -> tuple[LabelMapFile, bytes]:
    try:
        with open_shard(path) as (stream, _):
            data = b""
            while len(data) <= LONGEST_LABEL_MAP and (more := stream.read(LONGEST_LABEL_MAP)):
                data += more
    except OSError as error:
        return LabelMapFile(path, None, f"{path} cannot be read: {error.strerror}"), b""
    return label_map_file(data, path), data
