"""A zip as a data set: its shards with their label maps, and what else is in it."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from tfod.detection.features.field_mapping import FieldMapping
from tfod.sources.label_map_search import LabelMapFinder, may_be_label_map
from tfod.sources.layouts import classes_in
from tfod.sources.resolved import Dataset, File, LabelMapFile, Shard, Zip
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE, group_shards, is_hidden, shards_in_zip
from tfod.tfrecord.storage.archive import ZipContent, ZipLimits, read_zip


def zip_dataset(
    file: File, limits: ZipLimits, field_mapping: FieldMapping | None = None
) -> Dataset:
    """Return the shards of a zip with their label maps, and what else is in it."""
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
    finder = LabelMapFinder(
        lambda at: classes_in(at, field_mapping), functools.partial(_label_maps_in, content)
    )
    label_maps: dict[str, LabelMapFile] = {}
    names: dict[int, Sequence[str]] = {}  # of candidates, which many shards may share
    found = []
    for subset, at in ((group.subset, at) for group in groups for at in group.paths):
        label_map, several = finder.find(at)
        if id(several) not in names:
            names[id(several)] = tuple(archive.name_of(content.entries[one]) for one in several)
        name = archive.name_of(content.entries[label_map]) if label_map else None
        if label_map and name and name not in label_maps:
            label_maps[name] = LabelMapFile.at(label_map, name)
        entry = content.entries[at]
        shown = archive.name_of(entry)
        found.append(Shard(shown, at, entry.size, subset, name, names[id(several)], entry))
    return Dataset(file.name, found, label_maps, [archive], finder.notes)


def _label_maps_in(content: ZipContent, folder: str) -> Sequence[str]:
    return [
        path
        for path in sorted(content.folders.get(folder, ()))
        if may_be_label_map(path)
        and path in content.readable
        and not is_hidden(content.entries[path].inside)
    ]
