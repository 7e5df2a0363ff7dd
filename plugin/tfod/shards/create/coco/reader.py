"""What COCO's JSONs say of the images of a set, checked before any record is made."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfod.convert.coco import (
    CocoFile,
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
from tfod.errors import TfodError
from tfod.shards.create.coco.classes import read_categories
from tfod.shards.create.coco.panoptic import PanopticFiles, Segments, read_panoptic
from tfod.shards.create.image_files import AnnotatedSize, Size, frame_of, read_image
from tfod.shards.create.label_maps import ChosenLabelMap
from tfod.shards.create.objects import sound_boxes
from tfod.shards.create.problems import Problems, Refusal
from tfod.tfrecord.image_names import safe_relative_path

_PERSON = "person"
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
    """A set of images and the JSONs about them, of which one has to list the images.

    Attributes:
        file_name: what the names of its shards start with.
        image_dirs: where its images are, each in one of these folders.
        annotations_file: instances, or images alone.
        keypoint_annotations_file: keypoints of these instances, by their ids; without it those that
            the instances' file has, if its categories name any.
        caption_annotations_file: texts about the images.
        image_info_file: lists the images that get a record; without it the instances' file does,
            or else the captions'.
        panoptic: segments of the images.
        is_test: whether the file of instances may have none, as COCO's own of ``test``.
        num_shards: how many files, where the options do not say it.
        extension: stands behind the number of each file, also of a single one.
    """

    file_name: str
    image_dirs: Sequence[str]
    annotations_file: str | None = None
    keypoint_annotations_file: str | None = None
    caption_annotations_file: str | None = None
    image_info_file: str | None = None
    panoptic: PanopticFiles | None = None
    is_test: bool = False
    num_shards: int = 1
    extension: str = ""

    @property
    def source(self) -> str:
        """The file that lists the images."""
        found = self.image_info_file or self.annotations_file or self.caption_annotations_file
        if found is None:
            raise TfodError(f"no file lists the images of {self.file_name}; name one")
        return found


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
    captions: Sequence[str]
    segments: Segments | None


class CocoReader:
    """Reads what is said of the images of one set."""

    def __init__(
        self, source: CocoSet, include_masks: bool, only_persons: bool, problems: Problems
    ) -> None:
        self._source = source
        self._only_persons = only_persons
        self._problems = problems
        panoptic = source.panoptic
        self._file = _read_instances(source, include_masks)
        keypoints = source.keypoint_annotations_file
        if keypoints is None and any(one.get("keypoints") for one in self._file.categories):
            keypoints = source.annotations_file
        self._images = self._file.images
        if source.image_info_file and source.annotations_file:
            without = ("annotations", "categories")
            self._images = read_coco(source.image_info_file, (), without).images
        self._keypoints = read_keypoints(keypoints) if keypoints else None
        captions = source.caption_annotations_file
        self._captions = _read_captions(captions) if captions else {}
        self._panoptic = read_panoptic(panoptic) if panoptic else None
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

    def items(self, chosen: ChosenLabelMap, only_with_person: bool) -> Iterator[CocoImage]:
        """The images that get a record, in the order of the file's images."""
        if self._panoptic:
            self._panoptic.require_ids_of(chosen)
        for image in self._images:
            item = self._item(image, chosen)
            if item is None:
                continue
            if only_with_person and all(one.name != _PERSON for one in item.objects):
                self._problems.add("images without a person, left out", item.filename)
                continue
            yield item
        self._count_what_is_left()

    def _item(self, image: Mapping[str, Any], chosen: ChosenLabelMap) -> CocoImage | None:
        path = self._source.source
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
            self._captions.pop(image_id, ()),
            self._segments(image_id, filename),
        )

    def _segments(self, image_id: Any, filename: str) -> Segments | None:
        if self._panoptic is None:
            return None
        found = self._panoptic.images.pop(image_id, None)
        if found is None:
            self._problems.add("images without panoptic segments, written without", filename)
        return found

    def _size(self, filename: str, annotated: AnnotatedSize, count: int) -> Size | None:
        """The size that boxes are of; None where the file that is asked is missing."""
        if annotated[0] and annotated[1]:
            return annotated[0], annotated[1]
        path = image_path(self._source, filename)
        image = read_image(path, self._source.source, self._problems)
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
            if self._only_persons and item.name != _PERSON:
                self._problems.add("annotations of other classes than person, left out", where)
            else:
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
        if self._source.image_info_file:  # which may list a part of them
            are_most = not self._placed
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
        for image_id, captions in self._captions.items():
            where = f"{self._source.caption_annotations_file}, image {image_id}"
            for _ in captions:
                self._problems.add("captions of images that are not listed, left out", where)
        for segments in self._panoptic.images.values() if self._panoptic else ():
            what = "panoptic segments of images that are not listed, left out"
            self._problems.add(what, segments.path)


def image_path(source: CocoSet, filename: str) -> str:
    """The image in the one folder that has it; where none has it, in the first."""
    paths = [os.path.join(folder, filename) for folder in source.image_dirs]
    found = [path for path in paths if os.path.exists(path)] if len(paths) > 1 else paths
    if len(found) > 1:
        raise TfodError(f"{' and '.join(found)} have one name; leave one of the folders out")
    return (found or paths)[0]


def place_of(path: str | None, annotation_id: Any) -> str:
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


def _read_instances(source: CocoSet, include_masks: bool) -> CocoFile:
    """The instances of a set; where no file has them the images and categories alone."""
    if source.annotations_file is None:
        found = read_coco(source.source, (), ("annotations", "categories"))
        return CocoFile(found.path, found.images, found.categories, {})
    fields = (*_FIELDS, "segmentation") if include_masks else _FIELDS
    return read_coco(source.annotations_file, fields, ("annotations",) if source.is_test else ())


def _read_captions(path: str) -> dict[Any, list[str]]:
    found = read_coco(path, ("caption",), without=("images", "categories"))
    captions: dict[Any, list[str]] = {}
    for image_id, members in found.annotations.items():
        with sound_coco(f"{path}, image {image_id}"):
            captions[image_id] = [str(one["caption"]) for one in members]
    return captions
