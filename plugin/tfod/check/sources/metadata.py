"""What Model Maker's and TFDS's own files say of the shards beside them, and where that is wrong.

Source: mediapipe_model_maker: object_detector/dataset.py, from_cache; tensorflow_datasets 4.9.10:
core/dataset_info.py, read_from_directory, core/splits.py, SplitInfo.from_proto, core/reader.py
(``assert_cardinality``) and core/features/top_level_feature.py, from_config.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfod.check.findings.finding import Place
from tfod.check.records.result import ShardSummary
from tfod.check.rules.labels import LabelMapFile
from tfod.check.rules.registry import RuleProblems
from tfod.check.rules.shards import wrong_metadata
from tfod.check.sources.inventory import Location
from tfod.detection.labels.label_map import LONGEST_LABEL_MAP
from tfod.errors import TfodError
from tfod.tfrecord.label_files import METADATA_ENDING
from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.shard_sets.search import TFDS_NOTE
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.urls import name_of

TFDS_FEATURES = "features.json"
TFDS_FILES = (TFDS_NOTE, TFDS_FEATURES)
_OWN_KEY = ("image", "text", "tensor", "classLabel", "boundingBox")
Found = Iterator[tuple[RuleProblems, Place]]


def read_tfds_files(shards: Iterable[Location]) -> dict[str, bytes]:
    """TFDS's files beside shards, by path; those that are not there, or cannot be read, are not."""
    found = {}
    for named, folder in dict.fromkeys((_folder(one.name), _folder(one.path)) for one in shards):
        for name in TFDS_FILES:
            with contextlib.suppress(OSError, TfodError), open_shard(folder + name) as (stream, _):
                found[named + name] = stream.read(LONGEST_LABEL_MAP)
    return found


def _folder(path: str) -> str:
    """What stands in front of a file's name, with the slash."""
    return path[: len(path) - len(name_of(path))]


def _parts(shard: ShardSummary) -> tuple[str, str]:
    """The same of a shard, which may be an entry of a zip (``x.zip:a.tfrecord``), and its name."""
    name = name_of(shard.name)
    if shard.in_archive:
        name = name.rpartition(":")[2]
    return shard.name[: len(shard.name) - len(name)], name


def metadata_problems(
    shards: Sequence[ShardSummary],
    label_maps: Mapping[str, LabelMapFile],
    tfds_files: Mapping[str, bytes],
) -> Found:
    """What is wrong, and where."""
    by_map: dict[str | None, list[ShardSummary]] = {}
    by_folder: dict[str, list[ShardSummary]] = {}
    for shard in shards:
        by_map.setdefault(shard.label_map, []).append(shard)
        by_folder.setdefault(_parts(shard)[0], []).append(shard)
    for name, members in by_map.items():
        file = label_maps.get(name or "")
        if file and file.label_map and file.name.endswith(METADATA_ENDING):
            yield from _wrong_size(file.name, file.label_map.size, members)
    for folder, members in by_folder.items():
        there = [name for name in TFDS_FILES if folder + name in tfds_files]
        if len(there) == 1:
            (lacking,) = set(TFDS_FILES).difference(there)
            yield wrong_metadata(f"there is no {lacking} beside it"), Place(folder + there[0])
        elif there:
            yield from _wrong_splits(folder + TFDS_NOTE, tfds_files, members)
            yield from _wrong_features(folder + TFDS_FEATURES, tfds_files, members)


def _wrong_size(name: str, size: object, members: Sequence[ShardSummary]) -> Found:
    """Model Maker's ``size``, which is compared where all shards of the cache are checked."""
    records = sum(one.records for one in members)
    shard = parse_shard_name(members[0].name)
    if type(size) is not int:
        said = "no size" if size is None else f"the size {size!r}, which is not a number"
        yield wrong_metadata(f"it has {said}; the shards have {records:,} records"), Place(name)
    elif size != records and shard and shard.total == len(members):
        said = f"size is {size:,}, the shards have {records:,} records"
        yield wrong_metadata(said), Place(name)


def _wrong_splits(path: str, files: Mapping[str, bytes], members: Sequence[ShardSummary]) -> Found:
    """The shards and their lengths that ``dataset_info.json`` names."""
    place = Place(path)
    try:
        info: Any = json.loads(files[path])
        start, version, splits = info["name"], info["version"], info.get("splits", [])
        lengths = {one["name"]: [int(n) for n in one["shardLengths"]] for one in splits}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        why = "it is no JSON with a name, a version, and the splits' names and shardLengths"
        yield wrong_metadata(why), place
        return
    if not version:
        yield wrong_metadata("it has no version"), place
    expected = {
        f"{start}-{split}.tfrecord-{number:05d}-of-{len(some):05d}": length
        for split, some in lengths.items()
        for number, length in enumerate(some)
    }
    for shard in members:
        name = _parts(shard)[1]
        length = expected.pop(name, None)
        if length is None:
            yield wrong_metadata(f"it does not name {name}, which TFDS then does not read"), place
        elif length != shard.records:
            said = f"{name} has {length:,} records by it, but {shard.records:,} in fact"
            yield wrong_metadata(said), place
    if expected and len(members) > 1:
        count = f"; and {len(expected) - 1:,} more" if len(expected) > 1 else ""
        yield (
            wrong_metadata(f"it names {next(iter(expected))}, which was not checked{count}"),
            place,
        )


def _wrong_features(
    path: str, files: Mapping[str, bytes], members: Sequence[ShardSummary]
) -> Found:
    """The keys that ``features.json`` names and that no record of a shard has."""
    try:
        features = set(_keys_of(json.loads(files[path])))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        yield wrong_metadata("it is not what TFDS writes: featuresDict: features"), Place(path)
        return
    for shard in members:
        lacking = sorted(features - shard.keys) if shard.records else []
        if lacking:
            said = f"the records of {_parts(shard)[1]} have no {', '.join(lacking)}"
            yield wrong_metadata(said, lacking[0]), Place(path)
            return


def _keys_of(feature: Mapping[str, Any], name: str = "") -> Iterator[str]:
    """The keys that each record has to have; those of sequences may be left out."""
    if "featuresDict" in feature:
        for key, inside in feature["featuresDict"]["features"].items():
            yield from _keys_of(inside, f"{name}/{key}" if name else key)
    elif not name:
        raise ValueError("the outermost one is another one")
    elif any(kind in feature for kind in _OWN_KEY):
        yield name
