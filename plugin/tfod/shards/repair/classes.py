"""Repairs of the classes of objects by the label map: LAB. The text decides, then the id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfod.check.rules.labels import folded
from tfod.detection.label_map import LabelMap, LabelMapItem
from tfod.example.example import int64_feature, text_feature
from tfod.shards.repair.changes import Change
from tfod.shards.repair.draft import Draft
from tfod.shards.repair.images import put
from tfod.shards.repair.menders import mends


@mends("LAB011")
def spell_as_the_map(draft: Draft) -> Iterator[Change]:
    """A text that is in the map but for case and spaces, and means only one class of it."""
    found, texts, labels = _classes(draft)
    if found is None:
        return
    new = list(texts)
    for number, text in enumerate(texts):
        if not text or found.find(text):
            continue
        meant = _names_alike(found, text)
        label = labels[number] if labels else 0
        if len(meant) == 1 and (found.find_id(label) is None or label in found.ids_of(meant[0])):
            new[number] = meant[0]
    yield from _put_texts(draft, "LAB011", texts, new)


@mends("LAB010")
def name_by_id(draft: Draft) -> Iterator[Change]:
    """An empty text beside an id that the map knows."""
    found, texts, labels = _classes(draft)
    if found is None or not labels:
        return
    new = list(texts)
    for number, (text, label) in enumerate(zip(texts, labels, strict=False)):
        item = found.find_id(label) if label > 0 and not text.strip() else None
        new[number] = (_name(item) or text) if item else text
    yield from _put_texts(draft, "LAB010", texts, new)


@mends("LAB008")
def follow_the_text(draft: Draft) -> Iterator[Change]:
    """An id other than that of the text."""
    found, texts, labels = _classes(draft)
    if found is None or not texts or not labels:
        return
    new = list(labels)
    for number, (text, label) in enumerate(zip(texts, labels, strict=True)):
        item = found.find(text) if text else None
        if item is not None and label not in found.ids_of(text):
            new[number] = item.id
    key = draft.field_mapping.class_label
    if key and new != labels:
        yield put(draft, "LAB008", key, int64_feature(new), _told(key, labels, new))


@mends("LAB014")
def write_the_other_half(draft: Draft) -> Iterator[Change]:
    """Where all objects have a text, or all have an id, the map knows the other."""
    found, texts, labels = _classes(draft)
    field_mapping = draft.field_mapping
    if found is None or not (field_mapping.class_text and field_mapping.class_label):
        return
    if texts and not labels and not draft.count(field_mapping.class_label):
        items = [found.find(text) if text else None for text in texts]
        ids = [item.id for item in items if item is not None]
        if len(ids) == len(texts):
            yield put(draft, "LAB014", field_mapping.class_label, int64_feature(ids))
    elif labels and not draft.count(field_mapping.class_text):
        names = [_name(found.find_id(label)) for label in labels]
        if all(names):
            yield put(draft, "LAB014", field_mapping.class_text, text_feature(names))


def _classes(draft: Draft) -> tuple[LabelMap | None, Sequence[str], Sequence[int]]:
    """The label map, and the texts and ids of the objects; no map where nothing can be said."""
    if draft.objects is None or draft.texts is None:
        return None, [], []
    return draft.label_map, draft.texts, draft.labels


def _put_texts(
    draft: Draft, code: str, texts: Sequence[str], new: Sequence[str]
) -> Iterator[Change]:
    key = draft.field_mapping.class_text
    if key and list(new) != list(texts):
        yield put(draft, code, key, text_feature(new), _told(key, texts, new))


def _told(key: str, before: Sequence[object], after: Sequence[object]) -> str:
    pairs = zip(before, after, strict=True)
    changed = dict.fromkeys(f"{one!r} became {other!r}" for one, other in pairs if one != other)
    return f"{key}: {', '.join(changed)}"


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
