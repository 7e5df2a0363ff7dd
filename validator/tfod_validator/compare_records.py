"""What only shows when all records are known: names and pictures that come twice, sets, classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from tfod.label_map import LabelMap
from tfod.roles import Roles

from tfod_validator.annotations import Annotations
from tfod_validator.catalogue import repeated
from tfod_validator.collector import Collector
from tfod_validator.comparison import missing_pictures
from tfod_validator.examined import Examined, Use
from tfod_validator.finding import Place
from tfod_validator.frames import PictureRow, judge_task
from tfod_validator.rules.dataset import EmptyShard, KeysOfShards, LabelMaps
from tfod_validator.rules.images import SamePicture, SharedPicture
from tfod_validator.rules.labels import ClassesOfShards, LabelMapFile, NoLabelMap
from tfod_validator.rules.names import SameName, SameSourceId
from tfod_validator.task import Task
from tfod_validator.work import ShardResult

# Features that a record without objects may leave out.
_OPTIONAL = ("image/object/", "image/class/")
_Repeated = type[SameName] | type[SameSourceId]


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
        _judge_names(_Together(members), roles, collector)
    _judge_pictures(by_subset, collector)
    if task is not None:
        classes = class_names(shards, label_maps)
        if task.labels is not None:
            classes = _as_labelled(classes, label_maps, task.labels)
        judge_task(task, _rows(shards), classes, collector)
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

    def count(self, subject: type[Any], places: np.ndarray, collector: Collector) -> None:
        """Count what is said of these records and not listed, shard by shard."""
        members = np.searchsorted(self._starts, places, side="right") - 1
        for member, number in enumerate(np.bincount(members, minlength=len(self._members))):
            collector.count(subject, self._members[member].shard, int(number))

    def filename(self, index: int) -> str:
        """The file name of a record."""
        return self.place(index).item or ""

    def source_id(self, index: int) -> str:
        """The source id of a record."""
        examined, at = self._find(index)
        return examined.catalogue.source_id(at)

    def _find(self, index: int) -> tuple[Examined, int]:
        member = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._members[member], index - int(self._starts[member])

    def place(self, index: int) -> Place:
        """Where a record is."""
        examined, at = self._find(index)
        catalogue = examined.catalogue
        item = catalogue.filename(at) or None
        return Place(examined.shard, catalogue.records[at], catalogue.offsets[at], item)


def _judge_names(together: _Together, roles: Roles, collector: Collector) -> None:
    """Names that come twice in a subset. The first ones are listed, all are counted."""
    most = collector.findings.most
    kinds: tuple[tuple[str | None, str, Callable[[int], str], _Repeated], ...] = (
        (roles.filename, "filenames", together.filename, SameName),
        (roles.source_id, "source_ids", together.source_id, SameSourceId),
    )
    for key, names, name_at, subject in kinds:
        if key is None:
            continue
        laters, firsts = repeated(together.hashes(names))
        for later, first in zip(laters[:most].tolist(), firsts[:most].tolist(), strict=True):
            same = subject(name_at(later), key, together.place(first))
            collector.judge(same, together.place(later))
        together.count(subject, laters[most:], collector)


def _judge_pictures(by_subset: Mapping[str, Sequence[Examined]], collector: Collector) -> None:
    """Pictures that come twice in one subset, and pictures that are in two."""
    most = collector.findings.most
    together = _Together([one for group in by_subset.values() for one in group])
    hashes = together.hashes("pictures")
    subsets = np.repeat(
        np.arange(len(by_subset)),
        [sum(len(one.catalogue) for one in group) for group in by_subset.values()],
    )
    # The same in one subset: the subset is made a part of the value.
    mixed = np.where(hashes == 0, 0, hashes ^ (subsets.astype(np.uint64) << np.uint64(48)))
    laters, firsts = repeated(mixed.astype(np.uint64))
    for later, first in zip(laters[:most].tolist(), firsts[:most].tolist(), strict=True):
        collector.judge(SamePicture(together.place(first)), together.place(later))
    together.count(SamePicture, laters[most:], collector)
    laters, firsts = repeated(hashes)
    # Of each further subset its first picture: the others are told above.
    _, unique = np.unique(np.stack((firsts, subsets[laters])), axis=1, return_index=True)
    chosen = np.sort(unique[subsets[laters[unique]] != subsets[firsts[unique]]])
    laters, firsts = laters[chosen], firsts[chosen]
    names = list(by_subset)
    for later, first in zip(laters[:most].tolist(), firsts[:most].tolist(), strict=True):
        shared = SharedPicture(names[subsets[later]], names[subsets[first]], together.place(first))
        collector.judge(shared, together.place(later))
    together.count(SharedPicture, laters[most:], collector)


def _judge_shards(shards: Sequence[ShardResult], collector: Collector) -> None:
    """Shards without a record that nothing was said about, and shards without a label map."""
    for shard in shards:
        examined = shard.examined
        place = Place(examined.shard)
        if not examined.records and not examined.findings.counts and shard.is_whole:
            collector.judge(EmptyShard(numbered=False), place)
        if shard.label_map is None and not shard.in_archive:
            is_url = "://" in examined.shard
            collector.judge(NoLabelMap(examined.boxes, tuple(shard.rivals), is_url), place)


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
