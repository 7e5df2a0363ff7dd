"""What only shows when all records are known: names and pictures that come twice, sets, classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from tfod.label_map import LabelMap

from tfod_validator.annotations import Annotations
from tfod_validator.catalogue import repeated
from tfod_validator.collector import Collector
from tfod_validator.comparison import missing_pictures
from tfod_validator.examine import Examined, Use
from tfod_validator.finding import Place
from tfod_validator.frames import PictureRow, judge_task
from tfod_validator.profile import Roles
from tfod_validator.rules.dataset import EmptyShard, KeysOfShards, LabelMaps
from tfod_validator.rules.images import SamePicture, SharedPicture
from tfod_validator.rules.labels import ClassesOfShards, LabelMapFile, NoLabelMap
from tfod_validator.rules.names import SameName, SameSourceId
from tfod_validator.task import Task
from tfod_validator.work import ShardResult

# Features that a record without objects may leave out.
_OPTIONAL = ("image/object/", "image/class/")


def judge_together(
    shards: Sequence[ShardResult],
    label_maps: Mapping[str, LabelMapFile],
    collector: Collector,
    *,
    task: Task | None,
    annotations: Annotations | None,
    roles: Roles,
) -> None:
    """Compare the records of all shards with each other, and with the task."""
    _judge_shards(shards, collector)
    _judge_classes(shards, label_maps, collector)
    _judge_label_maps(shards, label_maps, collector)
    _judge_keys(shards, collector)
    by_subset: dict[str, list[Examined]] = {}
    for shard in shards:
        by_subset.setdefault(shard.subset, []).append(shard.examined)
    for members in by_subset.values():
        together = _Together(members)
        if roles.filename is not None:
            for first, _, place in together.repeated("filenames"):
                name = place.item or ""
                if together.filename(first) == name:
                    collector.judge(SameName(name, roles.filename, together.place(first)), place)
        if roles.source_id is not None:
            for first, _, place in together.repeated("source_ids"):
                same = SameSourceId(place.item or "", roles.source_id, together.place(first))
                collector.judge(same, place)
    _judge_pictures(by_subset, collector)
    if task is not None:
        judge_task(task, _rows(shards), class_names(shards, label_maps), collector)
    if annotations is not None:
        names = (entry.filename for shard in shards for entry in shard.examined.catalogue)
        collector.judge(missing_pictures(annotations, names), Place(annotations.source))


class _Together:
    """The catalogues of several shards as one."""

    def __init__(self, members: Sequence[Examined]) -> None:
        self._members = members
        lengths = [len(one.catalogue) for one in members]
        self._starts = np.cumsum([0, *lengths])

    def hashes(self, column: str) -> np.ndarray:
        """A column of hashes of all shards, uint64."""
        parts = [np.frombuffer(getattr(one.catalogue, column), np.uint64) for one in self._members]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)

    def repeated(self, column: str) -> Iterator[tuple[int, int, Place]]:
        """Values that come again: the first place, the later one, and that as people know it."""
        for first, later in repeated(self.hashes(column)):
            yield first, later, self.place(later)

    def filename(self, index: int) -> str:
        """The file name of a record."""
        return self.place(index).item or ""

    def place(self, index: int) -> Place:
        """Where a record is."""
        member = int(np.searchsorted(self._starts, index, side="right")) - 1
        examined, at = self._members[member], index - int(self._starts[member])
        catalogue = examined.catalogue
        item = catalogue.filename(at) or None
        return Place(examined.shard, catalogue.records[at], catalogue.offsets[at], item)


def _judge_pictures(by_subset: Mapping[str, Sequence[Examined]], collector: Collector) -> None:
    """Pictures that come twice: in one subset, or in two."""
    members = [one for group in by_subset.values() for one in group]
    together = _Together(members)
    subset_of = {one.shard: subset for subset, group in by_subset.items() for one in group}
    seen: dict[int, dict[str, int]] = {}
    for first, later, place in together.repeated("pictures"):
        subsets = seen.setdefault(first, {subset_of[together.place(first).shard]: first})
        subset = subset_of[place.shard]
        if subset in subsets:
            collector.judge(SamePicture(together.place(subsets[subset])), place)
        else:
            subsets[subset] = later
            other = subset_of[together.place(first).shard]
            collector.judge(SharedPicture(subset, other, together.place(first)), place)


def _judge_shards(shards: Sequence[ShardResult], collector: Collector) -> None:
    """Shards without a record that nothing was said about, and shards without a label map."""
    for shard in shards:
        examined = shard.examined
        place = Place(examined.shard)
        if not examined.records and not examined.findings.counts:
            collector.judge(EmptyShard(numbered=False), place)
        if shard.label_map is None and not shard.in_archive:
            collector.judge(NoLabelMap(examined.boxes, tuple(shard.rivals)), place)


def _judge_classes(
    shards: Sequence[ShardResult], label_maps: Mapping[str, LabelMapFile], collector: Collector
) -> None:
    """The classes that the shards of each label map use."""
    uses: dict[str | None, Counter[Use]] = {}
    first: dict[str | None, str] = {}
    for shard in shards:
        uses.setdefault(shard.label_map, Counter()).update(shard.examined.uses)
        first.setdefault(shard.label_map, shard.examined.shard)
    for name, counts in uses.items():
        file = label_maps.get(name or "")
        classes = ClassesOfShards(counts, file.label_map if file else None, name or "")
        collector.judge(classes, Place(first[name]))


def _judge_label_maps(
    shards: Sequence[ShardResult], label_maps: Mapping[str, LabelMapFile], collector: Collector
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


def _judge_keys(shards: Sequence[ShardResult], collector: Collector) -> None:
    """The features of the shards of each subset."""
    by_subset: dict[str, dict[str, frozenset[str]]] = {}
    for shard in shards:
        examined = shard.examined
        if examined.keys:
            keys = frozenset(key for key in examined.keys if not key.startswith(_OPTIONAL))
            by_subset.setdefault(shard.subset, {})[examined.shard] = keys
    for subset, keys_of in by_subset.items():
        collector.judge(KeysOfShards(subset, keys_of))


def _rows(shards: Sequence[ShardResult]) -> Iterator[PictureRow]:
    for shard in shards:
        examined = shard.examined
        for entry in examined.catalogue:
            place = Place(examined.shard, entry.record, entry.offset, entry.filename or None)
            yield PictureRow(place, entry.filename, entry.height, entry.width, entry.boxes)


def class_names(
    shards: Iterable[ShardResult], label_maps: Mapping[str, LabelMapFile]
) -> Counter[str]:
    """Boxes of each class: by text, or by id through the label map, or as ``#id``."""
    names: Counter[str] = Counter()
    for shard in shards:
        file = label_maps.get(shard.label_map or "")
        for (text, label), count in shard.examined.uses.items():
            item = file.label_map.find_id(label) if file and file.label_map and label else None
            bare = "" if label is None else f"#{label}"
            names[text or (item.class_name if item else bare)] += count
    return names
