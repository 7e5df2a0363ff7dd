"""What COCO's JSONs say of the images of a set, checked before any record is made."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfod.convert.coco import (
    numbers,
    quoted,
    read_coco,
    real_number,
    scalar,
    sound_coco,
    whole_number,
)
from tfod.convert.coco_keypoints import read_keypoints
from tfod.detection.boxes import PixelBox
from tfod.detection.detection import AttributeValue, Keypoints
from tfod.shards.create.coco.classes import read_categories
from tfod.shards.create.image_files import AnnotatedSize, Size, frame_of, read_image
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.objects import sound_boxes
from tfod.shards.create.problems import Problems, Refusal
from tfod.tfrecord.image_names import safe_relative_path

_LARGEST_SIDE = (1 << 31) - 1
_FIELDS = ("id", "category_id", "bbox", "iscrowd", "area", "attributes")
_UNPLACED = Refusal(
    "annotations whose image_id is not the id of an image",
    "correct image_id (a number and a text are different ids), or take the annotations out",
)
_WITHOUT_BOX = Refusal(
    "annotations without bbox, and no other annotation of the file has one",
    "export the annotations with bounding boxes",
)
_LEAST_SHARE = 20  # more than one unplaced annotation in so many is a mistake of the whole file


@dataclass(frozen=True)
class CocoSet:
    """A set of images and the JSONs about them.

    Attributes:
        file_name: what the names of its shards start with.
        image_dir: where its images are.
        annotations_file: images and instances, or images alone.
        keypoint_annotations_file: keypoints of these instances, by their ids; without it those that
            the instances' file has, if its categories name any.
        is_test: whether the file of instances may have none, as COCO's own of ``test``.
        num_shards: how many files, where the options do not say it.
    """

    file_name: str
    image_dir: str
    annotations_file: str
    keypoint_annotations_file: str | None = None
    is_test: bool = False
    num_shards: int = 1


@dataclass(frozen=True)
class CocoObject:
    """An annotation that is kept; corners in the JSON's pixels, within its image."""

    id: Any
    name: str
    label: int
    corners: PixelBox
    is_crowd: int
    area: float
    attributes: Mapping[str, AttributeValue]
    segmentation: Any


@dataclass(frozen=True)
class CocoImage:
    """What the JSONs say of an image."""

    image_id: str
    filename: str
    annotated: AnnotatedSize
    objects: Sequence[CocoObject]
    keypoints: Keypoints | None


