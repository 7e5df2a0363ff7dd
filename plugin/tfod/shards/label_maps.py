"""The label maps of shards that are copied, joined into one, and the ids in the records by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np

from tfod.check.finding import first_of, plural
from tfod.detection import keys
from tfod.detection.columns import lenient_text
from tfod.detection.detections import Detections
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
_RELATIVES = ("ancestor_ids", "descendant_ids")
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
        items = {item.id: LabelMapItem(item.id, item.name) for item in found.items}
        for file, scope in self._scopes.items():
            changed = []
            for item in scope.label_map.items if scope.label_map else ():
                new = self._ids[scope.by_text[item.class_name]]
                items[new] = self._filled(items[new], item)
                if new != item.id:
                    changed.append(f"the id of {item.class_name!r:.81} is {new} and was {item.id}")
            if changed:
                self.notes.append(f"{file}: {first_of(changed, _MOST_NAMED)}")
        self.label_map = LabelMap(tuple(items.values()))

    def changes(self, batch: ExampleBatch) -> dict[int, dict[str, bytes]]:
        """By record the features of a batch whose ids are others now.

        Raises:
            RecordError: a record is no Example, or has an id that nothing explains.
            LabelMapError: a text would name another class.
        """
        detections = Detections(batch)
        wrong = {one.row for one in detections.problems if one.key in (*_IDS, *_IDS.values())}
        for row in sorted({*batch.refused, *wrong}):
            if error := detections.error(row):
                raise error
        if batch.lists and keys.KNOWN_KEYS.isdisjoint(batch.columns):
            what = f"holds none of {keys.ENCODED}, {keys.CLASS_LABEL}, …"
            fix = "convert it to the OD API's keys first: datum convert"
            raise batch.error(0, f"{what}, so its classes are unknown", fix=fix)
        scope = self._scopes[self._files[batch.records.shard]]
        changed: dict[int, dict[str, bytes]] = {}
        for key, text_key in _IDS.items():
            ids = batch.column(key, Kind.INT64)
            new = self._new_ids(batch, ids, _texts_beside(batch, ids, text_key), scope)
            rows = np.repeat(np.arange(len(batch)), ids.counts)
            for row in dict.fromkeys(rows[new != ids.values].tolist()):
                start, stop = ids.row_splits[row : row + 2].tolist()
                changed.setdefault(row, {})[key] = int64_feature(new[start:stop].tolist())
        is_moved = any(self._ids[number] != label for label, number in scope.by_id.items())
        if is_moved and len(batch.column(_MASK_OF_CLASSES, Kind.BYTES).values):
            raise LabelMapError(
                f"{batch.records.shard}: the pixels of its masks of classes ({_MASK_OF_CLASSES}) "
                "are ids, which would be others; name its shards first"
            )
        return changed

    def contradictions(self) -> list[str]:
        """Sentences about texts that had the id of another class, in what was looked at."""
        return [
            f"{plural(count, 'object')} of the class {one.text!r:.81} had the id {one.label} of "
            "another; the text was followed"
            for one, count in self._table.contradictions.items()
        ]

    def _new_ids(
        self, batch: ExampleBatch, ids: Column, texts: list[str | None], scope: LabelScope
    ) -> np.ndarray:
        """The ids in the place of those of a column, int64 of its length."""
        names: list[ClassName] = list(zip(texts, ids.values.tolist(), strict=True))
        found: dict[ClassName, int] = {}
        for (text, label), count in Counter(names).items():
            number = self._table.resolve(scope, text, label, count)
            if number is None:  # no class
                found[text, label] = label
                continue
            if number >= len(self._ids):  # nothing explains it
                row = int(np.searchsorted(ids.row_splits, names.index((text, label)), "right")) - 1
                what, by = f"the id {label}", "and no text says what it is"
                if text:
                    what, by = f"the class {text!r:.81}", ""
                cause = f"holds {what}, which no label map has {by}".strip()
                fix = "put a label map that has it beside the shard, as label_map.pbtxt"
                raise batch.error(row, cause, feature=ids.key, fix=fix)
            new = found[text, label] = self._ids[number]
            item = self.label_map.find(text or "")
            if text and (item is None or item.id != new):
                raise LabelMapError(
                    f"{batch.records.shard}: the class {text!r:.81} is that of id "
                    f"{item.id if item else 'none'} in the joined label map, and not that of id "
                    f"{new}; give the classes names of their own"
                )
        return np.array([found[name] for name in names], np.int64)

    def _filled(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        """A class with what another label map says of it; of two that differ the first."""
        more = {}
        for name in (one.name for one in fields(LabelMapItem) if one.name not in ("id", "name")):
            ours, theirs = getattr(item, name), getattr(other, name)
            if theirs and name in _RELATIVES:
                self.notes.append(f"{item.class_name}: {name} is left out, its ids are others now")
            elif theirs and not ours:
                more[name] = theirs
            elif theirs and theirs != ours:
                what = f"{name} differs between label maps, the first is kept"
                self.notes.append(f"{item.class_name}: {what}")
        return replace(item, **more)


def _texts_beside(batch: ExampleBatch, ids: Column, key: str | None) -> list[str | None]:
    """The text beside each id; None where its record has no texts."""
    if key is None:
        return [None] * len(ids.values)
    column = batch.column(key, Kind.BYTES)
    spans = column.values[np.repeat(ids.counts > 0, column.counts)]
    texts = texts_of(batch.buffer, spans)
    if texts is None:
        texts = list(map(lenient_text, bytes_of(batch.buffer, spans)))
    left = iter(texts)
    has_text = np.repeat(column.counts > 0, ids.counts).tolist()
    return [next(left) if one else None for one in has_text]
