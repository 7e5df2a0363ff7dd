"""Conversion between Datumaro's categories and label maps."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import attr

from tfod.datumaro.compat import AnnotationType, annotation
from tfod.detection.labels.classes import free_ids
from tfod.detection.labels.label_map import Keypoint, LabelMap, LabelMapItem, load_shipped_label_map
from tfod.errors import TfodError

_log = logging.getLogger("tfod.datumaro")


@attr.s(slots=True, order=False, eq=False)
class LabelMapCategories(annotation.LabelCategories):
    """Label categories that remember the label map they were read from, for the next export.

    ``first_id`` is the first class id of the format; ids are not preserved in a format with another
    first id. ``source`` is the absolute path of the imported folder or file. It and the paths of
    the ``shards`` show which files an export to the same folder replaces.
    Equal to plain ``LabelCategories`` of the same labels.
    """

    label_map: LabelMap | None = attr.ib(default=None, kw_only=True)
    source: str = attr.ib(default="", kw_only=True)
    shards: tuple[str, ...] = attr.ib(default=(), kw_only=True)
    first_id: int = attr.ib(default=1, kw_only=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, annotation.LabelCategories):
            return NotImplemented
        fields = [field.name for field in attr.fields(annotation.LabelCategories) if field.eq]
        return all(getattr(self, name) == getattr(other, name) for name in fields)


def make_categories(
    label_map: LabelMap,
    names: Sequence[str],
    keypoint_names: Mapping[int, Sequence[str]],
    **fields: Any,
) -> dict[Any, Any]:
    """Build the categories of a dataset.

    ``label_map`` and ``names`` have one item per class. ``keypoint_names`` has the index of a class
    as key. ``fields`` are further fields of :class:`LabelMapCategories`.
    """
    labels = LabelMapCategories.from_iterable(names)
    for name, value in {"label_map": label_map, **fields}.items():
        setattr(labels, name, value)
    categories: dict[Any, Any] = {AnnotationType.label: labels}
    if keypoint_names:
        points = annotation.PointsCategories()
        for index, point_names in keypoint_names.items():
            points.add(index, list(point_names))
        categories[AnnotationType.points] = points
    return categories


@dataclass(frozen=True)
class ExportClass:
    """The values that an export writes for a class.

    Attributes:
        text, label: values of ``image/object/class/text`` and ``…/label``.
        keypoint_ids: indices of its keypoints in the record's lists.
    """

    text: str
    label: int
    keypoint_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExportClasses:
    """The classes of an export, in the order of Datumaro's categories.

    Attributes:
        label_map: content of ``label_map.pbtxt``.
        keypoint_names: names of all keypoints of a record; '' for unused indices.
        unlabelled_id: id of objects without a class: 0 as in Datumaro, -1 if 0 is a class.
    """

    classes: tuple[ExportClass, ...]
    label_map: LabelMap
    keypoint_names: tuple[str, ...] = ()
    unlabelled_id: int = 0

    def get(self, label: int) -> ExportClass:
        """Return the class of a label, or raise TfodError."""
        if not 0 <= label < len(self.classes):
            raise TfodError(f"label {label} does not exist, there are {len(self.classes)} classes")
        return self.classes[label]


def assign_ids(
    categories: Mapping[Any, Any], base: LabelMap | None, first_id: int = 1
) -> ExportClasses:
    """Assign an id to every label, and indices to its keypoints.

    Ids come from ``base``, the user's label map. Without it they come from the label map of the
    categories, if that has the same ``first_id``; else from VOC for VOC's classes; else they are
    consecutive from ``first_id``. A label that is not in the label map gets the next unused id.
    """
    labels = categories.get(AnnotationType.label) or ()
    names = [label.name for label in labels]
    is_compatible = getattr(labels, "first_id", 1) == first_id
    imported = getattr(labels, "label_map", None) if is_compatible else None
    source = base or imported or (_match_voc(names) if first_id == 1 else None) or LabelMap()
    # The name of a class without a name and a display name is its id.
    by_name = {item.class_name: item for item in reversed(source.items)}
    matches = [source.find(name) or by_name.get(name) for name in names]
    items: list[LabelMapItem] = []
    # The user's label map is kept completely, since other shards may use it too.
    used = {item.id for item in (base.items if base else matches) if item is not None}
    free = free_ids(used, first_id)
    taken: set[int] = set()
    for name, item in zip(names, matches, strict=True):
        if item is None or item.id in taken:
            item = LabelMapItem(id=next(free), name=name)
        taken.add(item.id)
        items.append(item.with_name(name))
    items, keypoint_names = _assign_keypoints(items, categories.get(AnnotationType.points))
    classes = tuple(
        ExportClass(name, item.id, tuple(point.id for point in item.keypoints))
        for name, item in zip(names, items, strict=True)
    )
    written = {item.id: item for item in items}
    unused = [item for item in (base.items if base else ()) if item.id not in written]
    items = sorted([*items, *unused], key=lambda item: item.id)
    unlabelled_id = -1 if any(item.id == 0 for item in items) else 0
    return ExportClasses(classes, LabelMap(tuple(items)), keypoint_names, unlabelled_id)


def _match_voc(names: Sequence[str]) -> LabelMap | None:
    """Return VOC's label map, with the background as id 0, if all of its classes exist."""
    if "aeroplane" not in names:  # avoids loading the label map for most datasets
        return None
    shipped = load_shipped_label_map("voc2007")
    if not {item.name for item in shipped.items} <= set(names):
        return None
    return LabelMap((LabelMapItem(0, "background"), *shipped.items))


def _assign_keypoints(
    items: Sequence[LabelMapItem], points: Any
) -> tuple[list[LabelMapItem], tuple[str, ...]]:
    """Assign consecutive indices in the record's lists to the keypoints of every class.

    A class keeps its ids from the label map if their number fits.
    """
    if not points:
        return [replace(item, keypoints=()) for item in items], ()
    new_items: list[LabelMapItem] = []
    names: dict[int, str] = {}
    for index, item in enumerate(items):
        schema = points.items.get(index)
        labels = [str(label) for label in schema.labels] if schema else []
        existing = [point.id for point in item.keypoints]
        is_free = set(existing).isdisjoint(names) and min(existing, default=0) >= 0
        start = max(names, default=-1) + 1
        fits = is_free and len(existing) == len(labels)
        ids = existing if fits else range(start, start + len(labels))
        keypoints = tuple(Keypoint(i, label) for i, label in zip(ids, labels, strict=True))
        names.update((point.id, point.label) for point in keypoints)
        new_items.append(replace(item, keypoints=keypoints))
    total = max(names, default=-1) + 1
    return new_items, tuple(names.get(number, "") for number in range(total))