class CocoReader:
    """Reads what is said of the images of one set."""

    def __init__(self, source: CocoSet, include_masks: bool, problems: Problems) -> None:
        self._source = source
        self._problems = problems
        fields = (*_FIELDS, "segmentation") if include_masks else _FIELDS
        without = ("annotations",) if source.is_test else ()
        self._file = read_coco(source.annotations_file, fields, without)
        keypoints = source.keypoint_annotations_file
        if keypoints is None and any(one.get("keypoints") for one in self._file.categories):
            keypoints = source.annotations_file
        self._keypoints = read_keypoints(keypoints) if keypoints else None
        self.categories = read_categories(self._file, self._keypoints)
        self._used: dict[Any, frozenset[Any]] = {}
        self._file_names: set[str] = set()
        self._ids: set[Any] = set()
        self._without_box: list[str] = []
        self._placed = self._looked_at = 0  # annotations of listed images; those looked at

    @property
    def has_outlines(self) -> bool:
        """Whether any annotation has one."""
        every = itertools.chain.from_iterable(self._file.annotations.values())
        return any(one.get("segmentation") for one in every)

    def items(self, chosen: ChosenLabelMap) -> Iterator[CocoImage]:
        """The images that get a record, in the order of the file's images."""
        for image in self._file.images:
            item = self._item(image, chosen)
            if item is not None:
                yield item
        self._count_what_is_left()

    def _item(self, image: Mapping[str, Any], chosen: ChosenLabelMap) -> CocoImage | None:
        path = self._file.path
        with sound_coco(f"{path}, image {quoted(image.get('id'))}"):
            image_id, filename = scalar(image, "id"), safe_relative_path(_file_name(image))
            annotated = _side(image, "height"), _side(image, "width")
            if image_id in self._used:
                raise ValueError("another image has this id, too")
        if filename in self._file_names:
            self._problems.add(
                "images whose file_name another image has, too, a record for each",
                f"{path}, image {quoted(image_id)}: {filename}",
            )
        self._file_names.add(filename)
        found = self._file.annotations.pop(image_id, [])
        self._placed += len(found)
        self._problems.annotated += len(found)
        self._used[image_id] = frozenset()
        size = self._size(filename, annotated, len(found))
        if size is None:
            return None
        kept = list(self._objects(found, size, chosen))
        ids = [one.id for one in kept]
        self._used[image_id] = frozenset(ids)
        return CocoImage(
            str(image_id),
            filename,
            annotated,
            kept,
            self._keypoints.keypoints(image_id, ids, size) if self._keypoints else None,
        )

    def _size(self, filename: str, annotated: AnnotatedSize, count: int) -> Size | None:
        """The size that boxes are of; None where the file that is asked is missing."""
        if annotated[0] and annotated[1]:
            return annotated[0], annotated[1]
        path = os.path.join(self._source.image_dir, filename)
        image = read_image(path, self._file.path, self._problems)
        if image is None:
            return None
        # What is odd about it is counted when its record is made.
        uncounted, boxes = Problems(self._problems.policy), [(0.0, 0.0, 0.0, 0.0)] * count
        return frame_of(image, annotated, boxes, filename, uncounted).size

    def _objects(
        self, annotations: Sequence[Mapping[str, Any]], size: Size, chosen: ChosenLabelMap
    ) -> Iterator[CocoObject]:
        found = []
        self._looked_at += len(annotations)
        for one in annotations:
            where = self._place(one.get("id"))
            with sound_coco(where):
                if not one.get("bbox"):
                    self._without_box.append(where)
                    continue
                item = self._object(one, chosen, where)
            if item.id is not None and item.id in self._ids:
                self._problems.add(
                    "annotations whose id another one has, too, an object for each", where
                )
            self._ids.add(item.id)
            found.append(item)
        places = [self._place(one.id) for one in found]
        sound, kept = sound_boxes([one.corners for one in found], size, places, self._problems)
        for row, corners in zip(kept, sound.tolist(), strict=True):
            yield replace(found[row], corners=tuple(corners))

    def _object(self, one: Mapping[str, Any], chosen: ChosenLabelMap, where: str) -> CocoObject:
        x, y, width, height = numbers(one["bbox"], 4, "bbox")
        area, attributes = one.get("area"), one.get("attributes")
        if area is None:
            self._problems.add("annotations without area, that of their box is written", where)
        name = self.categories.names[whole_number(one, "category_id")]
        label = chosen.id_of(name, where)
        crowd = int(real_number(one.get("iscrowd") or 0, "iscrowd"))
        area = width * height if area is None else real_number(area, "area")
        # What CVAT and others say of an object besides.
        if attributes is not None and not isinstance(attributes, dict):
            raise ValueError(f"attributes are {quoted(attributes)}, expected names and values")
        for own, value in (("area", area), ("is_crowd", crowd)):
            if (attributes or {}).get(own) not in (None, value):
                self._problems.add(f"attributes named {own}, left out for COCO's own value", where)
        return CocoObject(
            scalar(one, "id") if one.get("id") is not None else None,
            name,
            label,
            (x, y, x + width, y + height),
            crowd,
            area,
            attributes or {},
            one.get("segmentation"),
        )

    def _place(self, annotation_id: Any) -> str:
        return place_of(self._file.path, annotation_id)

    def _count_what_is_left(self) -> None:
        unplaced = [
            f"{self._place(one.get('id'))}: {quoted(image_id)}"
            for image_id, members in self._file.annotations.items()
            for one in members
        ]
        are_most = len(unplaced) * _LEAST_SHARE > self._placed + len(unplaced)
        are_all = len(self._without_box) == self._looked_at
        left_out = "annotations of images that are not listed, left out"
        for where in unplaced:
            self._problems.add(_UNPLACED if are_most else left_out, where)
        for where in self._without_box:
            self._problems.add(
                _WITHOUT_BOX if are_all else "annotations without bbox, left out", where
            )
        for where in self._keypoints.unused(self._used) if self._keypoints else ():
            self._problems.add("keypoints of no object that is written, left out", where)


def place_of(path: str, annotation_id: Any) -> str:
    """Where an annotation is, for messages."""
    return f"{path}, annotation {annotation_id}"


def _file_name(image: Mapping[str, Any]) -> str:
    name = image["file_name"]
    if not isinstance(name, str) or not name:
        raise ValueError(f"file_name is {quoted(name)}, expected a text")
    return name


def _side(image: Mapping[str, Any], key: str) -> int | None:
    """Height or width; None where it is not there, or is 0."""
    side = whole_number(image, key) if image.get(key) is not None else 0
    if side > _LARGEST_SIDE:
        raise ValueError(f"{key} is {quoted(side)}, expected a number of pixels")
    return side if side > 0 else None
