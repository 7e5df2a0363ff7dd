"""What training reads: which shards, and the label map that goes with them."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence

from tfod.detection.labels.label_map import LabelMap, load_label_map, read_label_map
from tfod.detection.labels.search import LabelMapFinder
from tfod.errors import LabelMapError, TfodError
from tfod.tfrecord.shard_sets.search import Sources, find_all_shards

UNKNOWN = -1
"""The id of a class that the label map does not have, as the OD API's decoder gives it."""

LabelMapLike = str | os.PathLike[str] | LabelMap
"""A label map, the path of one, or the name of one that tfod ships."""


def shards_to_read(source: Sources) -> list[str]:
    """The paths of the shards that a file, a folder, a glob or several of these mean, in order.

    Subsets are mixed where a glob or a list says so. Warns of shards that the numbering ``-of-N``
    promises and that are not there, and of empty ones.

    Raises:
        ShardsNotFoundError: there is no shard.
        ShardError: all shards of a set are empty.
        TfodError: a folder or a zip has several subsets.
    """
    sets = find_all_shards(source)
    if len(sets) > 1 and isinstance(source, (str, os.PathLike)) and os.path.exists(source):
        subsets = ", ".join(one.subset for one in sets)
        fix = "name the shards of one, or mix them by a glob or a list"
        raise TfodError(f"{os.fspath(source)} has several subsets ({subsets}); {fix}")
    missing = [name for one in sets for name in one.missing]
    if missing:
        shown = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        warnings.warn(f"shards are missing from a numbered set: {shown}", stacklevel=3)
    paths = [path for one in sets for path in one.paths]
    empty = [path for path in paths if os.path.isfile(path) and not os.path.getsize(path)]
    if empty:
        # A shard without records, or a download that failed.
        warnings.warn(f"{empty[0]} is empty ({len(empty)} such shards)", stacklevel=3)
    return paths


def label_map_for(paths: Sequence[str], given: LabelMapLike | None) -> LabelMap | None:
    """The label map of shards: the one that is given, or the one that lies beside them, if any.

    Raises:
        LabelMapError: a map cannot be read, or it is not plain which map the shards go with.
    """
    if isinstance(given, LabelMap):
        return given
    if given is not None:
        return load_label_map(given)[0]
    finder, read = LabelMapFinder(), functools.cache(read_label_map)
    found: dict[LabelMap | None, str] = {}
    for path in paths:
        beside, several = finder.find(path)
        if several:
            names = ", ".join(several)
            cause = f"{path}: several label maps lie beside it ({names})"
            raise LabelMapError(f"{cause}; choose one by label_map=")
        found.setdefault(None if beside is None else read(beside)[0], path)
    (label_map, first), *others = found.items()
    if others:
        raise LabelMapError(
            f"{first} and {others[0][1]} have not the same label map beside them, and ids mean "
            "nothing without it; put the shards together with tfod reshard, or choose a map by "
            "label_map="
        )
    return label_map
