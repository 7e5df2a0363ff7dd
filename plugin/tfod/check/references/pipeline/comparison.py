"""A trainer's configuration beside what a check has found in the shards."""

from __future__ import annotations

import csv
import fnmatch
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place
from tfod.check.findings.report import CheckedDataset
from tfod.check.records.objects import ObjectFigures
from tfod.check.records.result import ShardSummary
from tfod.check.references.pipeline.training_config import Input, Reader, TrainingConfig
from tfod.check.rules.labels import LabelMapFile
from tfod.check.rules.references.pipeline import (
    ModelData,
    ReaderData,
    leads_nowhere,
    placeholder,
    unlisted_images,
)
from tfod.check.rules.shards import different_label_maps
from tfod.check.sources.label_maps import load_label_maps
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.tfrecord.storage.urls import is_url, name_of

_EVALUATED = ("val", "eval", "test")
_CSV = ".csv"
_MOST_DIGITS = 20  # of an id, which has 32 bits


def check_training_config(
    config: TrainingConfig, datasets: Sequence[CheckedDataset], collector: Collector
) -> None:
    """Compare a configuration with all that was checked; findings are at its path."""
    place = Place(config.file)
    shards = [shard for dataset in datasets for shard in dataset.shards]
    _check_paths(config, shards, collector)
    maps = {name: one for dataset in datasets for name, one in dataset.label_maps.items()}
    _check_label_maps(config, maps, collector)
    goes_by_text = config.background == 0
    trained: dict[int, str] = {}
    evaluated: dict[int, str] = {}
    for reader, members in _by_reader(config, shards):
        figures = sum((one.objects for one in members if one.objects), ObjectFigures())
        data = ReaderData(reader, sum(one.records for one in members), figures)
        collector.check(data, place)
        if not reader.is_training:
            collector.add_all(unlisted_images(config, data.records, figures), place)
        own = _csv_map(reader)
        for shard in members:
            beside = maps.get(shard.label_map or "")
            label_map = own or (beside.label_map if beside and goes_by_text else None)
            (trained if reader.is_training else evaluated).update(_classes(shard, label_map))
    classes = {**evaluated, **trained}
    for file in maps.values() if goes_by_text else ():
        for item in file.label_map.items if file.label_map else ():
            classes[item.id] = item.class_name
    classes = {number: name for number, name in classes.items() if number > 0}
    unseen = [evaluated[one] for one in sorted(evaluated.keys() - trained.keys())]
    sizes: Counter[tuple[int, int]] = Counter()
    for dataset in datasets:
        sizes.update(dataset.statistics.image_sizes)
    collector.check(ModelData(config, classes, unseen if trained else (), sizes), place)


def _check_paths(
    config: TrainingConfig, shards: Sequence[ShardSummary], collector: Collector
) -> None:
    inputs = [each for reader in config.readers for each in reader.inputs]
    named = {_real(path) for one in inputs for path in one.files}
    is_replaced = any(_real(shard.name) not in named for shard in shards)
    maps = [each for reader in config.readers for each in reader.label_maps]
    for one in (*inputs, *map(Input.find, (*maps, *config.other_paths))):
        if one.is_placeholder:
            collector.add_all(placeholder(str(one.setting), one.setting.value), Place(config.file))
        elif not one.files:
            collector.add_all(leads_nowhere(one, is_replaced), Place(config.file))


def _check_label_maps(
    config: TrainingConfig, checked: Mapping[str, LabelMapFile], collector: Collector
) -> None:
    """The label maps of the readers, beside each other; most configurations name one only."""
    named = [each for reader in config.readers for each in reader.label_maps]
    paths = [path for one in named for path in Input.find(one).files if not path.endswith(_CSV)]
    files = load_label_maps(paths, None, {}) if len(set(paths)) > 1 else {}
    for name in files.keys() - checked.keys():
        collector.check(files[name], Place(name))
    maps = {name: one.label_map for name, one in files.items() if one.label_map}
    if len(maps) > 1:
        collector.add_all(different_label_maps(maps))


def _by_reader(
    config: TrainingConfig, shards: Sequence[ShardSummary]
) -> list[tuple[Reader, list[ShardSummary]]]:
    """The shards of each reader: by path, else by file name, else by the name of the subset."""
    readers = config.readers
    paths = [{_real(path) for each in one.inputs for path in each.files} for one in readers]
    names = [[name_of(str(each.value)) for each in one.patterns] for one in readers]
    members: list[list[ShardSummary]] = [[] for _ in readers]
    for shard in shards:
        name = name_of(shard.name)
        is_training = not any(word in shard.subset.lower() for word in _EVALUATED)
        for fits in (
            [_real(shard.name) in one for one in paths],
            [any(fnmatch.fnmatchcase(name, each) for each in one) for one in names],
            [one.is_training is is_training for one in readers],
        ):
            if any(fits):
                for number, does_fit in enumerate(fits):
                    if does_fit:
                        members[number].append(shard)
                break
    return list(zip(readers, members, strict=True))


def _real(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)


def _classes(shard: ShardSummary, label_map: LabelMap | None) -> Iterator[tuple[int, str]]:
    """Id and name of the classes of a shard; texts decide where they are in the label map."""
    for text, label in shard.objects.classes if shard.objects else ():
        item = label_map.find(text) if label_map and text else None
        number = item.id if item else label
        if number is not None:
            known = label_map.find_id(number) if label_map else None
            yield number, text or (known.class_name if known else f"#{number}")


def _csv_map(reader: Reader) -> LabelMap | None:
    """The label map of TF-Vision's label_map_decoder: rows of id and name."""
    items = []
    for path in (path for one in reader.label_maps for path in Input.find(one).files):
        if path.endswith(_CSV):
            with open(path, encoding="utf-8", errors="replace", newline="") as file:
                try:
                    rows = [row for row in csv.reader(file) if len(row) == 2]
                except csv.Error as error:
                    raise TfodError(f"{path}: is not a CSV of ids and names ({error})") from None
            items += [
                LabelMapItem(int(number), name)
                for number, name in rows
                if number.isdecimal() and len(number) < _MOST_DIGITS
            ]
    return LabelMap(tuple(items)) if items else None
