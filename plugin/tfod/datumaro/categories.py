"""Datumaro's categories from a label map, and a label map from Datumaro's categories."""

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
    """Label categories that remember the label map they were read from.

    That is how class ids with gaps, display names and keypoint ids survive to the next export.
    ``first_id`` is the id that its format counts classes from; ids do not survive to a format that
    counts from another. ``source``, the absolute path of the folder or file that was asked for, and
    those of its ``shards`` are how saving in place knows what it replaces.
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

    ``label_map`` and ``names`` have one item a class, ``keypoint_names`` is by a class's place;
    ``fields`` are the others of :class:`LabelMapCategories`.
    """
    labels = LabelMapCategories.from_iterable(names)
    for name, value in {"label_map": label_map, **fields}.items():
        setattr(labels, name, value)
    categories: dict[Any, Any] = {AnnotationType.label: labels}
    if keypoint_names:
        points = annotation.PointsCategories()
        for place, point_names in keypoint_names.items():
            points.add(place, list(point_names))
        categories[AnnotationType.points] = points
    return categories


@dataclass(frozen=True)
class ExportClass:
    """What an export writes for one class.

    Attributes:
        text, label: for ``image/object/class/text`` and ``…/label``.
        keypoint_ids: where this class's keypoints lie in the record's lists.
    """

    text: str
    label: int
    keypoint_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExportClasses:
    """The classes of an export, in the order of Datumaro's categories.

    Attributes:
        classes: one for each label.
        label_map: what ``label_map.pbtxt`` will hold.
        keypoint_names: names of all the keypoints of a record, '' where a number is not used.
        unlabelled_id: for an object without a class: 0 as Datumaro writes, -1 where 0 is a class.
    """

    classes: tuple[ExportClass, ...]
    label_map: LabelMap
    keypoint_names: tuple[str, ...] = ()
    unlabelled_id: int = 0

    def of(self, label: int) -> ExportClass:
        """What is written for a label. Raises TfodError: there is no such class."""
        if not 0 <= label < len(self.classes):
            raise TfodError(f"a label is {label}, but there are {len(self.classes)} classes")
        return self.classes[label]


def export_classes(
    categories: Mapping[Any, Any], wanted: LabelMap | None, first_id: int = 1
) -> ExportClasses:
    """Give every label its id and every keypoint its place.

    Ids come from ``wanted`` (the user's label map), else from the label map that the categories
    were read from (if its format counts from ``first_id`` too), else they are VOC's for VOC's
    classes, else ``first_id`` and those that follow; a label that the map lacks gets the next free
    id.
    """
    labels = categories.get(AnnotationType.label) or ()
    names = [label.name for label in labels]
    is_alike = getattr(labels, "first_id", 1) == first_id
    own = getattr(labels, "label_map", None) if is_alike else None
    source = wanted or own or (_vocs_own(names) if first_id == 1 else None) or LabelMap()
    found = [source.find(name) or _by_bare_id(source, name) for name in names]
    items: list[LabelMapItem] = []
    # A user's map is kept whole: it may serve other shards too.
    used = {item.id for item in (wanted.items if wanted else found) if item is not None}
    free = free_ids(used, first_id)
    taken: set[int] = set()
    for name, item in zip(names, found, strict=True):
        if item is None or item.id in taken:
            item = LabelMapItem(id=next(free), name=name)
        taken.add(item.id)
        items.append(item.with_name(name))
    items, keypoint_names = _place_keypoints(items, categories.get(AnnotationType.points))
    classes = tuple(
        ExportClass(name, item.id, tuple(point.id for point in item.keypoints))
        for name, item in zip(names, items, strict=True)
    )
    written = {item.id: item for item in items}
    rest = [item for item in (wanted.items if wanted else ()) if item.id not in written]
    order = sorted([*items, *rest], key=lambda item: item.id)
    unlabelled_id = -1 if any(item.id == 0 for item in order) else 0
    return ExportClasses(classes, LabelMap(tuple(order)), keypoint_names, unlabelled_id)


def _vocs_own(names: Sequence[str]) -> LabelMap | None:
    """VOC's ids where all of its classes are there, and its background, which Datumaro counts too.

    So it reads a dataset without labelmap.txt, and would give aeroplane the id 2.
    """
    if "aeroplane" not in names:  # which most do not have, and no file is read
        return None
    shipped = load_shipped_label_map("voc2007")
    if not {item.name for item in shipped.items} <= set(names):
        return None
    return LabelMap((LabelMapItem(0, "background"), *shipped.items))


def _by_bare_id(source: LabelMap, name: str) -> LabelMapItem | None:
    """A class that has neither name nor display name is named by its id."""
    for item in source.items:
        if item.class_name == name:
            return item
    return None


def _place_keypoints(
    items: Sequence[LabelMapItem], points: Any
) -> tuple[list[LabelMapItem], tuple[str, ...]]:
    """Give the keypoints of every class their places behind one another in the record's lists.

    A class that brings ids with it, for the same number of points, keeps them.
    """
    if not points:
        return [replace(item, keypoints=()) for item in items], ()
    placed: list[LabelMapItem] = []
    names: dict[int, str] = {}
    for position, item in enumerate(items):
        schema = points.items.get(position)
        labels = [str(label) for label in schema.labels] if schema else []
        own = [point.id for point in item.keypoints]
        keeps = len(own) == len(labels) and not set(own) & set(names) and min(own, default=0) >= 0
        start = max(names, default=-1) + 1
        ids = own if keeps else range(start, start + len(labels))
        keypoints = tuple(Keypoint(i, label) for i, label in zip(ids, labels, strict=True))
        names.update((point.id, point.label) for point in keypoints)
        placed.append(replace(item, keypoints=keypoints))
    total = max(names, default=-1) + 1
    return placed, tuple(names.get(number, "") for number in range(total))
