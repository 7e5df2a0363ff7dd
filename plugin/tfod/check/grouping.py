"""What a data set is: the shards of one folder, with those of its folders for splits."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfod.check.dataset import Dataset, File, LabelMapFile, Shard, numbered_sets_of
from tfod.check.findings.finding import plural
from tfod.tfrecord.shard_sets.names import SPLITS, missing_of_sets, subset_of_stem
from tfod.tfrecord.shard_sets.search import is_roboflow_export
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of


@dataclass(frozen=True)
class ShardGroup:
    """Shards of one subset, and the names that their numbering promises in vain."""

    subset: str
    shards: Sequence[Shard]
    missing: Sequence[str]


def datasets_of(groups: Sequence[ShardGroup], read: Callable[[str], LabelMapFile]) -> list[Dataset]:
    """The data sets of shards that lie open, in the order of these.

    Shards belong together that lie in one folder, or in folders below it that are named as splits
    (``train``, ``valid``, ``test``, …) or that a Roboflow export has.
    """
    folder_of_dataset = functools.cache(_folder_of_dataset)
    by_dataset: dict[str, list[ShardGroup]] = {}
    for group in groups:
        for key, part in _parts_of(group, folder_of_dataset):
            by_dataset.setdefault(key, []).append(part)
    return [_dataset(_by_split(parts), read) for parts in by_dataset.values()]


def _dataset(groups: Sequence[ShardGroup], read: Callable[[str], LabelMapFile]) -> Dataset:
    shards = [shard for group in groups for shard in group.shards]
    numbered = [
        one
        for group in groups
        for one in numbered_sets_of([shard.name for shard in group.shards], group.missing)
    ]
    names = dict.fromkeys(one.label_map for one in shards if one.label_map)
    label_maps = {name: read(name) for name in names}
    return Dataset(_name_of(shards), shards, label_maps, numbered)


def _by_split(parts: list[ShardGroup]) -> list[ShardGroup]:
    """Subsets that have one name in several folders get the names of their folders."""
    folders: dict[str, set[str]] = {}
    for part in parts:
        folders.setdefault(part.subset, set()).add(folder_of(part.shards[0].path))
    return [_named_by_folder(one) if len(folders[one.subset]) > 1 else one for one in parts]


def _named_by_folder(part: ShardGroup) -> ShardGroup:
    subset = subset_of_stem(name_of(folder_of(part.shards[0].path)))
    return ShardGroup(subset, [replace(one, subset=subset) for one in part.shards], part.missing)


def _parts_of(
    group: ShardGroup, folder_of_dataset: Callable[[str], str]
) -> Iterator[tuple[str, ShardGroup]]:
    """The shards of a subset by dataset and folder."""
    parts: dict[str, list[int]] = {}
    for number, shard in enumerate(group.shards):
        parts.setdefault(folder_of(shard.path), []).append(number)
    for folder, numbers in parts.items():
        shards = [group.shards[number] for number in numbers]
        missing = group.missing
        if missing and len(parts) > 1:
            missing = missing_of_sets([one.path for one in shards])
        yield folder_of_dataset(folder), ShardGroup(group.subset, shards, missing)


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
        more = len(shards) - 1
        return f"{first.name} and {plural(more, 'more file')}" if more else first.name
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)


def once(groups: Sequence[ShardGroup]) -> list[ShardGroup]:
    """Every shard once, however many sources and links mean it."""
    seen: set[str] = set()
    found = []
    for group in groups:
        shards = []
        for shard in group.shards:
            path = real_path(shard)
            if path not in seen:
                seen.add(path)
                shards.append(shard)
        if shards:
            found.append(replace(group, shards=shards))
    return found


def real_path(file: File) -> str:
    """Where a file is, whatever links lead to it."""
    return file.path if file.is_remote else os.path.realpath(file.path)


def join_sets(groups: Sequence[ShardGroup]) -> list[ShardGroup]:
    """Bring together what a shell has taken apart: the shards of a set, named one by one."""
    joined: dict[tuple[str, str], list[ShardGroup]] = {}
    for number, group in enumerate(groups):
        is_part = len(group.shards) == 1 and group.shards[0].numbered and not group.missing
        folder = folder_of(group.shards[0].path)
        joined.setdefault((folder, group.subset) if is_part else ("", str(number)), []).append(
            group
        )
    found = []
    for parts in joined.values():
        shards = [shard for part in parts for shard in part.shards]
        missing = list(parts[0].missing)
        if len(parts) > 1:
            missing = _absent(missing_of_sets([shard.path for shard in shards]), shards)
        found.append(ShardGroup(parts[0].subset, shards, missing))
    return found


def _absent(names: Sequence[str], shards: Sequence[Shard]) -> list[str]:
    """Those of the names that are not there either: it may be that not all were to be checked."""
    if shards[0].is_remote:
        return list(names)
    folder = os.path.dirname(shards[0].path)
    return [name for name in names if not os.path.exists(os.path.join(folder, name))]
