"""Boxes and items without their constructors, which is most of what makes an import quick.

Datumaro's constructors round, validate and check each object by itself, which is more than half of
an import's time: without them an import of annotations is 61 times as fast as Datumaro's own, with
them 23 times. So fields are set directly, as far as a class has exactly the fields that we know
(tried once, on import); else the constructors are called.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Sequence
from typing import Any

import attr

from tfod.datumaro.compat import DatasetItem, annotation

_new_object = object.__new__
_set = object.__setattr__  # past Datumaro's own check on each assignment
_box_fields = {field.name: field for field in attr.fields(annotation.Bbox)}
round_points = _box_fields["points"].converter
"""Datumaro's own rounding of coordinates (an array of any shape), to lists."""
_has_object_id = "object_id" in _box_fields
_can_be_quick = set(_box_fields) - {"object_id"} == {
    *("id", "attributes", "group", "points", "label", "z_order")
}
_safe_subsets: set[str] = set()
_Annotations: Any = type(DatasetItem(id="a").annotations)  # 1.13 has a list of its own
_has_known_item_fields = {field.name for field in attr.fields(DatasetItem)} == {
    *("id", "subset", "media", "annotations", "attributes")
}


def make_boxes(
    points: Sequence[list[float]],
    labels: Sequence[int | None],
    attributes: Sequence[dict[str, Any]],
) -> list[Any]:
    """Make the boxes of an image from corners in pixels: left, top, right, bottom each.

    The corners must have been through :func:`round_points`.
    """
    if not _can_be_quick:
        return [
            annotation.Bbox(x1, y1, x2 - x1, y2 - y1, label=label, attributes=own)
            for (x1, y1, x2, y2), label, own in zip(points, labels, attributes, strict=True)
        ]
    boxes = []
    for row, label, own in zip(points, labels, attributes, strict=True):
        box = _new_object(annotation.Bbox)
        box.id = 0
        box.attributes = own
        box.group = 0
        box.points = row
        box.label = label
        box.z_order = 0
        if _has_object_id:
            box.object_id = -1
        boxes.append(box)
    return boxes


_can_be_quick = _can_be_quick and make_boxes(
    round_points([[1.237, 2.0, 4.0, 6.5]]), [3], [{"a": 1}]
) == [annotation.Bbox(1.237, 2.0, 4.0 - 1.237, 4.5, label=3, attributes={"a": 1})]


def make_item(
    item_id: str, subset: str, media: Any, annotations: list[Any], attributes: dict[str, Any]
) -> Any:
    """Make a dataset item whose id is known to be a safe relative path.

    Datumaro's constructor sees to it that neither id nor subset leads out of a folder; that is
    asked once for each subset. For ids :func:`tfod.tfrecord.image_names.safe_relative_path` has
    seen to it.
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
def paused_garbage_collection() -> Iterator[None]:
    """Building millions of objects that all stay makes every cyclic collection futile."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            # Everything that was made would count as young, and be looked at several times at
            # once. This makes it old unseen; a server's own frozen objects stay frozen.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
