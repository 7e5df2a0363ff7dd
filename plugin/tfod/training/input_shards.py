"""The input of training: shards, their label map and the keys of their records."""

from __future__ import annotations

import os
import warnings

from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import LabelMap, load_label_map
from tfod.errors import LabelMapError, TfodError
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.shard_sets.search import Sources

UNKNOWN = -1
"""The id of a class that is not in the label map, as in the OD API's decoder."""

LabelMapLike = str | os.PathLike[str] | LabelMap
"""A label map, its path, or the name of a packaged label map."""


def find_training_shards(
    source: Sources, *, field_mapping: FieldMapping | None = None, finds_label_maps: bool = True
) -> ReadableShards:
    """Return the shards of a file, folder, glob or list, in order.

    Globs and lists may mix subsets. Missing or empty shards and skipped files cause warnings.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: all shards of a set are empty.
        TfodError: a folder or zip has several subsets.
    """
    shards = find_readable(source, field_mapping=field_mapping, finds_label_maps=finds_label_maps)
    sets = shards.sets
    if len(sets) > 1 and isinstance(source, (str, os.PathLike)) and os.path.exists(source):
        subsets = ", ".join(shard_set.subset for shard_set in sets)
        fix = "pass the shards of one subset, or a glob or list to mix them"
        raise TfodError(f"{os.fspath(source)} has several subsets ({subsets}); {fix}")
    missing = [name for shard_set in sets for name in shard_set.missing]
    if missing:
        names = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        warnings.warn(f"shards are missing from a numbered set: {names}", stacklevel=3)
    empty = [path for path in shards.paths if os.path.isfile(path) and not os.path.getsize(path)]
    if empty:
        warnings.warn(f"{empty[0]} is empty ({len(empty)} such shards)", stacklevel=3)
    for note in shards.notes:
        warnings.warn(note, stacklevel=3)
    return shards


def choose_label_map(shards: ReadableShards, label_map: LabelMapLike | None) -> LabelMap | None:
    """Load a label map; if it is None, find the label map of the shards, which may be None.

    An unreadable or ambiguous label map raises LabelMapError.
    """
    if isinstance(label_map, LabelMap):
        return label_map
    if label_map is not None:
        return load_label_map(label_map)[0]
    for shard in (shard for dataset in shards.datasets for shard in dataset.shards):
        if shard.candidates:
            names = ", ".join(shard.candidates)
            cause = f"{shard.name}: several label maps are next to it ({names})"
            raise LabelMapError(f"{cause}; choose one with label_map=")
    paths_by_map: dict[LabelMap | None, str] = {}
    for path in shards.paths:
        paths_by_map.setdefault(shards.label_map(path), path)
    (shared_map, first), *different = paths_by_map.items()
    if different:
        raise LabelMapError(
            f"{first} and {different[0][1]} have different label maps, so their class ids are not "
            "comparable; merge the shards with tfod reshard, or pass label_map="
        )
    return shared_map


def choose_field_mapping(shards: ReadableShards) -> FieldMapping:
    """Return the field mapping; raise TfodError if the layout is unknown or not unique."""
    paths_by_mapping: dict[FieldMapping, str] = {}
    for path in shards.paths:
        paths_by_mapping.setdefault(shards.field_mapping(path), path)
    (mapping, first), *different = paths_by_mapping.items()
    if different:
        other = different[0][1]
        raise TfodError(f"{first} and {other} have different layouts; read them separately")
    return mapping
