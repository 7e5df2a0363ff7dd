"""Fast creation of boxes and items, by setting fields directly instead of calling constructors.

Datumaro's constructors round, validate and check each object. Without them an import of
annotations is 61 times as fast as Datumaro's own, with them 23 times. They are still called if a
class has unexpected fields, which is checked once on import.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import attr

from tfod.datumaro.compat import DatasetItem, annotation

_new_object = object.__new__
_set = object.__setattr__  # bypasses Datumaro's own check on each assignment
_box_fields = {field.name: field for field in attr.fields(annotation.Bbox)}
round_points = _box_fields["points"].converter
"""Rounds an array of coordinates of any shape like Datumaro, and returns lists."""
_has_object_id = "object_id" in _box_fields
_can_skip_constructor = set(_box_fields) - {"object_id"} == {
    *("id", "attributes", "group", "points", "label", "z_order")
}
_safe_subsets: set[str] = set()
_Annotations: Any = type(DatasetItem(id="a").annotations)  # a list, or Datumaro 1.13's own class
_has_known_item_fields = {field.name for field in attr.fields(DatasetItem)} == {
    *("id", "subset", "media", "annotations", "attributes")
}


def make_boxes(
    points: Sequence[list[float]],
    labels: Sequence[int | None],
    attributes: Sequence[dict[str, Any]],
) -> list[Any]:
    """Create the boxes of an image from rows of left, top, right and bottom in pixels.

    The coordinates must have been rounded with :func:`round_points`.
    """
    if not _can_skip_constructor:
        return [
            annotation.Bbox(x1, y1, x2 - x1, y2 - y1, label=label, attributes=values)
            for (x1, y1, x2, y2), label, values in zip(points, labels, attributes, strict=True)
        ]
    boxes = []
    for row, label, values in zip(points, labels, attributes, strict=True):
        box = _new_object(annotation.Bbox)
        box.id = 0
        box.attributes = values
        box.group = 0
        box.points = row
        box.label = label
        box.z_order = 0
        if _has_object_id:
            box.object_id = -1
        boxes.append(box)
    return boxes


_can_skip_constructor = _can_skip_constructor and make_boxes(
    round_points([[1.237, 2.0, 4.0, 6.5]]), [3], [{"a": 1}]
) == [annotation.Bbox(1.237, 2.0, 4.0 - 1.237, 4.5, label=3, attributes={"a": 1})]


def make_item(
    item_id: str, subset: str, media: Any, annotations: list[Any], attributes: dict[str, Any]
) -> Any:
    """Create a dataset item; its id must come from :mod:`tfod.tfrecord.image_names`.

    Datumaro's constructor checks that neither id nor subset leads out of a folder. Here it is
    called once for each subset.
    """
    if subset not in _safe_subsets:
        item = DatasetItem(
            id=item_id, subset=subset, media=media, annotations=annotations, attributes=attributes
        )
        if _has_known_item_fields and item.subset == subset:
            _safe_subsets.add(subset)
        return item
    item = _new_object(DatasetItem)
    _set(item, "id", item_id)
    _set(item, "subset", subset)
    item.media = media
    item.annotations = _Annotations(annotations)
    item.attributes = attributes
    return item


@contextlib.contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable cyclic garbage collection, which is useless while creating millions of objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # All new objects would count as young, and would be scanned several times. Freezing
            # moves them to the oldest generation; objects that a server has frozen stay frozen.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
