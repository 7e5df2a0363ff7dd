"""What a data set is: the shards of one folder, with those of its folders for splits; or a zip."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tfod.check.dataset import Dataset, File, LabelMapFile, Shard, Zip
from tfod.check.findings.finding import plural
from tfod.detection.labels.search import LabelMapFinder, may_be_label_map
from tfod.tfrecord.shard_sets.names import SPLITS, subset_of_stem
from tfod.tfrecord.shard_sets.search import (
    ROBOFLOW_NOTE,
    group_shards,
    is_hidden,
    is_roboflow_export,
    shards_in_zip,
)
from tfod.tfrecord.storage.urls import folder_of, is_url, name_of
from tfod.tfrecord.storage.zip_directory import ZipContent, ZipLimits, read_zip


def datasets_of(
    shards: Iterable[Shard], read: Callable[[str], LabelMapFile] = LabelMapFile.at
) -> list[Dataset]:
    """The data sets of shards that lie open, in the order of these.

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
        replace(one, subset=subset_of_stem(name_of(folder_of(one.path))))
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
        more = len(shards) - 1
        return f"{first.name} and {plural(more, 'more file')}" if more else first.name
    return folder if os.path.isabs(first.name) else os.path.relpath(folder)


def zip_dataset(file: File, limits: ZipLimits) -> Dataset:
    """What is in a zip: its shards with their label maps, and the rest."""
    path = os.path.abspath(file.path)  # as the folders are in which label maps are looked for
    try:
        content = read_zip(path, limits)
    except OSError as error:
        reason = error.strerror or str(error)
        return Dataset(file.name, zips=[Zip(file.name, file.path, file.size, unreadable=reason)])
    shards = dict.fromkeys(shards_in_zip(content))
    others = [one for at, one in content.readable.items() if at not in shards]
    is_one = content.damage is not None or bool(shards)
    archive = Zip(file.name, file.path, file.size, content, others, is_one)
    groups = group_shards(
        [one for one in shards if one in content.readable],
        path,
        by_folder=os.path.join(path, ROBOFLOW_NOTE) in content.entries,
    )
    finder = LabelMapFinder(functools.partial(_label_maps_in, content))
    label_maps: dict[str, LabelMapFile] = {}
    names: dict[int, Sequence[str]] = {}  # of candidates, which many shards may share
    found = []
    for subset, at in ((group.subset, at) for group in groups for at in group.paths):
        label_map, several = finder.find(at)
        if id(several) not in names:
            names[id(several)] = [archive.name_of(content.entries[one]) for one in several]
        name = archive.name_of(content.entries[label_map]) if label_map else None
        if label_map and name and name not in label_maps:
            label_maps[name] = LabelMapFile.at(label_map, name)
        entry = content.entries[at]
        shown = archive.name_of(entry)
        found.append(Shard(shown, at, entry.size, subset, name, names[id(several)], entry))
    return Dataset(file.name, found, label_maps, [archive])


def _label_maps_in(content: ZipContent, folder: str) -> Sequence[str]:
    return [
        path
        for path in sorted(content.folders.get(folder, ()))
        if may_be_label_map(path)
        and path in content.readable
        and not is_hidden(content.entries[path].inside)
    ]
