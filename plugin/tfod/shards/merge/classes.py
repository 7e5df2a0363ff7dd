"""The classes of a merge: one label map of several, and new ids for the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tfod.detection import keys
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.detection.labels.labels_file import read_classes
from tfod.detection.labels.search import LabelMapFinder
from tfod.errors import LabelMapError
from tfod.example.columns import ExampleBatch
from tfod.example.example import int64_feature
from tfod.example.wire import Kind
from tfod.shards.inputs import several_label_maps
from tfod.shards.record_classes import CLASS_KEYS, ClassName, RecordReader

_AS_IT_WAS = -(1 << 62)  # no label map has this id
_CATEGORY_MASK = keys.IMAGE_MASKS["panoptic_category"]
_ID_LISTS = tuple(keys.IMAGE_ATTRIBUTES.values())


class MergedClasses:
    """Joins the classes of shards by name, while the records are read, and renumbers them after.

    Each shard is read with the label map beside it, which LabelMapError says is none. All get the
    ids of the target; without it the maps of the shards become one.
    """

    def __init__(self, paths: Sequence[str], target: LabelMap | None) -> None:
        self.notes: list[str] = []
        self._target = target
        self._table = ClassTable()
        self._scopes: dict[str | None, LabelScope] = {}
        self._scope_of: dict[str, LabelScope] = {}
        self._used: dict[int, str] = {}  # where a class was met first
        self._texts: dict[tuple[int, str], str] = {}
        self._new_ids: list[int] = []
        finder = LabelMapFinder()
        for path in paths:
            source, candidates = finder.find(path)
            if candidates:
                self.notes.append(several_label_maps(path, candidates))
            if source not in self._scopes:
                label_map, liberties = read_classes(source) if source else (None, [])
                self.notes += liberties
                self._scopes[source] = self._table.add_label_map(label_map)
            self._scope_of[path] = self._scopes[source]

    def see(self, reader: RecordReader) -> None:
        """Note the classes of some records.

        Errors are a class that is only an id, which the label map does not have, and a record that
        has other keys than those of the OD API.
        """
        shard = reader.batch.records.shard
        scope = self._scope_of[shard]
        _require_known_keys(reader)
        named = reader.classes()
        times = np.bincount(named.codes, minlength=len(named.names)).tolist()
        for (text, label), first, count in zip(named.names, named.firsts, times, strict=True):
            if not text and label is not None and not _is_no_class(text, label):
                key = CLASS_KEYS[named.pairs[first]][1]
                self._require_known(reader, int(named.rows[first]), key, label, scope)
            number = self._table.resolve(scope, text, label, count)
            if number is not None:
                self._used.setdefault(number, shard)
                if text:
                    self._texts.setdefault((number, text), shard)
        for key in _ID_LISTS:
            column = reader.column(key, Kind.INT64)
            firsts = np.sort(np.unique(column.values, return_index=True)[1])
            rows = np.searchsorted(column.row_splits, firsts, side="right") - 1
            for label, row in zip(column.values[firsts].tolist(), rows.tolist(), strict=True):
                if self._require_known(reader, row, key, label, scope):
                    self._used.setdefault(scope.by_id[label], shard)

    def finish(self) -> LabelMap:
        """The label map of all records, when all of them are seen.

        Raises:
            LabelMapError: the target lacks a class, or a text would name another class in it.
        """
        found, _, places = self._table.finish()
        if self._target is None:
            merged = self._with_all_fields(found, places)
            self._new_ids = [merged.items[place].id for place in places]
        else:
            merged = self._target
            self._new_ids = [
                self._id_in_target(number, found.items[place])
                for number, place in enumerate(places)
            ]
        for (number, text), shard in self._texts.items():
            item = merged.find(text)
            if item is None or item.id != self._new_ids[number]:
                other = f"is that of id {item.id}" if item else "is absent"
                raise LabelMapError(
                    f"{shard}: the class {text!r} {other} in the merged label map, and not that of "
                    f"id {self._new_ids[number]}; give one that has all classes, with --label-map"
                )
        for pair, count in self._table.contradictions.items():
            self.notes.append(
                f"{count} times the text {pair.text!r} had the id {pair.label} of another class; "
                "the text was followed"
            )
        return merged

    def changes(self, batch: ExampleBatch) -> dict[int, dict[str, bytes | None]]:
        """By record the features of a batch whose ids are others now.

        Raises:
            RecordError: the records are others than those that were seen.
        """
        scope = self._scope_of[batch.records.shard]
        reader = RecordReader(batch)
        named = reader.classes()
        id_columns = [(key, reader.column(key, Kind.INT64)) for key in _ID_LISTS]
        reader.raise_first()
        if reader.column(_CATEGORY_MASK, Kind.BYTES).counts.any():
            self._require_same_ids(scope, batch.records.shard)
        changed: dict[int, dict[str, bytes | None]] = {}
        new = self._new_ids_of(scope, named.names, named.codes, named.labels)
        for pair, (_, key) in enumerate(CLASS_KEYS):
            here = (named.pairs == pair) & named.has_label
            _note_changes(changed, key, named.rows[here], named.labels[here], new[here])
        for key, column in id_columns:
            labels, codes = np.unique(column.values, return_inverse=True)
            names = [(None, label) for label in labels.tolist()]
            new = self._new_ids_of(scope, names, codes.ravel(), column.values)
            rows = np.repeat(np.arange(len(batch)), column.counts)
            _note_changes(changed, key, rows, column.values, new)
        return changed

    def _require_same_ids(self, scope: LabelScope, shard: str) -> None:
        for label, number in scope.by_id.items():
            if self._new_ids[number] != label:
                raise LabelMapError(
                    f"{shard}: its masks of classes ({_CATEGORY_MASK}) would have other ids, "
                    f"{label} would be {self._new_ids[number]}; give a label map that keeps them, "
                    "with --label-map"
                )

    def _new_ids_of(
        self, scope: LabelScope, names: Sequence[ClassName], codes: np.ndarray, labels: np.ndarray
    ) -> np.ndarray:
        """The new id for each label, whose name is that of its code; what is no class stays."""
        ids = []
        for text, label in names:
            number = self._table.resolve(scope, text, label)
            if number is not None and number >= len(self._new_ids):
                raise LabelMapError("a class is there that was not a moment ago; try again")
            ids.append(_AS_IT_WAS if number is None else self._new_ids[number])
        new = np.array(ids, np.int64)[codes]
        return np.where(new == _AS_IT_WAS, labels, new)

    def _require_known(
        self, reader: RecordReader, row: int, key: str, label: int, scope: LabelScope
    ) -> bool:
        """Whether a label map has an id; an error where it does not."""
        if label in scope.by_id:
            return True
        where = "its label map does not have" if scope.label_map else "no label map explains"
        reader.add_error(
            row,
            f"holds the id {label}, which {where}, and no text says what it is",
            feature=key,
            fix="put a label map that has it beside the shard, as label_map.pbtxt",
        )
        return False

    def _id_in_target(self, number: int, item: LabelMapItem) -> int:
        assert self._target is not None
        texts = [text for one, text in self._texts if one == number]
        for name in filter(None, (item.name, item.display_name, *texts)):
            found = self._target.find(name)
            if found is not None:
                return found.id
        if number not in self._used:
            return item.id  # no record has it
        raise LabelMapError(
            f"{self._used[number]}: the class {item.class_name!r} is not in the label map that was "
            "given; add it there"
        )

    def _with_all_fields(self, found: LabelMap, places: list[int]) -> LabelMap:
        """The classes with all that any label map says of them; of two that differ the first."""
        items = list(found.items)
        known: set[int] = set()
        for scope in self._scopes.values():
            for item in scope.label_map.items if scope.label_map else ():
                place = places[scope.by_text[item.class_name]]
                # Its relatives have new ids, too.
                ancestors, descendants = (
                    tuple(
                        found.items[places[scope.by_id[one]]].id
                        for one in ids
                        if one in scope.by_id
                    )
                    for ids in (item.ancestor_ids, item.descendant_ids)
                )
                new = dataclasses.replace(
                    item,
                    id=items[place].id,
                    name=items[place].name,
                    ancestor_ids=ancestors,
                    descendant_ids=descendants,
                )
                items[place] = self._filled(items[place], new) if place in known else new
                known.add(place)
        return LabelMap(tuple(items))

    def _filled(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        more = {}
        for one in dataclasses.fields(LabelMapItem):
            ours, theirs = getattr(item, one.name), getattr(other, one.name)
            if one.name in ("id", "name") or not theirs or ours == theirs:
                continue
            if not ours:
                more[one.name] = theirs
            else:
                self.notes.append(
                    f"{item.class_name}: {one.name} differs between label maps, the first is kept"
                )
        return dataclasses.replace(item, **more)


def _require_known_keys(reader: RecordReader) -> None:
    """Note the first record that has features, but none under a key of the OD API."""
    batch = reader.batch
    foreign = np.zeros(len(batch), bool)
    columns = batch.lists.values()
    for is_known in (False, True):
        for one in columns:
            if (one.key in keys.KNOWN_KEYS) is is_known:
                foreign[one.rows] = not is_known
    if foreign.any():
        reader.add_error(
            int(foreign.argmax()),
            f"holds none of {keys.ENCODED}, {keys.CLASS_LABEL}, …, so its classes are unknown",
            fix="convert it to the keys of the OD API first, with: datum convert",
        )


def _note_changes(
    changed: dict[int, dict[str, bytes | None]],
    key: str,
    rows: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
) -> None:
    """Note the new feature of each row in which values differ; ``rows`` are ascending."""
    for row in np.unique(rows[old != new]).tolist():
        first, stop = np.searchsorted(rows, (row, row + 1))
        changed.setdefault(row, {})[key] = int64_feature(new[first:stop].tolist())


def _is_no_class(text: str | None, label: int) -> bool:
    """How Datumaro and we write an object without a class (:meth:`ClassTable.resolve`)."""
    return label < 0 or (label == 0 and text is not None)
