"""The label maps of shards that are copied: as they are, or joined into one, and the ids by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np

from tfod.check.findings.finding import first_of, plural
from tfod.detection import keys
from tfod.detection.columns import lenient_text
from tfod.detection.labels.classes import ClassTable, LabelScope
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.detection.labels.labels_file import read_classes
from tfod.errors import LabelMapError
from tfod.example.columns import Column, ExampleBatch, bytes_of, texts_of
from tfod.example.example import int64_feature
from tfod.example.wire import Kind

ClassName: TypeAlias = "tuple[str | None, int]"
"""Text and id of a class; None where the record has no text."""

_IDS = {
    keys.CLASS_LABEL: keys.CLASS_TEXT,
    keys.IMAGE_CLASS_LABEL: keys.IMAGE_CLASS_TEXT,
    **dict.fromkeys(keys.IMAGE_ATTRIBUTES.values()),
}
"""Where records have ids of classes, and where the texts beside them are, if anywhere."""
_MASK_OF_CLASSES = keys.IMAGE_MASKS["panoptic_category"]
_MOST_NAMED = 5


class JoinedClasses:
    """One label map of several, by the names of the classes, and the ids that records get by it.

    The first label map keeps its ids. A class of a later one keeps its own where no other has it,
    and gets the next free one else. As everywhere text decides over id, and texts stay.

    Args:
        label_maps: the file of each shard's label map, None where it has none.

    Attributes:
        label_map: the one that was made.
        notes: what is odd about the label maps, and which classes have other ids now.

    Raises:
        LabelMapError: a file is no label map.
    """

    def __init__(self, label_maps: Mapping[str, str | None]) -> None:
        self.notes: list[str] = []
        self._files = label_maps
        self._table = ClassTable()
        self._scopes: dict[str | None, LabelScope] = {}
        for file in dict.fromkeys(label_maps.values()):
            label_map, liberties = read_classes(file) if file else (None, [])
            self.notes += liberties
            self._scopes[file] = self._table.add_label_map(label_map)
        found, _, places = self._table.finish()
        self._ids = [found.items[place].id for place in places]
        self.label_map = self._with_all_fields(found)
        for file, scope in self._scopes.items():
            changed = [
                f"the id of {item.class_name!r} is {new} and was {item.id}"
                for item in (scope.label_map.items if scope.label_map else ())
                if (new := self._ids[scope.by_text[item.class_name]]) != item.id
            ]
            if changed:
                self.notes.append(f"{file}: {first_of(changed, _MOST_NAMED)}")

    def changes(self, batch: ExampleBatch) -> dict[int, dict[str, bytes]]:
        """By record the features of a batch whose ids are others now.

        Raises:
            RecordError: a record is no Example, or has an id that nothing explains.
            LabelMapError: a text would name another class.
        """
        for row in sorted(batch.refused):
            if error := batch.refusal(row):
                raise error
        if batch.lists and keys.KNOWN_KEYS.isdisjoint(batch.columns):
            what = (
                f"holds none of {keys.ENCODED}, {keys.CLASS_LABEL}, …, so its classes are unknown"
            )
            raise batch.error(0, what, fix="convert it to the OD API's keys first: datum convert")
        scope = self._scopes[self._files[batch.records.shard]]
        self._require_kept_masks(batch, scope)
        changed: dict[int, dict[str, bytes]] = {}
        for key, text_key in _IDS.items():
            column = _column(batch, key, Kind.INT64)
            if not len(column.values):
                continue
            new = self._new_ids(batch, column, text_key, scope)
            rows = np.repeat(np.arange(len(batch)), column.counts)
            for row in dict.fromkeys(rows[np.array(new) != column.values].tolist()):
                start, stop = column.row_splits[row : row + 2].tolist()
                changed.setdefault(row, {})[key] = int64_feature(new[start:stop])
        return changed

    def contradictions(self) -> list[str]:
        """Sentences about texts that had the id of another class, in what was looked at."""
        return [
            f"{plural(count, 'object')} of the class {one.text!r} had the id {one.label} of "
            "another; the text was followed"
            for one, count in self._table.contradictions.items()
        ]

    def _new_ids(
        self, batch: ExampleBatch, ids: Column, text_key: str | None, scope: LabelScope
    ) -> list[int]:
        """The ids in the place of those of a column."""
        texts = _texts_beside(batch, ids, text_key)
        names: list[ClassName] = list(zip(texts, ids.values.tolist(), strict=True))
        found: dict[ClassName, int] = {}
        for name, count in Counter(names).items():
            new = self._new_id(scope, name, count, batch.records.shard)
            if new is None:
                row = int(np.searchsorted(ids.row_splits, names.index(name), "right")) - 1
                raise _unexplained(batch, row, ids.key, name, scope)
            found[name] = new
        return [found[name] for name in names]

    def _new_id(self, scope: LabelScope, name: ClassName, count: int, shard: str) -> int | None:
        """The id of a class that records name so many times; None where nothing explains it."""
        text, label = name
        number = self._table.resolve(scope, text, label, count)
        if number is None:
            return label  # it is none
        if number >= len(self._ids):
            return None
        new, item = self._ids[number], self.label_map.find(text or "")
        if text and (item is None or item.id != new):
            raise LabelMapError(
                f"{shard}: the class {text!r} is that of id {item.id if item else 'none'} in the "
                f"joined label map, and not that of id {new}; give the classes names of their own"
            )
        return new

    def _require_kept_masks(self, batch: ExampleBatch, scope: LabelScope) -> None:
        """See that pixels of masks, which are ids, name the classes that they did."""
        if not len(batch.column(_MASK_OF_CLASSES, Kind.BYTES).values):
            return
        for label, number in scope.by_id.items():
            if self._ids[number] != label:
                raise LabelMapError(
                    f"{batch.records.shard}: its masks of classes ({_MASK_OF_CLASSES}) would have "
                    f"other ids, {label} would be {self._ids[number]}; name its shards first"
                )

    def _with_all_fields(self, found: LabelMap) -> LabelMap:
        """The classes with all that any label map says of them; of two that differ the first."""
        items = {item.id: item for item in found.items}
        known: set[int] = set()
        for scope in self._scopes.values():
            for item in scope.label_map.items if scope.label_map else ():
                new = self._ids[scope.by_text[item.class_name]]
                # Its relatives have new ids, too.
                ancestors, descendants = (
                    tuple(self._ids[scope.by_id[one]] for one in ids if one in scope.by_id)
                    for ids in (item.ancestor_ids, item.descendant_ids)
                )
                moved = replace(
                    item,
                    id=new,
                    name=items[new].name,
                    ancestor_ids=ancestors,
                    descendant_ids=descendants,
                )
                items[new] = self._filled(items[new], moved) if new in known else moved
                known.add(new)
        return LabelMap(tuple(items.values()))

    def _filled(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        more = {}
        for one in fields(LabelMapItem):
            ours, theirs = getattr(item, one.name), getattr(other, one.name)
            if theirs and not ours:
                more[one.name] = theirs
            elif theirs and theirs != ours:
                what = f"{one.name} differs between label maps, the first is kept"
                self.notes.append(f"{item.class_name}: {what}")
        return replace(item, **more)


def _unexplained(
    batch: ExampleBatch, row: int, key: str, name: ClassName, scope: LabelScope
) -> Exception:
    text, label = name
    if text:
        what = f"holds the class {text!r}, which no label map has"
    else:
        where = "its label map does not have" if scope.label_map else "no label map explains"
        what = f"holds the id {label}, which {where}, and no text says what it is"
    fix = "put a label map that has it beside the shard, as label_map.pbtxt"
    return batch.error(row, what, feature=key, fix=fix)


def _column(batch: ExampleBatch, key: str, kind: Kind) -> Column:
    """The values of a key.

    Raises:
        RecordError: a record holds another kind of list.
    """
    for one in batch.columns_of(key):
        if one.kind is not kind and len(one.values):
            held = one.kind.value if one.kind else "nothing"
            row = int(one.rows[one.lengths > 0][0])
            fix = "write the shard again with the right type"
            raise batch.error(row, f"is {held}, expected {kind.value}", feature=key, fix=fix)
    return batch.column(key, kind)


def _texts_beside(batch: ExampleBatch, ids: Column, key: str | None) -> list[str | None]:
    """The text beside each id; None where its record has no texts.

    Raises:
        RecordError: a record has another number of texts than of ids.
    """
    if key is None:
        return [None] * len(ids.values)
    column = _column(batch, key, Kind.BYTES)
    differ = (column.counts > 0) & (ids.counts > 0) & (column.counts != ids.counts)
    for row in np.flatnonzero(differ)[:1].tolist():
        raise batch.error(
            row,
            f"holds {ids.counts[row]} values, but {key} holds {column.counts[row]}",
            feature=ids.key,
            fix="see what else is wrong with: tfod check",
        )
    spans = column.values[np.repeat(ids.counts > 0, column.counts)]
    texts = texts_of(batch.buffer, spans)
    if texts is None:
        texts = list(map(lenient_text, bytes_of(batch.buffer, spans)))
    left = iter(texts)
    has_text = np.repeat(column.counts > 0, ids.counts).tolist()
    return [next(left) if one else None for one in has_text]
