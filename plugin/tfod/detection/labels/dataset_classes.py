"""The classes of a dataset with several label maps, as one list with unique ids."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from tfod.detection import keys
from tfod.detection.labels.classes import ClassTable, LabelScope, free_ids
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import LabelMapError, excerpt

BACKGROUND = "background"
"""The only class that may have the id 0, see label_map_util.py of the OD API."""
_RELATIVES = ("ancestor_ids", "descendant_ids")
_MAX_LISTED = 5


class Classes:
    """The classes of a dataset as one list with unique ids, collected while it is read.

    As in :class:`ClassTable`, the text takes precedence over the id. A class keeps its id in
    ``base``, the label map of the output; other classes get higher ids. Without a base, the id
    comes from the first label map with the class, else from the record, else it is the next free
    id. If a label map gives the id 0 to a class other than the background, all ids increase by 1.

    Args:
        label_maps: label maps for the ids of the records by file, '' if there is no file.
        base: label map of the output, if any.

    Attributes:
        unknown_ids: ids that neither a text nor a label map explains, with the label map's file.
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
        self._label_map: LabelMap | None = None  # None: outdated or not built yet
        zeros = () if base else (label_map.find_id(0) for label_map in label_maps.values())
        self._shift = int(any(item and item.class_name != BACKGROUND for item in zeros))
        if base is not None:
            scope = self._table.add_label_map(base)
            self._ids = {scope.by_text[item.class_name]: item.id for item in reversed(base.items)}
            self._items = {item.id: item for item in reversed(base.items)}
        scopes = [self._table.add_label_map(label_map) for label_map in label_maps.values()]
        self._scopes = dict(zip(self._files, scopes, strict=True))
        self._no_map_scope = self._table.add_label_map(None)
        if base is not None:
            return
        numbers = dict.fromkeys(number for scope in scopes for number in scope.by_text.values())
        for number in sorted(numbers, key=lambda number: self._table.item(number) is None):
            self._keep(number)
        for scope in scopes if len(scopes) > 1 else ():
            for item in scope.label_map.items if scope.label_map else ():
                label = self._ids[scope.by_text[item.class_name]]
                self._items[label] = self._complete(self._items[label], item)

    @property
    def label_map(self) -> LabelMap:
        """All classes so far, ordered by id."""
        if self._label_map is None:
            items = (self._items[number].with_name() for number in sorted(self._items))
            self._label_map = LabelMap(tuple(items))
        return self._label_map

    @property
    def used(self) -> list[LabelMapItem]:
        """The classes of the records, ordered by id."""
        return [self._items[number].with_name() for number in sorted(self._used)]

    def ids(
        self, label_map: LabelMap | None, texts: Sequence[str | None], labels: Sequence[int | None]
    ) -> list[int]:
        """Return the ids of the classes of objects, negative for objects without a class."""
        scope = self._scopes.get(id(label_map), self._no_map_scope)
        ids: dict[tuple[str | None, int | None], int] = {}
        for pair, count in Counter(zip(texts, labels, strict=True)).items():
            number = scope.resolved.get(pair)
            if number is None:
                number = self._table.resolve(scope, *pair, count)
            ids[pair] = -1 if number is None else self._keep(number)
            if number is not None:
                self._used.add(ids[pair])
                self._note(scope, *pair, number)
        return [ids[pair] for pair in zip(texts, labels, strict=True)]

    def describe_unknown_ids(self) -> list[str]:
        """Return sentences about ids that neither a text nor a label map explains."""
        ids: dict[str, list[str]] = {}
        for file, label in sorted(self.unknown_ids):
            ids.setdefault(file, []).append(str(label))
        return [
            f"the class ids {', '.join(file_ids)} have no text, and "
            + (f"{file} lacks them" if file else "no label map explains them")
            for file, file_ids in ids.items()
        ]

    def notes(self) -> list[str]:
        """Return sentences about changes to records and label maps that unify the classes."""
        unused, changes = dict[str, None](), defaultdict[str, list[str]](list)
        for file, label_map in self.label_maps.items() if any(self.label_maps) else ():
            for item in label_map.items:
                label = self._ids.get(self._scopes[id(label_map)].by_text[item.class_name])
                if label is None:
                    unused[repr(item.class_name)] = None
                elif label != item.id:
                    changes[file].append(_describe_change(item.class_name, item.id, label))
        if self._changes:
            changes["records without a label map"] = [*self._changes]
        return [
            *self._notes,
            *(f"{file}: {_join(file_changes)}" for file, file_changes in changes.items()),
            *([f"omitted classes that no record has: {_join([*unused])}"] if unused else ()),
            *(
                f"class {excerpt(mismatch.text)} had the id {mismatch.label} of another class in "
                f"{count} object{'s' if count != 1 else ''}; the text was used"
                for mismatch, count in self._table.mismatches.items()
            ),
        ]

    def require_same_ids(self, label_map: LabelMap | None, location: str) -> None:
        """Raise LabelMapError if an id changed: the pixels of masks contain the old ids."""
        scope = self._scopes.get(id(label_map), self._no_map_scope)
        if any(self._ids.get(number) != label for label, number in scope.by_id.items()):
            raise LabelMapError(
                f"{location}: the pixels of class masks ({keys.IMAGE_MASKS['panoptic_category']}) "
                "are class ids, which would change; pass the shards of this file first"
            )

    def _note(self, scope: LabelScope, text: str | None, label: int | None, number: int) -> None:
        """Record an id that changed, or an id that only a guess could explain."""
        if label is None:
            return
        if scope.label_map is None and label != self._ids[number]:
            self._changes[_describe_change(text or str(label), label, self._ids[number])] = None
        is_certain = label and not (scope.label_map or self.label_maps or self._base)
        if not text and label not in scope.by_id and not is_certain:
            self.unknown_ids.add((self._files.get(id(scope.label_map), ""), label))

    def _keep(self, number: int) -> int:
        """Return the id of a provisional class."""
        if number in self._ids:
            return self._ids[number]
        item, name = self._table.item(number), self._table.name(number)
        label = item.id + self._shift if item else 0
        other = self._items.get(label)
        keeps_id = item is not None and self._base is None and (label or name == BACKGROUND)
        if not keeps_id or (other and item and item.name and other.name and other.name != name):
            label, other = next(free_ids(self._items)), None
        if other is None or (item and item.name):  # else an unnamed class would replace a named one
            self._items[label] = replace(item or LabelMapItem(0, name), id=label)
        self._label_map = None
        self._ids[number] = label
        return label

    def _complete(self, item: LabelMapItem, other: LabelMapItem) -> LabelMapItem:
        """Complete a class with values of another label map; the first wins if they differ."""
        more: dict[str, Any] = {}
        for name in [field.name for field in fields(LabelMapItem)][2:]:  # without id and name
            value, other_value = getattr(item, name), getattr(other, name)
            if other_value and name in _RELATIVES:
                more[name] = ()
                self._notes.append(f"{item.class_name}: {name} is omitted, since ids changed")
            elif other_value and not value:
                more[name] = other_value
            elif other_value and other_value != value:
                message = f"{name} differs between label maps; the first is kept"
                self._notes.append(f"{item.class_name}: {message}")
        return replace(item, **more)


def _describe_change(name: str, old: int, new: int) -> str:
    return f"the id of {excerpt(name)} changed from {old} to {new}"


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
