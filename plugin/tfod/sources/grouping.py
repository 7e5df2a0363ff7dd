"""Which data set each shard belongs to, by its folder, and what the data set is called."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tfod.sources.resolved import Dataset, LabelMapFile, Shard
from tfod.tfrecord.shard_sets.search import is_roboflow_export
from tfod.tfrecord.shard_sets.shard_names import SPLITS, to_subset
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of


def datasets_of(
    shards: Iterable[Shard], read: Callable[[str], LabelMapFile] = LabelMapFile.at
) -> list[Dataset]:
    """Group shards that are not in zips into data sets, in the order of the shards.

    Shards belong together that lie in one folder, or in folders below it that are named as splits
    (``train``, ``valid``, ``test``, …) or that a Roboflow export has.

    Args:
        shards: none of them twice.
        read: reads a label map by its name.
    """
    read = functools.cache(read)
    whole = functools.cache(_folder_of_dataset)
    members: dict[str, list[Shard]] = {}
    for shard in shards:
        members.setdefault(whole(folder_of(shard.path)), []).append(shard)
    return [
        Dataset(
            _name_of(own),
            _by_split(own),
            {one.label_map: read(one.label_map) for one in own if one.label_map},
        )
        for own in members.values()
    ]


def _by_split(shards: Sequence[Shard]) -> Sequence[Shard]:
    """Subsets that have one name in several folders get the names of their folders."""
    folders: dict[str, set[str]] = {}
    for one in shards:
        folders.setdefault(one.subset, set()).add(folder_of(one.path))
    return [
        replace(one, subset=to_subset(name_of(folder_of(one.path))))
        if len(folders[one.subset]) > 1
        else one
        for one in shards
    ]


def _folder_of_dataset(folder: str) -> str:
    """The folder itself, or the one above it where it is one of a split."""
    parent = folder_of(folder)
    is_split = name_of(folder).lower() in SPLITS
    if is_split or (not is_url(parent) and is_roboflow_export(parent)):
        return parent
    # ``train_data`` and ``val_data`` are one split, too.
    words = re.split("([^a-z]+)", name_of(folder).lower())
    if SPLITS.isdisjoint(words):
        return folder
    alike = "".join("*" if word in SPLITS else word for word in words)
    return f"{parent.rstrip('/')}/{alike}" if is_url(parent) else os.path.join(parent, alike)


def _name_of(shards: Sequence[Shard]) -> str:
    """The folder as the shards are named by it; of uploads, which have none, their names."""
    first = shards[0]
    folders = {folder_of(one.path) for one in shards}
    folder = folders.pop() if len(folders) == 1 else _folder_of_dataset(folder_of(first.path))
    if first.is_remote:
        return folder
    if first.name != first.path:  # an upload, or standard input
        others = len(shards) - 1
        more = f" and {others} more file{'s' * (others > 1)}" if others else ""
        return first.name + more
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)
