"""The classes of a dataset, whatever label maps its parts have: one list with unique ids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tfod.detection import keys
from tfod.detection.labels.classes import ClassTable, LabelScope, free_ids
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import LabelMapError

BACKGROUND = "background"
"""The only class that may have the id 0: label_map_util.py of the OD API."""
_RELATIVES = ("ancestor_ids", "descendant_ids")
_MAX_LISTED = 5


class Classes:
    """The classes of a dataset as one list with unique ids, while it is read.

    Text takes precedence over the id, as in :class:`ClassTable`. A class keeps the id of ``base``,
    the label map of the output; other classes get ids above its highest. Without a base, a class
    has the id of the first label map with it, else that of its record, else the next free one. If a
    label map gives the id 0 to another class than the background, all ids are one more.

    Args:
        label_maps: by file, those that explain the ids of the records; '' for one without a file.
        base: the label map that all classes should have an id in.

    Attributes:
        unknown_ids: ids without a text that no label map explains, each behind the file that lacks
            it, or ''.
    """

    def __init__(self, label_maps: Mapping[str, LabelMap], base: LabelMap | None = None) -> None:
        self.label_maps = label_maps
        self.unknown_ids: set[tuple[str, int]] = set()
        self._notes: list[str] = []
        self._changes: dict[str, None] = {}
        self._files = {id(label_map): file for file, label_map in label_maps.items()}
        self._base = base
        self._table = ClassTable()
        self._items: dict[int, LabelMapItem] = {}
        self._ids: dict[int, int] = {}
        self._used: set[int] = set()
        self._label_map: LabelMap | None = None  # until there is another class
        zeros = () if base else (one.find_id(0) for one in label_maps.values())
        self._shift = int(any(one and one.class_name != BACKGROUND for one in zeros))
        if base is not None:
            scope = self._table.add_label_map(base)
            self._ids = {scope.by_text[item.class_name]: item.id for item in reversed(base.items)}
            self._items = {item.id: item for item in reversed(base.items)}
        scopes = [self._table.add_label_map(one) for one in label_maps.values()]
        self._scopes = dict(zip(self._files, scopes, strict=True))
        self._without_map = self._table.add_label_map(None)
        if base is not None:
            return
        numbers = {number: None for one in scopes for number in one.by_text.values()}
        for number in sorted(numbers, key=lambda one: self._table.item(one) is None):
            self._keep(number)
        for scope in scopes if len(scopes) > 1 else ():
            for item in scope.label_map.items if scope.label_map else ():
                label = self._ids[scope.by_text[item.class_name]]
                self._items[label] = self._filled(self._items[label], item)

    @property
    def label_map(self) -> LabelMap:
        """All classes so far, in the order of their ids."""
        if self._label_map is None:
            items = (self._items[number].named() for number in sorted(self._items))
            self._label_map = LabelMap(tuple(items))
        return self._label_map

    @property
    def used(self) -> list[LabelMapItem]:
        """The classes that records have, in the order of their ids."""
        return [self._items[number].named() for number in sorted(self._used)]

    def ids(
        self, label_map: LabelMap | None, texts: Sequence[str | None], labels: Sequence[int | None]
    ) -> list[int]:
        """The ids of the classes of objects that a label map explains; below 0 for none."""
        scope = self._scopes.get(id(label_map), self._without_map)
        found: dict[tuple[str | None, int | None], int] = {}
        for pair, count in Counter(zip(texts, labels, strict=True)).items():
            number = scope.to_output_frame.get(pair)
            if number is None:
                number = self._table.resolve(scope, *pair, count)
            found[pair] = -1 if number is None else self._keep(number)
            if number is not None:
                self._used.add(found[pair])
                self._note(scope, *pair, number)
        return [found[pair] for pair in zip(texts, labels, strict=True)]

    def unexplained(self) -> list[str]:
        """Sentences about the ids that no text and no label map explains."""
        ids: dict[str, list[str]] = {}
        for file, label in sorted(self.unknown_ids):
            ids.setdefault(file, []).append(str(label))
        return [
            f"the class ids {', '.join(some)} have no text, and "
            + (f"{file} lacks them" if file else "no label map explains them")
            for file, some in ids.items()
        ]

    def notes(self) -> list[str]:
        """What was changed in records and label maps to make one list, as sentences."""
        unused, changes = dict[str, None](), defaultdict[str, list[str]](list)
        for file, label_map in self.label_maps.items() if any(self.label_maps) else ():
            for item in label_map.items:
                label = self._ids.get(self._scopes[id(label_map)].by_text[item.class_name])
                if label is None:
                    unused[repr(item.class_name)] = None
                elif label != item.id:
                    changes[file].append(_change(item.class_name, item.id, label))
        if self._changes:
            changes["records without a label map"] = [*self._changes]
        return [
            *self._notes,
            *(f"{file}: {_listed(some)}" for file, some in changes.items()),
            *[f"classes that no record has, left out: {_listed([*unused])}"] * bool(unused),
            *(
                f"{count} object{'s' * (count != 1)} of the class {one.text!r:.81} had the id "
                f"{one.label} of another; the text was followed"
                for one, count in self._table.contradictions.items()
            ),
        ]

    def require_same_ids(self, label_map: LabelMap | None, location: str) -> None:
        """Raise LabelMapError if an id of a label map, which pixels of masks have, is another."""
        scope = self._scopes.get(id(label_map), self._without_map)
        if any(self._ids.get(number) != label for label, number in scope.by_id.items()):
            raise LabelMapError(
                f"{location}: the pixels of its masks of classes "
                f"({keys.IMAGE_MASKS['panoptic_category']}) are ids, which would be others; name "
                "its shards first"
            )

    def _note(self, scope: LabelScope, text: str | None, label: int | None, number: int) -> None:
        """Note an id that is another now, or that only a guess would explain."""
        if label is None:
            return
        if scope.label_map is None and label != self._ids[number]:
            self._changes[_change(text or str(label), label, self._ids[number])] = None
        is_certain = label and not (scope.label_map or self.label_maps or self._base)
        if not text and label not in scope.by_id and not is_certain:
            self.unknown_ids.add((self._files.get(id(scope.label_map), ""), label))

    def _keep(self, number: int) -> int:
        """The id of a provisional class."""
        if number in self._ids:
            return self._ids[number]
        item, name = self._table.item(number), self._table.name(number)
        label = item.id + self._shift if item else 0
        other = self._items.get(label)
        is_own = item is not None and self._base is None and (label or name == BACKGROUND)
        if not is_own or (other and item and item.name and other.name and other.name != name):
            label, other = next(free_ids(self._items)), None
        if other is None or (item and item.name):  # else it is an id, of a class that has a name
            self._items[label] = replace(item or LabelMapItem(0, name), id=label)
        self._label_map = None
        self._ids[number] = label
        return label

    def _filled(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        """A class with what another label map says of it; of two that differ the first."""
        more: dict[str, Any] = {}
        for name in [field.name for field in fields(LabelMapItem)][2:]:  # without id and name
            ours, theirs = getattr(item, name), getattr(other, name)
            if theirs and name in _RELATIVES:
                more[name] = ()
                self._notes.append(f"{item.class_name}: {name} is left out, its ids are others now")
            elif theirs and not ours:
                more[name] = theirs
            elif theirs and theirs != ours:
                what = f"{name} differs between label maps, the first is kept"
                self._notes.append(f"{item.class_name}: {what}")
        return replace(item, **more)


def _change(name: str, old: int, new: int) -> str:
    return f"the id of {name!r} is {new} and was {old}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED:,} more" * (len(names) > _MAX_LISTED)
    return ", ".join(names[:_MAX_LISTED]) + more
