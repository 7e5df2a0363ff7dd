"""The input of training: which shards, their label map and the keys of their records."""

from __future__ import annotations

import os
import warnings

from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import LabelMap, load_label_map
from tfod.errors import LabelMapError, TfodError
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.shard_sets.search import Sources

UNKNOWN = -1
"""The id of a class that the label map does not have, as the OD API's decoder gives it."""

LabelMapLike = str | os.PathLike[str] | LabelMap
"""A label map, its path, or the name of one that tfod ships."""


def shards_to_read(
    source: Sources, *, field_mapping: FieldMapping | None = None, finds_label_maps: bool = True
) -> ReadableShards:
    """Return the shards that a file, a folder, a glob or several of these mean, in order.

    A glob or a list mixes subsets. Warns of shards that the numbering ``-of-N`` promises and that
    are missing, of empty shards, and of what is left out.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: all shards of a set are empty.
        TfodError: a folder or a zip has several subsets.
    """
    shards = find_readable(source, field_mapping=field_mapping, finds_label_maps=finds_label_maps)
    sets = shards.sets
    if len(sets) > 1 and isinstance(source, (str, os.PathLike)) and os.path.exists(source):
        subsets = ", ".join(one.subset for one in sets)
        fix = "name the shards of one, or mix them by a glob or a list"
        raise TfodError(f"{os.fspath(source)} has several subsets ({subsets}); {fix}")
    missing = [name for one in sets for name in one.missing]
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        warnings.warn(f"shards are missing from a numbered set: {shown}", stacklevel=3)
    paths = shards.paths
    empty = [path for path in paths if os.path.isfile(path) and not os.path.getsize(path)]
    if empty:
        # A shard without records, or a download that failed.
        warnings.warn(f"{empty[0]} is empty ({len(empty)} such shards)", stacklevel=3)
    for note in shards.notes:
        warnings.warn(note, stacklevel=3)
    return shards


def label_map_for(shards: ReadableShards, given: LabelMapLike | None) -> LabelMap | None:
    """Return the given label map, or the one that goes with the shards, if any.

    Raises:
        LabelMapError: a map cannot be read, or several maps may go with the shards.
    """
    if isinstance(given, LabelMap):
        return given
    if given is not None:
        return load_label_map(given)[0]
    for shard in (shard for dataset in shards.datasets for shard in dataset.shards):
        if shard.candidates:
            names = ", ".join(shard.candidates)
            cause = f"{shard.name}: several label maps are next to it ({names})"
            raise LabelMapError(f"{cause}; choose one by label_map=")
    label_maps: dict[LabelMap | None, str] = {}
    for path in shards.paths:
        label_maps.setdefault(shards.label_map(path), path)
    (label_map, first), *others = label_maps.items()
    if others:
        raise LabelMapError(
            f"{first} and {others[0][1]} have different label maps next to them, and ids mean "
            "nothing without one; put the shards together with tfod reshard, or choose a map by "
            "label_map="
        )
    return label_map


def field_mapping_for(shards: ReadableShards) -> FieldMapping:
    """Return the keys of the records, which must be the same in all shards.

    Raises:
        TfodError: the layout is unknown, or the shards have several layouts.
    """
    paths_by_mapping: dict[FieldMapping, str] = {}
    for path in shards.paths:
        paths_by_mapping.setdefault(shards.field_mapping(path), path)
    (mapping, first), *others = paths_by_mapping.items()
    if others:
        raise TfodError(
            f"{first} and {others[0][1]} have different layouts; read them one after the other"
        )
    return mapping
