"""Grouping of shards into datasets, and the names of the datasets."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tfod.sources.resolved import Dataset, LabelMapFile, Shard
from tfod.tfrecord.shard_sets.search import is_roboflow_export
from tfod.tfrecord.shard_sets.shard_names import SPLITS, to_subset
from tfod.tfrecord.storage.urls import get_folder, get_name, is_url


def group_datasets(
    shards: Iterable[Shard], read: Callable[[str], LabelMapFile] = LabelMapFile.at
) -> list[Dataset]:
    """Group unique shards outside of zips into datasets, in order; ``read`` reads a label map.

    The shards of a dataset are in one folder, or in its subfolders for splits (``train``,
    ``valid``, ``test``, …) or of a Roboflow export.
    """
    read = functools.cache(read)
    dataset_folder = functools.cache(_dataset_folder)
    groups: dict[str, list[Shard]] = {}
    for shard in shards:
        groups.setdefault(dataset_folder(get_folder(shard.path)), []).append(shard)
    return [
        Dataset(
            _dataset_name(group),
            _rename_subsets(group),
            {shard.label_map: read(shard.label_map) for shard in group if shard.label_map},
        )
        for group in groups.values()
    ]


def _rename_subsets(shards: Sequence[Shard]) -> Sequence[Shard]:
    """Name subsets after their folders if several folders have a subset of the same name."""
    folders: dict[str, set[str]] = {}
    for shard in shards:
        folders.setdefault(shard.subset, set()).add(get_folder(shard.path))
    return [
        replace(shard, subset=to_subset(get_name(get_folder(shard.path))))
        if len(folders[shard.subset]) > 1
        else shard
        for shard in shards
    ]


def _dataset_folder(folder: str) -> str:
    parent = get_folder(folder)
    name = get_name(folder).lower()
    if name in SPLITS or (not is_url(parent) and is_roboflow_export(parent)):
        return parent
    # ``train_data`` and ``val_data`` are splits of one dataset, too.
    words = re.split("([^a-z]+)", name)
    if SPLITS.isdisjoint(words):
        return folder
    pattern = "".join("*" if word in SPLITS else word for word in words)
    return f"{parent.rstrip('/')}/{pattern}" if is_url(parent) else os.path.join(parent, pattern)


def _dataset_name(shards: Sequence[Shard]) -> str:
    """Return the folder, relative if the shards are; uploads are named after their files."""
    first = shards[0]
    folders = {get_folder(shard.path) for shard in shards}
    folder = folders.pop() if len(folders) == 1 else _dataset_folder(get_folder(first.path))
    if first.is_remote:
        return folder
    if first.name != first.path:  # an upload, or standard input
        more = len(shards) - 1
        return first.name + (f" and {more} more file{'s' if more > 1 else ''}" if more else "")
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)
