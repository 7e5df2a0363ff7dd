"""The class of an object: by text first, then by id, for all label maps of a dataset.

One table serves all shards of an import, even if their label maps number the classes differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfod.detection.labels.label_map import LabelMap, LabelMapItem

_MAX_ID = (1 << 31) - 1  # ids of label maps are int32


@dataclass(frozen=True)
class TextIdMismatch:
    """A text and an id of an object that belong to different classes; the text wins."""

    text: str
    label: int


class LabelScope:
    """The meaning of texts and ids in some shards, by their label map if they have one."""

    def __init__(self, label_map: LabelMap | None) -> None:
        self.label_map = label_map
        self.by_text: dict[str, int] = {}
        self.by_id: dict[int, int] = {}
        self.display_only: set[str] = set()
        self.name_only: set[str] = set()
        self.resolved: dict[tuple[str | None, int | None], int] = {}
        """Cache of pairs that need no bookkeeping: most objects have one of a few classes."""


class ClassTable:
    """The classes of a dataset, collected while it is read.

    While reading, classes are provisional numbers, which :meth:`finish` maps to indices by id.
    """

    def __init__(self) -> None:
        self.mismatches: Counter[TextIdMismatch] = Counter()
        self.unknown_texts: Counter[str] = Counter()
        self.unknown_ids: Counter[int] = Counter()
        self._items: list[LabelMapItem] = []
        self._has_id: list[bool] = []
        self._mapped_count = 0
        self._by_text: dict[str, int] = {}
        self._by_id: dict[int, int] = {}
        self._by_bare_id: dict[int, int] = {}
        self._uses_display: set[int] = set()
        self._uses_name: set[int] = set()

    def add_label_map(self, label_map: LabelMap | None) -> LabelScope:
        """Create a scope for shards with this label map, or none, before any object is resolved."""
        scope = LabelScope(label_map)
        display_matches = self._match_display_names(label_map.items if label_map else ())
        for item in label_map.items if label_map else ():
            number = self._by_text.get(item.class_name)
            if number is None and item.name in display_matches:
                number = self._by_text[item.name] = display_matches[item.name]
                # Records of both label maps can now have either text.
                self._items[number] = replace(
                    self._items[number], name=item.name, display_name=item.display_name
                )
            if number is None:
                number = self._add(item, item.id not in self._by_id)
            scope.by_id.setdefault(item.id, number)
            scope.by_text.setdefault(item.class_name, number)
            if item.name and item.display_name and item.name != item.display_name:
                scope.name_only.add(item.name)
                scope.display_only.add(item.display_name)
        scope.display_only.difference_update(scope.by_text)  # names take precedence
        for item in label_map.items if label_map else ():
            if item.display_name:
                number = scope.by_text[item.class_name]
                scope.by_text.setdefault(item.display_name, number)
                self._by_text.setdefault(item.display_name, number)
        self._mapped_count = len(self._items)
        return scope

    def resolve_all(
        self, scope: LabelScope, texts: Iterable[str | None], labels: Iterable[int | None]
    ) -> list[int | None]:
        """Return the provisional classes of many objects, see :meth:`resolve`."""
        resolved, resolve = scope.resolved, self.resolve
        return [
            resolved[pair] if pair in resolved else resolve(scope, *pair)
            for pair in zip(texts, labels, strict=True)
        ]

    def resolve(
        self, scope: LabelScope, text: str | None, label: int | None, times: int = 1
    ) -> int | None:
        """Return the provisional class of ``times`` equal objects, or None if they have no class.

        A text that the label map lacks creates a new class; so does an id without a text.
        """
        if text:
            number = scope.by_text.get(text)
            if number is None:
                return self._unknown_text(scope, text, label, times)
            if text in scope.display_only:
                self._uses_display.add(number)
            elif text in scope.name_only:
                self._uses_name.add(number)
            if label is not None and scope.by_id.get(label, number) != number:
                self.mismatches[TextIdMismatch(text, label)] += times
            else:
                scope.resolved[text, label] = number
            return number
        if label is None:
            return None
        number = scope.by_id.get(label)
        if number is not None:
            scope.resolved[text, label] = number
            return number
        # Without a class, Datumaro writes 0 and an empty text, and tfod -1 if 0 is a class.
        if label < 0 or (label == 0 and text is not None):
            return None
        return self._unknown_id(scope, label, times)

    def item(self, number: int) -> LabelMapItem | None:
        """Return the current item of a provisional class that has an id, else None."""
        return self._items[number] if self._has_id[number] else None

    def name(self, number: int) -> str:
        """Return the current name of a provisional class."""
        return self._items[number].class_name

    def finish(self) -> tuple[LabelMap, list[str], list[int]]:
        """Put the classes in order.

        Returns:
            The label map of the dataset in order; the names of the classes as used in the records;
            and the index in that order for each provisional number.
        """
        targets = list(range(len(self._items)))
        for label, number in self._by_bare_id.items():
            owner = self._by_id.get(label)
            if owner is not None and owner != number:
                targets[number] = owner  # another record has the text of this id
        kept = list({number for number in targets if targets[number] == number})
        kept.sort(key=lambda number: (number >= self._mapped_count, self._sort_id(number), number))
        indices = {number: index for index, number in enumerate(kept)}
        by_display = bool(self._uses_display) and not self._uses_name
        items = tuple(self._items[number] for number in kept)
        items = _assign_ids(items, [self._has_id[number] for number in kept])
        names = _make_unique_names(items, by_display)
        items = tuple(item.with_name(name) for item, name in zip(items, names, strict=True))
        return LabelMap(items), names, [indices[targets[number]] for number in range(len(targets))]

    def _sort_id(self, number: int) -> float:
        return self._items[number].id if self._has_id[number] else float("inf")

    def _match_display_names(self, items: Sequence[LabelMapItem]) -> dict[str, int]:
        """Find classes of earlier maps by display name; return them by the names of the items.

        A text that several items on either side have is ambiguous and is ignored.
        """
        texts, earlier = _count_texts(items), _count_texts(self._items)
        names_of_class = Counter(self._by_text.values())
        return {
            item.name: self._by_text[item.display_name]
            for item in items
            if item.name and item.display_name
            if texts[item.display_name] == earlier[item.display_name] == 1
            if names_of_class[self._by_text[item.display_name]] == 1
        }

    def _add(self, item: LabelMapItem, has_id: bool) -> int:
        number = len(self._items)
        self._items.append(item)
        self._has_id.append(has_id)
        if has_id:
            self._by_id[item.id] = number
        self._by_text.setdefault(item.class_name, number)
        return number

    def _unknown_text(self, scope: LabelScope, text: str, label: int | None, times: int) -> int:
        number = self._by_text.get(text)
        if number is None:
            is_free = label is not None and 0 <= label <= _MAX_ID and label not in self._by_id
            number = self._add(LabelMapItem(label if is_free and label else 0, text), is_free)
        if scope.label_map is not None and number >= self._mapped_count:
            self.unknown_texts[text] += times
        else:
            scope.by_text[text] = number
        return number

    def _unknown_id(self, scope: LabelScope, label: int, times: int) -> int:
        if scope.label_map is not None:
            self.unknown_ids[label] += times
        number = self._by_bare_id.get(label)
        if number is None:
            number = len(self._items)
            fits = label <= _MAX_ID
            self._items.append(LabelMapItem(label if fits else 0, "" if fits else str(label)))
            self._has_id.append(fits)
            self._by_bare_id[label] = number
        return number


def _count_texts(items: Iterable[LabelMapItem]) -> Counter[str]:
    """Count the classes with each text, as their name or display name."""
    return Counter(text for item in items for text in {item.class_name, item.display_name})


def free_ids(used: Collection[int], first: int = 1) -> Iterator[int]:
    """Yield unused ids: first those after the last used id, then the gaps."""
    last = max((*used, first - 1))
    yield from range(last + 1, _MAX_ID + 1)
    yield from (number for number in range(first, last) if number not in used)


def _assign_ids(items: Sequence[LabelMapItem], has_id: Sequence[bool]) -> tuple[LabelMapItem, ...]:
    free = free_ids({item.id for item, has in zip(items, has_id, strict=True) if has})
    return tuple(
        item if has else replace(item, id=next(free))
        for item, has in zip(items, has_id, strict=True)
    )


def _make_unique_names(items: Sequence[LabelMapItem], by_display: bool) -> list[str]:
    names: list[str] = []
    taken: set[str] = set()
    counts: Counter[str] = Counter()
    for item in items:
        preferred = (item.display_name if by_display else "") or item.class_name
        name = preferred
        if name in taken:
            name = item.class_name
        numbered = f"{preferred} ({item.id})"
        while name in taken:  # the counter never tries a name twice
            counts[numbered] += 1
            name = numbered if counts[numbered] == 1 else f"{numbered}~{counts[numbered]}"
        taken.add(name)
        names.append(name)
    return names
