"""Fixes of the classes of objects by the label map: LAB. The text decides, then the id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tfod.check.profiles.profile import Profile
from tfod.check.records.statistics import MOST_KINDS
from tfod.check.rules.labels import LabelMapFile
from tfod.detection import keys
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.detection.labels.near_names import folded
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example, int64_feature, text_feature
from tfod.example.wire import Kind
from tfod.shards.repair.record import Change, EditedRecord
from tfod.tfrecord.label_files import TFDS_LABELS_FILE
from tfod.tfrecord.reader import RecordBatch

MOST_CLASSES = MOST_KINDS // 4
"""A label map of more classes is not made from records."""
BY_IDS = frozenset(("LAB005", "LAB008", "LAB010", "LAB014", "LAB020"))
"""Rules whose fixes go by the ids of a label map, or write them."""
_LARGEST_ID = (1 << 31) - 1
_CATEGORY_MASK = keys.IMAGE_MASKS["panoptic_category"]
_NO_CLASS = frozenset({"background", "none", "noneoftheabove", "nothing", "unlabeled"})


def spell_as_the_map(record: EditedRecord) -> Iterator[Change]:
    """A text that is in the map but for case and spaces, and means only one class of it."""
    found, texts, labels = _classes(record)
    new = list(texts)
    for number, text in enumerate(texts):
        if not text or found.find(text):
            continue
        meant = _names_alike(found, text)
        label = labels[number] if labels else 0
        if len(meant) == 1 and (found.find_id(label) is None or label in found.ids_of(meant[0])):
            new[number] = meant[0]
    yield from _put(record, record.field_mapping.class_text, text_feature(new), texts, new)


def name_by_id(record: EditedRecord) -> Iterator[Change]:
    """An empty text beside an id that the map knows."""
    found, texts, labels = _classes(record)
    new = list(texts)
    for number, (text, label) in enumerate(zip(texts, labels, strict=False)):
        if label > 0 and not text.strip():
            new[number] = _name(found.find_id(label)) or text
    yield from _put(record, record.field_mapping.class_text, text_feature(new), texts, new)


def follow_the_text(record: EditedRecord) -> Iterator[Change]:
    """An id other than that of the text."""
    found, texts, labels = _classes(record)
    new = list(labels)
    for number, (text, label) in enumerate(zip(texts, labels, strict=False)):
        item = found.find(text) if text else None
        if item is not None and label not in found.ids_of(text):
            new[number] = item.id
    yield from _put(record, record.field_mapping.class_label, int64_feature(new), labels, new)


def add_id(record: EditedRecord) -> Iterator[Change]:
    """Where all objects have a text and none has an id, the map knows the ids."""
    found, texts, _ = _classes(record)
    label_key = record.field_mapping.class_label
    if label_key and texts and not record.count(label_key):
        items = [found.find(text) if text else None for text in texts]
        ids = [item.id for item in items if item is not None]
        if len(ids) == len(texts):
            yield record.change(label_key, int64_feature(ids))


def add_text_or_id(record: EditedRecord) -> Iterator[Change]:
    """Where all objects have a text, or all have an id, the map knows the other."""
    yield from add_id(record)
    found, _, labels = _classes(record)
    text_key = record.field_mapping.class_text
    if text_key and labels and not record.count(text_key):
        names = [_name(found.find_id(label)) for label in labels]
        if all(names):
            yield record.change(text_key, text_feature(names))


def raised_label_maps(
    shards: Iterable[tuple[LabelMapFile | None, Iterable[RecordBatch]]], profile: Profile
) -> dict[str, LabelMap | None]:
    """By name the label maps that count from 0: with 1 added to their ids.

    None for one whose records may count from 1: it is a guess what their ids mean.

    Args:
        shards: the label map and the records of each.
        profile: of the records.
    """
    found: dict[str, _Counting] = {}
    for file, batches in shards:
        raised = _with_ids_from_one(file)
        if file is not None and raised is not None:
            counting = found.setdefault(file.name, _Counting(raised))
            for examples in map(ExampleBatch.of, batches):
                for row in set(range(len(examples))) - set(examples.refused):
                    counting.see(EditedRecord(Example(examples, row), profile, raised))
    return {name: one.raised if one.is_from_zero else None for name, one in found.items()}


def _with_ids_from_one(file: LabelMapFile | None) -> LabelMap | None:
    """The label map with 1 added to each id, where these are 0, 1, 2, … without a gap.

    None for any other, where the name of class 0 says that it is no class, and for TFDS's names.
    """
    label_map = file.label_map if file else None
    if file is None or label_map is None or file.name.endswith(TFDS_LABELS_FILE):
        return None
    ids = sorted(item.id for item in label_map.items)
    zero = label_map.find_id(0)
    if zero is None or ids != list(range(len(ids))) or folded(zero.class_name) in _NO_CLASS:
        return None
    return LabelMap(tuple(map(_with_one_added, label_map.items)))


def _with_one_added(item: LabelMapItem) -> LabelMapItem:
    ancestors, descendants = (
        tuple(one + 1 for one in ids) for ids in (item.ancestor_ids, item.descendant_ids)
    )
    return replace(item, id=item.id + 1, ancestor_ids=ancestors, descendant_ids=descendants)


@dataclass
class _Counting:
    """Whether the records of a label map count their classes from 0, as the map does.

    An id with a text tells by itself. Those without one are sure to count from 0 where 0 is among
    them, or where those with a text do; and where none is the one that only the new map has.

    Attributes:
        raised: the label map with 1 added to its ids.
    """

    raised: LabelMap
    _is_bare: bool = False
    _is_from_zero: bool = False
    _is_from_one: bool = False
    _is_doubtful: bool = False

    def see(self, record: EditedRecord) -> None:
        """Take a record as it is read."""
        self._is_doubtful |= record.count(_CATEGORY_MASK) > 0  # its pixels are ids, too
        for key, ids in _ids(record):
            self._is_doubtful |= record.kind(key) not in (None, Kind.INT64)
            for text, label in ids:
                if text:
                    known = self.raised.ids_of(text)
                    self._is_from_zero |= label + 1 in known
                    self._is_from_one |= label in known and label + 1 not in known
                else:
                    self._is_bare = True
                    self._is_from_zero |= label == 0
                    self._is_from_one |= label == len(self.raised.items)

    @property
    def is_from_zero(self) -> bool:
        """Whether nothing has to be guessed."""
        is_clear = self._is_from_zero and not self._is_from_one
        return not self._is_doubtful and (is_clear or not self._is_bare)


def count_from_one(record: EditedRecord) -> Iterator[Change]:
    """The ids of a record that was written by the label map before 1 was added to its ids."""
    assert record.label_map is not None
    for key, ids in _ids(record):
        labels = [label for _, label in ids]
        new = list(labels)
        for number, (text, label) in enumerate(ids):
            item = record.label_map.find_id(label + 1)
            if item is not None and text in ("", item.name, item.display_name):
                new[number] = label + 1
        yield from _put(record, key, int64_feature(new), labels, new)


def _ids(record: EditedRecord) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """All lists of class ids of a record: the key, and each id with its text, or ''."""
    mapping = record.field_mapping
    for text_key, key in (
        (mapping.class_text, mapping.class_label),
        (mapping.image_class_text, mapping.image_class_label),
        *((None, key) for key in keys.IMAGE_ATTRIBUTES.values()),
    ):
        if key:
            texts = (one.decode("utf-8", "replace") for one in record.values(text_key))
            yield key, [(next(texts, ""), label) for label in record.ints(key)]


def label_map_of(classes: Iterable[tuple[str | None, int | None]]) -> LabelMap | None:
    """The label map that the texts and ids of objects define.

    None where an object lacks one of the two, where an id cannot be one, where two pairs
    contradict each other, or where there are too many classes to be sure of them all.
    """
    found: dict[int, str] = {}
    for text, label in classes:
        if not (text and text.strip()) or label is None or not 0 < label <= _LARGEST_ID:
            return None
        if found.setdefault(label, text) != text:
            return None
    if not found or len(set(found.values())) != len(found) or len(found) > MOST_CLASSES:
        return None
    return LabelMap(tuple(LabelMapItem(label, found[label]) for label in sorted(found)))


def _classes(record: EditedRecord) -> tuple[LabelMap, Sequence[str], Sequence[int]]:
    assert record.label_map is not None and record.texts is not None  # as record.has_classes has it
    return record.label_map, record.texts, record.labels


def _put(
    record: EditedRecord,
    key: str | None,
    feature: bytes,
    before: Sequence[object],
    after: Sequence[object],
) -> Iterator[Change]:
    pairs = zip(before, after, strict=True)
    changed = dict.fromkeys(f"{one!r} became {other!r}" for one, other in pairs if one != other)
    if key and changed:
        yield record.change(key, feature, f"{key}: {', '.join(changed)}")


def _name(item: LabelMapItem | None) -> str:
    return (item.name or item.display_name) if item else ""


def _names_alike(label_map: LabelMap, text: str) -> list[str]:
    """Names that are the same but for case and spaces, one of each class."""
    wanted = folded(text)
    found = {}
    for item in label_map.items:
        for name in (item.display_name, item.name):
            if name and folded(name) == wanted:
                found[item.id] = name
    return list(found.values())
