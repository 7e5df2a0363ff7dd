"""What only shows when all records are known: duplicates, sets of shards, classes, the task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tfod.check.duplicates.compare import (
    Duplicate,
    Duplicates,
    find_duplicates,
    look_up,
    wanted_rows,
)
from tfod.check.duplicates.row_blocks import RowPlace
from tfod.check.findings.collector import Collector
from tfod.check.findings.finding import Place
from tfod.check.records.column_order import BoxColumns
from tfod.check.records.expectation import renamed_keys, with_own_keys
from tfod.check.records.hanging_boxes import settle_hanging_boxes
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result, ShardSummary, Use
from tfod.check.records.statistics import named_classes
from tfod.check.rules.boxes import mostly_flat
from tfod.check.rules.images import check_same_image, check_shared_image, check_some_images
from tfod.check.rules.labels import (
    LabelMapFile,
    counts_from_zero,
    nearly_equal_texts,
    no_label_map,
    unused_class,
)
from tfod.check.rules.names import duplicate_name, duplicate_source_id
from tfod.check.rules.registry import all_rules, problems_of
from tfod.check.rules.shards import different_keys, different_label_maps, empty_set, empty_shard
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.shard_sets.names import parse_shard_name

if TYPE_CHECKING:
    from tfod.check.references.cvat_task.task import Task

# Features that a record without objects may leave out.
_OPTIONAL = ("image/object/", "image/class/")
_TRAINING, _UNION = "train", "trainval"
Shards = Mapping[tuple[int, int], ShardSummary]


def find_all_duplicates(result: Result) -> None:
    """Find what the records of a result share, and keep what is known of those it lists."""
    most = result.most_duplicates or result.most
    result.duplicates = find_duplicates(result.blocks, most)
    result.facts = look_up(result.blocks, wanted_rows(result.duplicates.places()))


def check_together(
    result: Result,
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
    instructions: Instructions,
    task: Task | None,
) -> None:
    """Compare the records of all shards with each other, and with the task."""
    result.close()
    shards, field_mapping = result.all_shards(), instructions.profile.field_mapping
    settle_hanging_boxes(shards, collector)
    _check_shards(shards, collector, renamed_keys(field_mapping))
    _check_classes(shards, result.uses, label_maps, collector)
    names = dict.fromkeys(shard.label_map for shard in shards if shard.label_map)
    maps = {name: one for name in names if name and (one := label_maps[name].label_map)}
    if len(maps) > 1:
        collector.add_all(different_label_maps(maps))
    _check_keys(shards, collector)
    by_place = {(one.work, one.number): one for one in result.shard_parts()}
    _check_duplicates(result, by_place, field_mapping, collector)
    if task is not None:
        _check_task(task, result, by_place, label_maps, collector)


def _check_shards(
    shards: Sequence[ShardSummary], collector: Collector, renamed: Mapping[str, str]
) -> None:
    """What a shard as a whole shows: no record, no label map, some images, boxes and columns."""
    found = collector.findings.counts
    flat, *unreadable = (found.get(code, Counter()) for code in ("BOX007", "EXA001", "EXA002"))
    missing_image = all_rules()["IMG001"]
    sets: dict[str, list[ShardSummary]] = {}
    for shard in shards:
        sets.setdefault(shard.subset, []).append(shard)
        place = Place(shard.name)
        if not shard.records and not shard.has_defects and shard.is_whole:
            collector.add_all(empty_shard(), place)
        if shard.label_map is None and not shard.in_archive:
            collector.add_all(no_label_map(shard.boxes, shard.candidates), place)
        images_may_lack = collector.policy.severity(missing_image) is None
        if images_may_lack and not any(counts[shard.name] for counts in unreadable):
            collector.add_all(check_some_images(shard.images, shard.records), place)
        collector.add_all(mostly_flat(flat[shard.name], shard.boxes), place)
        collector.add_all(with_own_keys(problems_of(shard.columns), renamed), place)
    for members in sets.values():
        if not any(shard.columns.candidates for shard in members):
            # Each of many small shards has too few boxes to tell.
            together = sum((shard.columns for shard in members), BoxColumns())
            problems = with_own_keys(problems_of(together), renamed)
            collector.add_all(problems, Place(members[0].name))
        if all(shard.is_empty_file for shard in members) and _are_whole(members):
            collector.add_all(empty_set(len(members)), Place(members[0].name))


def _are_whole(members: Sequence[ShardSummary]) -> bool:
    """Whether they are all that their numbering promises: of the others nothing is known."""
    names = map(parse_shard_name, (one.name for one in members))
    totals = {name.total for name in names if name is not None}
    return all(total is None or total <= len(members) for total in totals)


def _check_classes(
    shards: Sequence[ShardSummary],
    uses: Mapping[str | None, Counter[Use]],
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
) -> None:
    first: dict[str | None, str] = {}
    for shard in shards:
        first.setdefault(shard.label_map, shard.name)
    for name, shard_name in first.items():
        file = label_maps.get(name or "")
        counts = uses.get(name, Counter())
        label_map = file.label_map if file else None
        place = Place(shard_name)
        collector.add_all(counts_from_zero(counts, label_map), place)
        if label_map is not None:
            collector.add_all(unused_class(counts, label_map, name or ""), place)
        collector.add_all(nearly_equal_texts(counts, label_map or LabelMap()), place)


def _check_keys(shards: Sequence[ShardSummary], collector: Collector) -> None:
    by_subset: dict[str, dict[str, frozenset[str]]] = {}
    for shard in shards:
        if shard.keys:
            keys = frozenset(key for key in shard.keys if not key.startswith(_OPTIONAL))
            by_subset.setdefault(shard.subset, {})[shard.name] = keys
    for keys_of in by_subset.values():
        collector.add_all(different_keys(keys_of))


def _check_duplicates(
    result: Result, shards: Shards, field_mapping: FieldMapping, collector: Collector
) -> None:
    """Report what several records share: the first ones are listed, all are counted."""
    duplicates, facts = result.duplicates, result.facts
    leaked = _leaked_subsets(duplicates, shards)
    filename, source_id = field_mapping.filename, field_mapping.source_id

    def place_of(at: RowPlace) -> Place:
        known, name = facts[at], shards[at.work, at.shard].name
        return Place(name, known.record, known.offset, known.filename or None)

    for kind, pairs in sorted(duplicates.listed.items(), key=lambda item: item[0].name):
        if kind is Duplicate.FILENAME and filename is None:
            continue
        if kind is Duplicate.SOURCE_ID and source_id is None:
            continue
        uncounted = Counter(
            {key[1:]: count for key, count in duplicates.counts.items() if key[0] is kind}
        )
        for later, first, key in pairs:
            place, own = place_of(first), facts[later]
            subsets = shards[first[:2]].subset, shards[later[:2]].subset
            if kind is Duplicate.FILENAME:
                found = duplicate_name(own.filename, filename or "", place)
            elif kind is Duplicate.SOURCE_ID:
                found = duplicate_source_id(own.source_id, source_id or "", place)
            elif kind is Duplicate.IMAGE:
                found = check_same_image(place, key)
            else:
                found = check_shared_image(subsets, place, leaked, key)
            collector.add_all(found, place_of(later))
            uncounted[later.work, later.shard] -= 1
        for at, count in sorted(uncounted.items()):
            collector.count(all_rules()[kind.value], shards[at].name, count)


def _leaked_subsets(duplicates: Duplicates, shards: Shards) -> dict[str, int]:
    """Subsets for evaluation all of whose images are in other subsets, and how many those are."""
    total: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    for shard in shards.values():
        total[shard.subset] += shard.images
    for (kind, *at), count in duplicates.counts.items():
        subset = shards[at[0], at[1]].subset
        if kind is Duplicate.ELSEWHERE:
            elsewhere[subset] += count
        elif kind is Duplicate.IMAGE:
            total[subset] -= count
    whole = {subset for subset, count in elsewhere.items() if count == total[subset]}
    # VOC's trainval is train and val once more: where it has more than train, val is not in train.
    for union in [one for one in whole if _UNION in one]:
        train, val = (union.replace(_UNION, part) for part in (_TRAINING, "val"))
        if whole >= {train, val} and total[union] > total[train]:
            whole.remove(val)
    return {one: elsewhere[one] for one in sorted(whole) if _TRAINING not in one.lower()}


def _check_task(
    task: Task,
    result: Result,
    shards: Shards,
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
) -> None:
    from tfod.check.references.cvat_task.frames import (  # most checks are of no task
        ImageRow,
        check_task,
    )

    def rows() -> Iterator[ImageRow]:
        for block in result.blocks:  # they are in the order of the data
            shard = shards[block.work, block.shard].name
            for _, row in block.facts():
                place = Place(shard, row.record, row.offset, row.filename or None)
                yield ImageRow(place, row.filename, row.height, row.width, row.boxes)

    classes = class_names(result.uses, label_maps)
    if task.labels is not None:
        classes = _as_labelled(classes, label_maps, task.labels)
    check_task(task, rows(), classes, collector)


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
        names += named_classes(counts, file.label_map if file else None)
    return names
