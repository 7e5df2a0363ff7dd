"""Shards as a dataset to be converted: columns, each with the label map beside its shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tfod.convert.dataset import Batch, Dataset
from tfod.detection import keys
from tfod.detection.columns import OD_API
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import KERAS_COCO, FieldMapping
from tfod.detection.labels.label_map import LabelMap
from tfod.detection.labels.labels_file import load_classes, read_classes
from tfod.errors import TfodError
from tfod.example.columns import ExampleBatch
from tfod.shards.convert.formats import ReadOptions
from tfod.shards.inputs import missing_shards, sound_examples
from tfod.shards.label_maps import label_maps_of
from tfod.tfrecord.shard_sets.search import ShardSet, find_all_shards


def read_shards(source: str, options: ReadOptions) -> Dataset:
    """Read shards of the OD API's keys, or of those of a profile that tfod has.

    A label map of the options is for all shards, in place of those beside them.

    Raises:
        ShardsNotFoundError: there is no shard.
        LabelMapError: a label map cannot be read.
    """
    label_map = options.label_map
    sets = find_all_shards(source)
    paths = [path for one in sets for path in one.paths]
    notes = missing_shards(sets)
    maps: dict[str, LabelMap] = {}
    files = label_maps_of(paths, notes) if label_map is None else dict.fromkeys(paths, label_map)
    of_shard: dict[str, LabelMap | None] = {}
    for path, found in files.items():
        if found is not None and found not in maps:
            read = read_classes if label_map is None else load_classes
            maps[found], liberties = read(found)
            notes += liberties
        of_shard[path] = maps[found] if found is not None else None
    return Dataset(
        tuple(maps.values()),
        {one.subset: _batches(one, of_shard) for one in sets},
        lambda: notes,
        paths,
    )


def _batches(one: ShardSet, label_maps: Mapping[str, LabelMap | None]) -> Iterator[Batch]:
    mapping: FieldMapping | None = None
    for path in one.paths:
        for examples in sound_examples(path):
            mapping = mapping or _field_mapping(examples)
            yield Batch(Detections(examples, mapping), label_maps[path])


def _field_mapping(examples: ExampleBatch) -> FieldMapping:
    """The keys of the first records of a subset.

    Raises:
        TfodError: they are of no known kind.
    """
    if not keys.KNOWN_KEYS.isdisjoint(examples.columns):
        return OD_API
    from tfod.check.profiles.choice import KeyCounts, choose_profile  # few shards have others

    found = KeyCounts()
    found.add(examples)
    chosen = choose_profile(found)
    mapping = chosen[0].field_mapping if chosen else None
    if mapping is None or mapping == KERAS_COCO or not (mapping.box or mapping.encoded):
        raise TfodError(
            f"{examples.records.shard}: records of these keys cannot be converted "
            f"({', '.join(list(examples.columns)[:8]) or 'none'}); tfod describe says more"
        )
    return mapping
