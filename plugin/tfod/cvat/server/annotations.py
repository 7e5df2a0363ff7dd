"""Making annotations fit what they go into, so that CVAT takes all of them or says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfod.cvat.attributes import AttributeSpec, fit_value, storable
from tfod.cvat.server.instance import Instance
from tfod.datumaro.compat import annotation, mask_to_polygons
from tfod.datumaro.images import BoxedMask
from tfod.detection.boxes import enclosing_pixels
from tfod.detection.images.masks import fills_its_box
from tfod.detection.losses import Losses
from tfod.errors import TfodError
from tfod.formats.cvat_detections import GROUP

# CVAT takes these for its own, and would turn or hide the shape.
_TRACK = "track_id"
_OF_CVAT = ("rotation", "keyframe", "outside", "source", _TRACK)
# What CVAT has a field for, and takes out of the attributes whatever the label has.
_FIELDS = ("occluded", "score")
# Of CVAT's tables.
_LONGEST_NAME = 64
_MOST_OUTLINES = 100
_ATTRIBUTES = "attributes that the labels lack or do not allow"
_CAPTIONS = "captions of images, which CVAT does not have"
_EMPTY_MASKS = "masks without a pixel, which became their boxes"
_FIRST_GROUP = 1_000_000  # beyond those of a record's keypoints


class AnnotationConverter:
    """Fits one image after the other; counts what did not."""

    def __init__(self, instance: Instance, labels: Any, to_polygons: bool) -> None:
        self._instance = instance
        self._to_polygons = to_polygons
        self._names = [one.name for one in labels]
        self.losses = Losses(_ATTRIBUTES, _CAPTIONS, _EMPTY_MASKS)
        self._groups = 0

    def fit(self, item: Any) -> list[Any]:
        """The annotations of an item, ready for CVAT.

        Raises:
            TfodError: an object has no class, or a mask is not of the image's size.
        """
        labelled = [one for one in item.annotations if one.type.name != "caption"]
        self.losses[_CAPTIONS][""] += len(item.annotations) - len(
            labelled
        )  # CVAT has no place for them
        return [fit for one in labelled for fit in self._fit(one, item)]

    def _fit(self, one: Any, item: Any) -> list[Any]:
        if one.label is None:
            raise TfodError(
                f"image {item.id!r} has an object without a class (no class text, and an id "
                "that no label map explains); add label_map.pbtxt to the zip"
            )
        specs = self._instance.attributes.get(self._names[one.label]) or {}
        attributes = dict(one.attributes)
        if GROUP not in specs and type(attributes.get(GROUP)) is int:  # as our exports say it
            one.group = attributes.pop(GROUP)
        one.attributes = self._attributes(attributes, specs)
        return self._shapes_of_mask(one, item) if isinstance(one, BoxedMask) else [one]

    def _shapes_of_mask(self, mask: BoxedMask, item: Any) -> list[Any]:
        """A mask as CVAT wants it: with the extent of its pixels as its box, or as polygons.

        What is too thin for a polygon, or would be hundreds, stays a mask; several polygons are a
        group. What has no pixel, or fills its box, is a box.
        """
        _require_size(mask, item)  # before it is unpacked: a small file may be a giant image
        pixels = np.asarray(mask.image)
        if not pixels.any():
            self.losses[_EMPTY_MASKS][""] += 1
            return [self._box_of(mask)]
        if fills_its_box(pixels, mask.corners):
            return [self._box_of(mask)]
        if self._to_polygons:
            outlines = mask_to_polygons(pixels)
            if 0 < len(outlines) <= _MOST_OUTLINES:
                group = mask.group
                if len(outlines) > 1 and not group:
                    self._groups += 1
                    group = _FIRST_GROUP + self._groups
                return [
                    annotation.Polygon(
                        outline, label=mask.label, attributes=dict(mask.attributes), group=group
                    )
                    for outline in outlines
                ]
        return [mask.wrap(corners=enclosing_pixels(pixels))]  # the pixels stay in the shard

    @staticmethod
    def _box_of(mask: BoxedMask) -> Any:
        box = annotation.Bbox(*mask.get_bbox(), label=mask.label, attributes=mask.attributes)
        return box.wrap(group=mask.group)

    def _attributes(
        self, attributes: Mapping[str, Any], specs: Mapping[str, AttributeSpec]
    ) -> dict[str, Any]:
        """Attributes that the label has, with values that it allows."""
        fitting = {}
        for name, value in attributes.items():
            spec = specs.get(name)
            if name in _FIELDS:
                fit = value if _is_field_value(name, value) else None
            elif name in _OF_CVAT:
                fit = None
            elif spec is not None:
                fit = fit_value(value, spec)
            elif self._instance.takes_new_attributes and len(name) <= _LONGEST_NAME:
                fit = storable(value)
            else:
                fit = None
            if fit is not None:
                fitting[name] = fit
            elif name != _TRACK:  # a number of the task that was exported, of no use here
                self.losses[_ATTRIBUTES][name] += 1
        return fitting


def _require_size(mask: BoxedMask, item: Any) -> None:
    there = mask.size_on_disk
    size = item.media.size if item.media is not None else there
    if there is None or size is None:
        raise TfodError(f"a mask of image {item.id!r} is not a PNG image; export the shard again")
    if there != tuple(size):
        raise TfodError(
            f"a mask of image {item.id!r} is {there[1]}x{there[0]}, the image "
            f"{size[1]}x{size[0]}; export the shard again"
        )


def _is_field_value(name: str, value: Any) -> bool:
    """Whether CVAT's tables take it: truth, or a score from 0 to 1."""
    if not isinstance(value, (bool, int, float)):
        return False
    return 0 <= value <= 1 if name == "score" else value in (0, 1)
