"""The classes of a merge: one label map of several, and new ids for the records."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tfod.detection import keys
from tfod.detection.classes import ClassTable, LabelScope
from tfod.detection.label_map import LabelMap, LabelMapItem, read_label_map
from tfod.errors import LabelMapError
from tfod.example.example import Example, int64_feature
from tfod.shards.rearrange.record_classes import OBJECT_CLASSES, PICTURE_CLASSES, classes_of
from tfod.shards.rearrange.sound_shards import several_label_maps
from tfod.tfrecord.label_files import LabelMapFinder

_ID_LISTS = tuple(keys.IMAGE_ATTRIBUTES.values())


class MergedClasses:
    """Joins the classes of shards by name, while the records are read, and renumbers them after.

    Args:
        paths: the shards; each is read with the label map beside it.
        target: the label map whose ids all get; without it the maps of the shards become one.

    Raises:
        LabelMapError: a file beside a shard is no label map.
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
            source, rivals = finder.find(path)
            if rivals:
                self.notes.append(several_label_maps(path, rivals))
            if source not in self._scopes:
                label_map, liberties = read_label_map(source) if source else (None, [])
                self.notes += liberties
                self._scopes[source] = self._table.add_label_map(label_map)
            self._scope_of[path] = self._scopes[source]

    def see(self, example: Example) -> None:
        """Note the classes of a record.

        Raises:
            RecordError: one is only an id, and the label map does not have it; or the record has
                other keys than those of the OD API.
        """
        if len(example) and keys.KNOWN_KEYS.isdisjoint(example):
            raise example.error(
                f"holds none of {keys.ENCODED}, {keys.CLASS_LABEL}, …, so its classes are unknown",
                remedy="convert it to the keys of the OD API first, with: datum convert",
            )
        scope = self._scope_of[example.shard]
        for text_key, label_key in (OBJECT_CLASSES, PICTURE_CLASSES):
            for text, label in classes_of(example, text_key, label_key):
                if not text and label is not None and not _is_no_class(text, label):
                    self._require_known(example, label_key, label, scope)
                number = self._table.resolve(scope, text, label)
                if number is not None:
                    self._used.setdefault(number, example.shard)
                    if text:
                        self._texts.setdefault((number, text), example.shard)
        for key in _ID_LISTS:
            for label in example.ints(key):
                self._require_known(example, key, label, scope)
                self._used.setdefault(scope.by_id[label], example.shard)

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

    def changes(self, example: Example) -> dict[str, bytes | None]:
        """The features of a record whose ids are others now."""
        scope = self._scope_of[example.shard]
        changed: dict[str, bytes | None] = {}
        for text_key, label_key in (OBJECT_CLASSES, PICTURE_CLASSES):
            labels = example.ints(label_key)
            if labels:
                new = [
                    self._new_id(scope, text, label, old)
                    for (text, label), old in zip(
                        classes_of(example, text_key, label_key), labels, strict=True
                    )
                ]
                if new != labels:
                    changed[label_key] = int64_feature(new)
        for key in _ID_LISTS:
            labels = example.ints(key)
            new = [self._new_id(scope, None, label, label) for label in labels]
            if new != labels:
                changed[key] = int64_feature(new)
        return changed

    def _new_id(self, scope: LabelScope, text: str | None, label: int | None, old: int) -> int:
        number = self._table.resolve(scope, text, label)
        if number is not None and number >= len(self._new_ids):
            raise LabelMapError("a class is there that was not a moment ago; try again")
        return old if number is None else self._new_ids[number]

    def _require_known(self, example: Example, key: str, label: int, scope: LabelScope) -> None:
        if label not in scope.by_id:
            where = "its label map does not have" if scope.label_map else "no label map explains"
            raise example.error(
                f"holds the id {label}, which {where}, and no text says what it is",
                feature=key,
                remedy="put a label map that has it beside the shard, as label_map.pbtxt",
            )

    def _id_in_target(self, number: int, item: LabelMapItem) -> int:
        assert self._target is not None
        names = [item.name, item.display_name, *self._texts_of(number)]
        for name in filter(None, names):
            found = self._target.find(name)
            if found is not None:
                return found.id
        if number not in self._used:
            return item.id  # no record has it
        raise LabelMapError(
            f"{self._used[number]}: the class {item.class_name!r} is not in the label map that was "
            "given; add it there"
        )

    def _texts_of(self, number: int) -> list[str]:
        return [text for one, text in self._texts if one == number]

    def _with_all_fields(self, found: LabelMap, places: list[int]) -> LabelMap:
        """The classes with all that any label map says of them; of two that differ the first."""
        items = list(found.items)
        known = [False] * len(items)
        for scope in self._scopes.values():
            for item in scope.label_map.items if scope.label_map else ():
                place = places[scope.by_text[item.class_name]]
                new = self._renumbered(item, scope, found, places)
                if known[place]:
                    items[place] = self._filled(items[place], new)
                else:
                    items[place] = dataclasses.replace(new, id=items[place].id)
                known[place] = True
        return LabelMap(tuple(items))

    def _renumbered(
        self, item: LabelMapItem, scope: LabelScope, found: LabelMap, places: list[int]
    ) -> LabelMapItem:
        """A class whose relatives have their new ids."""
        ancestors, descendants = (
            tuple(found.items[places[scope.by_id[one]]].id for one in ids if one in scope.by_id)
            for ids in (item.ancestor_ids, item.descendant_ids)
        )
        return dataclasses.replace(item, ancestor_ids=ancestors, descendant_ids=descendants)

    def _filled(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        """A class with what another label map says of it besides."""
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


def _is_no_class(text: str | None, label: int) -> bool:
    """How Datumaro and we write an object without a class (:meth:`ClassTable.resolve`)."""
    return label < 0 or (label == 0 and text is not None)
