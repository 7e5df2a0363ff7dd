"""Zips as datasets: shards with their label maps, and other entries."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence

from tfod.detection.features.field_mapping import FieldMapping
from tfod.sources.label_map_search import LabelMapFinder, may_be_label_map
from tfod.sources.layouts import read_classes
from tfod.sources.resolved import Dataset, File, LabelMapFile, Shard, Zip
from tfod.tfrecord.shard_sets.search import ROBOFLOW_NOTE, find_zip_shards, group_shards, is_hidden
from tfod.tfrecord.storage.archive import ZipContent, ZipLimits, read_zip


def resolve_zip(file: File, limits: ZipLimits, mapping: FieldMapping | None = None) -> Dataset:
    """Return a zip as a dataset."""
    zip_path = os.path.abspath(file.path)  # absolute, as the folders of the label map search
    try:
        content = read_zip(zip_path, limits)
    except OSError as error:
        reason = error.strerror or str(error)
        return Dataset(file.name, zips=[Zip(file.name, file.path, file.size, unreadable=reason)])
    shard_paths = dict.fromkeys(find_zip_shards(content))
    other_entries = [entry for path, entry in content.readable.items() if path not in shard_paths]
    has_shards = content.damage is not None or bool(shard_paths)
    archive = Zip(file.name, file.path, file.size, content, other_entries, has_shards)
    groups = group_shards(
        [path for path in shard_paths if path in content.readable],
        zip_path,
        by_folder=os.path.join(zip_path, ROBOFLOW_NOTE) in content.entries,
    )
    list_maps = functools.partial(_label_maps_in, content)
    finder = LabelMapFinder(lambda path: read_classes(path, mapping), list_maps)
    label_maps: dict[str, LabelMapFile] = {}
    names: dict[int, Sequence[str]] = {}  # by identity, since many shards may share candidates
    shards = []
    for subset, path in ((group.subset, path) for group in groups for path in group.paths):
        label_map, candidates = finder.find(path)
        if id(candidates) not in names:
            entries = (content.entries[candidate] for candidate in candidates)
            names[id(candidates)] = tuple(map(archive.display_name, entries))
        name = archive.display_name(content.entries[label_map]) if label_map else None
        if label_map and name and name not in label_maps:
            label_maps[name] = LabelMapFile.at(label_map, name)
        entry, maps = content.entries[path], names[id(candidates)]
        shard_name = archive.display_name(entry)
        shards.append(Shard(shard_name, path, entry.size, subset, name, maps, entry))
    return Dataset(file.name, shards, label_maps, [archive], finder.notes)


def _label_maps_in(content: ZipContent, folder: str) -> Sequence[str]:
    return [
        path
        for path in sorted(content.folders.get(folder, ()))
        if may_be_label_map(path)
        and path in content.readable
        and not is_hidden(content.entries[path].inside)
    ]
