"""Which class an object has: text first, then id, over every label map of a dataset.

One table serves all shards of an import, so that splits whose label maps number the classes
differently still end up with one list of classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfod.detection.labels.label_map import LabelMap, LabelMapItem

_MAX_ID = (1 << 31) - 1  # a label map's id is an int32


@dataclass(frozen=True)
class TextIdMismatch:
    """Text and id of an object name two classes of its label map; the text was followed."""

    text: str
    label: int


class LabelScope:
    """How the texts and ids of some shards name classes: through their label map, if any."""

    def __init__(self, label_map: LabelMap | None) -> None:
        self.label_map = label_map
        self.by_text: dict[str, int] = {}
        self.by_id: dict[int, int] = {}
        self.display_only: set[str] = set()
        self.name_only: set[str] = set()
        self.to_output_frame: dict[tuple[str | None, int | None], int] = {}
        """What resolving changes nothing any more: most objects have one of a few classes."""


class ClassTable:
    """Collects the classes of a dataset while it is read.

    While reading, a class is a provisional number; :meth:`finish` puts the classes in order (by
    id) and says which number became which place.
    """

    def __init__(self) -> None:
        self.contradictions: Counter[TextIdMismatch] = Counter()
        self.unknown_texts: Counter[str] = Counter()
        self.unknown_ids: Counter[int] = Counter()
        self._items: list[LabelMapItem] = []
        self._has_id: list[bool] = []
        self._mapped = 0
        self._by_text: dict[str, int] = {}
        self._by_id: dict[int, int] = {}
        self._by_bare_id: dict[int, int] = {}
        self._uses_display: set[int] = set()
        self._uses_name: set[int] = set()

    def add_label_map(self, label_map: LabelMap | None) -> LabelScope:
        """Make a scope for shards with this label map (None: they have none).

        All maps must be added before the first object is resolved.
        """
        scope = LabelScope(label_map)
        joined = self._known_by_display(label_map.items if label_map else ())
        for item in label_map.items if label_map else ():
            number = self._by_text.get(item.class_name)
            if number is None and item.name in joined:
                number = self._by_text[item.name] = joined[item.name]
                # Records of both maps are understood by these two texts.
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
        scope.display_only.difference_update(scope.by_text)  # the name of another class wins
        for item in label_map.items if label_map else ():
            if item.display_name:
                number = scope.by_text[item.class_name]
                scope.by_text.setdefault(item.display_name, number)
                self._by_text.setdefault(item.display_name, number)
        self._mapped = len(self._items)
        return scope

    def resolve_all(
        self, scope: LabelScope, texts: Iterable[str | None], labels: Iterable[int | None]
    ) -> list[int | None]:
        """The provisional numbers of the classes of many objects, as :meth:`resolve` has them."""
        to_output_frame, resolve = scope.to_output_frame, self.resolve
        return [
            to_output_frame[pair] if pair in to_output_frame else resolve(scope, *pair)
            for pair in zip(texts, labels, strict=True)
        ]

    def resolve(
        self, scope: LabelScope, text: str | None, label: int | None, times: int = 1
    ) -> int | None:
        """The provisional number of the class of so many objects; None when they have none.

        A text that the map lacks makes a class of its own; so does an id without a text.
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
                self.contradictions[TextIdMismatch(text, label)] += times
            else:
                scope.to_output_frame[text, label] = number
            return number
        if label is None:
            return None
        number = scope.by_id.get(label)
        if number is not None:
            scope.to_output_frame[text, label] = number
            return number
        # Datumaro writes 0 and an empty text for an object without a class, we -1 where 0 is one.
        if label < 0 or (label == 0 and text is not None):
            return None
        return self._unknown_id(scope, label, times)

    def item(self, number: int) -> LabelMapItem | None:
        """What is known by now of a provisional class that has an id of its own; else None."""
        return self._items[number] if self._has_id[number] else None

    def name(self, number: int) -> str:
        """What a provisional class is called by now."""
        return self._items[number].class_name

    def finish(self) -> tuple[LabelMap, list[str], list[int]]:
        """Put the classes in order.

        Returns:
            The label map of the dataset, one item a class, in order; the name of each class, as
            the records use it; and for each provisional number its place in that order.
        """
        target = list(range(len(self._items)))
        for label, number in self._by_bare_id.items():
            owner = self._by_id.get(label)
            if owner is not None and owner != number:
                target[number] = owner  # the text of this id turned up in another record
        kept = [number for number in target if target[number] == number]
        kept = list(dict.fromkeys(kept))
        kept.sort(key=lambda number: (number >= self._mapped, self._sort_id(number), number))
        place = {number: position for position, number in enumerate(kept)}
        by_display = bool(self._uses_display) and not self._uses_name
        items = tuple(self._items[number] for number in kept)
        items = _number_the_rest(items, [self._has_id[number] for number in kept])
        names = _names(items, by_display)
        items = tuple(one.named(name) for one, name in zip(items, names, strict=True))
        return LabelMap(items), names, [place[target[number]] for number in range(len(target))]

    def _sort_id(self, number: int) -> float:
        return self._items[number].id if self._has_id[number] else float("inf")

    def _known_by_display(self, items: Sequence[LabelMapItem]) -> dict[str, int]:
        """By their names the items whose display name is all that earlier maps know of a class.

        Where several items of either side have that text, nobody knows which of them is meant.
        """
        texts, earlier = _texts(items), _texts(self._items)
        known = Counter(self._by_text.values())
        return {
            one.name: self._by_text[one.display_name]
            for one in items
            if one.name and one.display_name
            if texts[one.display_name] == earlier[one.display_name] == 1
            if known[self._by_text[one.display_name]] == 1
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
            free = label is not None and 0 <= label <= _MAX_ID and label not in self._by_id
            number = self._add(LabelMapItem(label if free and label else 0, text), free)
        if scope.label_map is not None and number >= self._mapped:
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


def _texts(items: Iterable[LabelMapItem]) -> Counter[str]:
    """How many classes have each text, as their name or display name."""
    return Counter(text for one in items for text in {one.class_name, one.display_name})


def free_ids(used: Collection[int], first: int = 1) -> Iterator[int]:
    """Ids that are not used: those behind the last one, and when there are no more, the others."""
    last = max((*used, first - 1))
    yield from range(last + 1, _MAX_ID + 1)
    yield from (one for one in range(first, last) if one not in used)


def _number_the_rest(
    items: Sequence[LabelMapItem], has_id: Sequence[bool]
) -> tuple[LabelMapItem, ...]:
    """Give every class without an id of its own the next free one."""
    free = free_ids({item.id for item, has in zip(items, has_id, strict=True) if has})
    return tuple(
        item if has else replace(item, id=next(free))
        for item, has in zip(items, has_id, strict=True)
    )


def _names(items: Sequence[LabelMapItem], by_display: bool) -> list[str]:
    """A name for each class, every one different."""
    names: list[str] = []
    taken: set[str] = set()
    counts: Counter[str] = Counter()
    for item in items:
        wanted = (item.display_name if by_display else "") or item.class_name
        name = wanted
        if name in taken:
            name = item.class_name
        numbered = f"{wanted} ({item.id})"
        while name in taken:  # names stay taken: none is tried twice
            counts[numbered] += 1
            name = numbered if counts[numbered] == 1 else f"{numbered}~{counts[numbered]}"
        taken.add(name)
        names.append(name)
    return names
