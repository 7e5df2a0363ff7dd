"""What only shows when all records are known: names and images that come twice, sets, classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tfod.check.annotations import Annotations
from tfod.check.batch import OwnKeys
from tfod.check.box_columns import BoxColumns
from tfod.check.collector import Collector
from tfod.check.comparison import missing_images
from tfod.check.examined import Use
from tfod.check.finding import Place
from tfod.check.frames import ImageRow, judge_task
from tfod.check.hanging_boxes import settle_hanging_boxes
from tfod.check.repeats import Repeats, find_repeats, judge_repeats, look_up, wanted_rows
from tfod.check.row_blocks import RowBlock, RowFacts, RowPlace
from tfod.check.rules.boxes import FlatBoxes
from tfod.check.rules.dataset import EmptySet, EmptyShard, KeysOfShards, LabelMaps
from tfod.check.rules.labels import ClassesOfShards, LabelMapFile, NoLabelMap
from tfod.check.rules.registry import judge
from tfod.check.tally import ShardSummary, Tally
from tfod.check.task import Task
from tfod.detection.field_mapping import FieldMapping
from tfod.detection.label_map import LabelMap

# Features that a record without objects may leave out.
_OPTIONAL = ("image/object/", "image/class/")


@dataclass
class Examination:
    """All that was read, and what comes twice in it.

    Attributes:
        tally: what all work has come to.
        repeats: names and images that come again.
        facts: of the records that the repeats list.
        blocks: the rows of all records, where a task asks for them.
    """

    tally: Tally
    repeats: Repeats
    facts: dict[RowPlace, RowFacts]
    blocks: list[RowBlock] = field(default_factory=list)


def examination_of(tally: Tally, blocks: list[RowBlock], most: int) -> Examination:
    """What these rows come to; at most so many findings of a kind are listed."""
    repeats = find_repeats(blocks, most)
    return Examination(tally, repeats, look_up(blocks, wanted_rows(repeats.places())), blocks)


def judge_together(
    examination: Examination,
    shards: Sequence[ShardSummary],
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
    *,
    task: Task | None,
    annotations: Annotations | None,
    field_mapping: FieldMapping,
) -> None:
    """Compare the records of all shards with each other, and with the task.

    Args:
        examination: what was read.
        shards: all shards, in order.
        label_maps: those that shards are judged by, by name.
        collector: keeps the findings.
        task: the CVAT task that the shards are meant for.
        annotations: what they were made from.
        field_mapping: which features hold what.
    """
    tally = examination.tally
    tally.figures.close()
    uses = tally.figures.uses
    settle_hanging_boxes(shards, collector)
    _judge_shards(shards, collector, OwnKeys(field_mapping))
    _judge_classes(shards, uses, label_maps, collector)
    _judge_label_maps(shards, label_maps, collector)
    _judge_keys(shards, collector)
    by_place = {(one.work, one.number): one for one in tally.parts()}
    judge_repeats(examination.repeats, examination.facts, by_place, field_mapping, collector)
    if task is not None:
        classes = class_names(uses, label_maps)
        if task.labels is not None:
            classes = _as_labelled(classes, label_maps, task.labels)
        judge_task(task, _rows(examination.blocks, by_place), classes, collector)
    if annotations is not None:
        missing = missing_images(annotations, tally.figures.seen)
        collector.judge(missing, Place(annotations.source))


def _judge_shards(shards: Sequence[ShardSummary], collector: Collector, own_keys: OwnKeys) -> None:
    """What a shard as a whole shows: no record, no label map, flat boxes, permuted columns."""
    flat = collector.findings.counts.get("BOX007", Counter())
    sets: dict[str, list[ShardSummary]] = {}
    for shard in shards:
        sets.setdefault(shard.subset, []).append(shard)
        place = Place(shard.name)
        if not shard.records and not shard.has_defects and shard.is_whole:
            collector.judge(EmptyShard(numbered=False), place)
        if shard.label_map is None and not shard.in_archive:
            collector.judge(NoLabelMap(shard.boxes, tuple(shard.rivals)), place)
        collector.judge(FlatBoxes(flat[shard.name], shard.boxes), place)
        collector.add_all(own_keys.in_own_words(judge(shard.columns)), place)
    for members in sets.values():
        if not any(shard.columns.candidates for shard in members):
            # Each of many small shards has too few boxes to tell.
            together = sum((shard.columns for shard in members), BoxColumns())
            said = own_keys.in_own_words(judge(together))
            collector.add_all(said, Place(members[0].name))
        if all(shard.is_empty_file for shard in members):
            collector.judge(EmptySet(len(members)), Place(members[0].name))


def _judge_classes(
    shards: Sequence[ShardSummary],
    uses: Mapping[str | None, Counter[Use]],
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
) -> None:
    """The classes that the shards of each label map use."""
    first: dict[str | None, str] = {}
    for shard in shards:
        first.setdefault(shard.label_map, shard.name)
    for name, shard_name in first.items():
        file = label_maps.get(name or "")
        counts = uses.get(name, Counter())
        classes = ClassesOfShards(counts, file.label_map if file else None, name or "")
        collector.judge(classes, Place(shard_name))


def _judge_label_maps(
    shards: Sequence[ShardSummary], label_maps: Mapping[str, LabelMapFile], collector: Collector
) -> None:
    """The label maps that are in use beside each other."""
    names = dict.fromkeys(shard.label_map for shard in shards if shard.label_map)
    maps: dict[str, LabelMap] = {}
    for name in names:
        label_map = label_maps[name].label_map if name else None
        if name and label_map is not None:
            maps[name] = label_map
    if len(maps) > 1:
        collector.judge(LabelMaps(maps))


def _judge_keys(shards: Sequence[ShardSummary], collector: Collector) -> None:
    """The features of the shards of each subset."""
    by_subset: dict[str, dict[str, frozenset[str]]] = {}
    for shard in shards:
        if shard.keys:
            keys = frozenset(key for key in shard.keys if not key.startswith(_OPTIONAL))
            by_subset.setdefault(shard.subset, {})[shard.name] = keys
    for subset, keys_of in by_subset.items():
        collector.judge(KeysOfShards(subset, keys_of))


def _rows(
    blocks: Iterable[RowBlock], shards: Mapping[tuple[int, int], ShardSummary]
) -> Iterator[ImageRow]:
    """The records of the blocks, which are in the order of the data."""
    for block in blocks:
        shard = shards[block.work, block.shard].name
        for _, row in block.facts():
            place = Place(shard, row.record, row.offset, row.filename or None)
            yield ImageRow(place, row.filename, row.height, row.width, row.boxes)


def _as_labelled(
    classes: Counter[str], label_maps: Mapping[str, LabelMapFile], labels: frozenset[str]
) -> Counter[str]:
    """The classes by the names that the task has for them: Open Images' are the display names."""
    found: Counter[str] = Counter()
    for name, count in classes.items():
        items = (file.label_map.find(name) for file in label_maps.values() if file.label_map)
        shown = {item.display_name for item in items if item is not None} & labels
        found[name if name in labels or len(shown) != 1 else shown.pop()] += count
    return found


def class_names(
    uses: Mapping[str | None, Counter[Use]], label_maps: Mapping[str, LabelMapFile]
) -> Counter[str]:
    """Boxes of each class: by text, or by id through the label map, or as ``#id``."""
    names: Counter[str] = Counter()
    for map_name, counts in uses.items():
        file = label_maps.get(map_name or "")
        for (text, label), count in counts.items():
            item = file.label_map.find_id(label) if file and file.label_map and label else None
            bare = "" if label is None else f"#{label}"
            names[text or (item.class_name if item else bare)] += count
    return names
