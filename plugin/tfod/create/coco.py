"""COCO to shards, as create_coco_tf_record.py makes them.

Boxes are x, y, width and height divided by the size that the JSON gives. As in the script, boxes
of no area and those that pass the right or the lower edge are left out; they are counted. Other
than the script this takes size and format from the picture's own header, writes ``class/label``
(as Model Garden's official/vision/data/create_coco_tf_record.py does), captions (its key
``image/caption``), the keypoints' names from the file, and a label map with the categories' ids,
gaps and all.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfod.coco import read_coco, sound_coco
from tfod.corners import Corners
from tfod.create.boxes import normalized
from tfod.create.coco_keypoints import KeypointFile, read_keypoints
from tfod.create.coco_masks import draw_segmentation
from tfod.create.label_maps import BACKGROUND, ChosenLabelMap
from tfod.create.output import Created, PlannedSet, write_sets
from tfod.create.pictures import Picture, read_picture
from tfod.create.tally import Tally
from tfod.detection import AttributeValue, Detection, Keypoints, PngMask
from tfod.errors import TfodError
from tfod.label_map import Keypoint, LabelMap, LabelMapItem
from tfod.naming import safe_relative_path
from tfod.png import encode_mask_png
from tfod.raster import fill_box

if TYPE_CHECKING:
    from tfod.beam import Runner

NUM_SHARDS = {"train": 100, "val": 50, "testdev": 50}
"""How many files the script writes for each set, at most."""

_PERSON = "person"
_LARGEST_ID = (1 << 31) - 1  # of a label map
_FIELDS = ("id", "category_id", "bbox", "iscrowd", "area", "attributes")


@dataclass(frozen=True)
class CocoSet:
    """One set: which files it is made from.

    Attributes:
        name: ``train``, ``val`` or ``testdev``.
        image_dir: the folder of its pictures.
        annotations_file: the JSON of its instances, or of its pictures alone.
        keypoint_annotations_file, caption_annotations_file: more JSONs of the same pictures.
    """

    name: str
    image_dir: str
    annotations_file: str
    keypoint_annotations_file: str | None = None
    caption_annotations_file: str | None = None


@dataclass(frozen=True)
class CocoOptions:
    """What goes into the records.

    Attributes:
        include_masks: a mask for each object, as PNG.
        remove_non_person_annotations: only objects of the class ``person``.
        remove_non_person_images: only pictures with one.
    """

    include_masks: bool = False
    remove_non_person_annotations: bool = False
    remove_non_person_images: bool = False


def create_coco(
    sets: Sequence[CocoSet],
    output_dir: str,
    *,
    options: CocoOptions | None = None,
    num_shards: int | None = None,
    overwrite: bool = False,
    runner: Runner | None = None,
) -> Created:
    """Write sets as ``coco_<name>.record-00000-of-00100`` and so on, with one label map.

    The annotations of all sets are held in memory (about 1.5 GB for COCO 2017, 2 GB with
    outlines), pictures are not.

    Args:
        sets: which ones.
        output_dir: the folder.
        options: what goes into the records.
        num_shards: how many files for each set; None is what the script writes
            (:data:`NUM_SHARDS`). Never more than it has pictures.
        overwrite: replace what is there.
        runner: lets workers of Apache Beam make the records.

    Raises:
        TfodError: something is missing, odd or there already.
    """
    tally = Tally()
    options = options or CocoOptions()
    readers = [_Reader(one, options, tally) for one in sets]
    planned = [
        PlannedSet(
            os.path.join(output_dir, f"coco_{one.name}.record"),
            num_shards or NUM_SHARDS[one.name],
            reader.items(),
            _Maker(one.annotations_file, one.image_dir, options.include_masks),
        )
        for one, reader in zip(sets, readers, strict=True)
    ]
    return write_sets(planned, _label_map(readers), tally, overwrite, runner=runner)


@dataclass(frozen=True)
class _Object:
    """An annotation that is kept; corners as the JSON has them, in its pixels."""

    id: Any
    name: str
    label: int
    corners: Corners
    is_crowd: int
    area: float
    attributes: Mapping[str, AttributeValue]
    segmentation: Any


@dataclass(frozen=True)
class _Item:
    """What the JSONs say of a picture; ``size`` are height and width that boxes are divided by."""

    image_id: str
    filename: str
    size: tuple[int, int]
    objects: Sequence[_Object]
    keypoints: Keypoints | None
    captions: Sequence[str]


class _Reader:
    """Reads what is said of the pictures of one set."""

    def __init__(self, source: CocoSet, options: CocoOptions, tally: Tally) -> None:
        self._source = source
        self._options = options
        self._tally = tally
        fields = (*_FIELDS, "segmentation") if options.include_masks else _FIELDS
        self.file = read_coco(source.annotations_file, fields, without=("annotations",))
        with sound_coco(self.file.path):
            self.names = _category_names(self.file.categories)
        if self.names.get(0, BACKGROUND) != BACKGROUND:
            tally.add(
                "categories of id 0, which the OD API takes for the background; count from 1",
                f"{self.file.path}: {self.names[0]!r}",
            )
        keypoints, captions = source.keypoint_annotations_file, source.caption_annotations_file
        self.keypoints: KeypointFile | None = read_keypoints(keypoints) if keypoints else None
        self._captions = _read_captions(captions) if captions else {}
        self._used: dict[Any, frozenset[Any]] = {}

    def items(self) -> Iterator[_Item]:
        """The pictures that get a record, in the order of the file's images."""
        for image in self.file.images:
            item = self._item(image)
            if self._options.remove_non_person_images and all(
                one.name != _PERSON for one in item.objects
            ):
                self._tally.add("pictures without a person, left out", item.filename)
                continue
            yield item
        self._count_what_is_left()

    def _item(self, image: Mapping[str, Any]) -> _Item:
        path = self.file.path
        with sound_coco(path):
            image_id, filename = image["id"], safe_relative_path(str(image["file_name"]))
            size = (max(0, int(image.get("height") or 0)), max(0, int(image.get("width") or 0)))
            if image_id in self._used:
                raise ValueError(f"image id {image_id!r} comes twice")
        if not all(size):
            picture = read_picture(os.path.join(self._source.image_dir, filename), path)
            size = (size[0] or picture.height, size[1] or picture.width)
        with sound_coco(path):
            found = list(self._objects(self.file.annotations.pop(image_id, ()), size))
            ids = [one.id for one in found]
            self._used[image_id] = frozenset(ids)
        return _Item(
            str(image_id),
            filename,
            size,
            found,
            self.keypoints.keypoints(image_id, ids, size) if self.keypoints else None,
            self._captions.pop(image_id, ()),
        )

    def _objects(
        self, annotations: Iterable[Mapping[str, Any]], size: tuple[int, int]
    ) -> Iterator[_Object]:
        """The annotations that the script keeps."""
        height, width = size
        for one in annotations:
            where = self._place(one.get("id"))
            if not one.get("bbox"):
                self._tally.add("annotations without bbox, left out", where)
                continue
            x, y, box_width, box_height = one["bbox"]
            corners = (float(x), float(y), float(x + box_width), float(y + box_height))
            if not np.isfinite(corners).all():
                raise ValueError(f"bbox {one['bbox']} is not finite")
            label = _whole_number(one["category_id"])
            if label not in self.names:
                raise TfodError(f"{where}: there is no category {label}; add it to categories")
            if box_width <= 0 or box_height <= 0:
                self._tally.add("annotations whose box has no area, left out", where)
            elif corners[2] > width or corners[3] > height:
                self._tally.add(
                    "annotations whose box passes the picture's right or lower edge, left out",
                    where,
                )
            elif self._options.remove_non_person_annotations and self.names[label] != _PERSON:
                self._tally.add("annotations that are no person, left out", where)
            else:
                yield self._object(one, label, corners)

    def _object(self, one: Mapping[str, Any], label: int, corners: Corners) -> _Object:
        area = one.get("area")
        if area is None:
            self._tally.add(
                "annotations without area, that of their box is written", self._place(one.get("id"))
            )
            area = (corners[2] - corners[0]) * (corners[3] - corners[1])
        if not math.isfinite(float(area)):
            raise ValueError(f"area {area} is not finite")
        return _Object(
            one.get("id"),
            self.names[label],
            label,
            corners,
            int(one.get("iscrowd") or 0),
            float(area),
            _attributes(one.get("attributes")),
            one.get("segmentation"),
        )

    def _place(self, annotation_id: Any) -> str:
        return _place(self.file.path, annotation_id)

    def _count_what_is_left(self) -> None:
        for members in self.file.annotations.values():
            for one in members:
                self._tally.add(
                    "annotations of pictures that are not listed, left out",
                    self._place(one.get("id")),
                )
        for place in self.keypoints.unused(self._used) if self.keypoints else ():
            self._tally.add("keypoints of no object that is written, left out", place)
        for image_id, captions in self._captions.items():
            for _ in captions:
                self._tally.add(
                    "captions of pictures that are not listed, left out",
                    f"{self._source.caption_annotations_file}, image {image_id}",
                )


@dataclass(frozen=True)
class _Maker:
    """Makes the records of one set."""

    annotations_file: str
    image_dir: str
    include_masks: bool

    def __call__(self, item: _Item, tally: Tally) -> Detection:
        path, size, found = self.annotations_file, item.size, item.objects
        picture = read_picture(os.path.join(self.image_dir, item.filename), path)
        if size != (picture.height, picture.width):
            self._size_differs(item, picture, tally)
        return Detection(
            **picture.fields(item.filename, item.image_id),
            boxes=normalized([one.corners for one in found], size, f"{path}, {item.filename}"),
            class_text=[one.name for one in found],
            class_label=[one.label for one in found],
            masks=[self._mask(one, size, tally) for one in found] if self.include_masks else None,
            keypoints=item.keypoints,
            attributes={
                **_lists([one.attributes for one in found]),
                "is_crowd": [one.is_crowd for one in found],
                "area": [one.area for one in found],
            },
            captions=item.captions,
        )

    def _mask(self, one: _Object, size: tuple[int, int], tally: Tally) -> PngMask:
        where = _place(self.annotations_file, one.id)
        mask = draw_segmentation(one.segmentation, size, where)
        if mask is None:
            tally.add("annotations without segmentation, their mask is their box", where)
            mask = fill_box(one.corners, size)
        return PngMask(encode_mask_png(mask))

    def _size_differs(self, item: _Item, picture: Picture, tally: Tally) -> None:
        height, width = item.size
        where = (
            f"{self.annotations_file}: {item.filename} is {width}x{height}, the file "
            f"{picture.width}x{picture.height}"
        )
        if self.include_masks:
            raise TfodError(f"{where}; masks would not fit it, correct the size")
        tally.add(
            "pictures of another size than the JSON says; their boxes are divided by the JSON's",
            where,
        )


def _place(path: str, annotation_id: Any) -> str:
    return f"{path}, annotation {annotation_id}"


def _attributes(found: Any) -> Mapping[str, AttributeValue]:
    """What CVAT and others say of an object besides, under ``attributes``.

    Raises:
        ValueError: it is no object of JSON.
    """
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"attributes are {found!r}, expected name and value")
    return found


def _lists(found: Sequence[Mapping[str, AttributeValue]]) -> dict[str, list[AttributeValue]]:
    """Attributes by name, one value an object; None where it has none of that name."""
    names = dict.fromkeys(name for one in found for name in one)
    return {name: [one.get(name) for one in found] for name in names}


def _category_names(categories: Iterable[Mapping[str, Any]]) -> dict[int, str]:
    """Names by id.

    Raises:
        KeyError, TypeError, ValueError: one makes no sense.
    """
    names: dict[int, str] = {}
    for one in categories:
        number, name = _whole_number(one["id"]), one["name"]
        if not 0 <= number <= _LARGEST_ID:
            raise ValueError("a category's id is below 0 or beyond 32 bits")
        if name is None:
            raise ValueError(f"category {number} has no name")
        if names.setdefault(number, str(name)) != str(name):
            raise ValueError(f"category id {number} is {names[number]!r} and {name!r}")
    return names


def _whole_number(value: Any) -> int:
    number = int(value)
    if number != float(value):
        raise ValueError(f"{value!r} is no id")
    return number


def _read_captions(path: str) -> dict[Any, list[str]]:
    """Captions by the image's id, in the file's order."""
    found = read_coco(path, ("caption",), without=("images", "categories"))
    captions: dict[Any, list[str]] = defaultdict(list)
    with sound_coco(path):
        for image_id, members in found.annotations.items():
            captions[image_id] = [str(one["caption"]) for one in members]
    return captions


def _label_map(readers: Sequence[_Reader]) -> ChosenLabelMap:
    """The categories of all sets, in the order of their ids.

    Raises:
        TfodError: two sets give one id to different names.
    """
    items: dict[int, LabelMapItem] = {}
    for reader in readers:
        for number, name in reader.names.items():
            points = _keypoint_items(reader.keypoints, number)
            known = items.setdefault(number, LabelMapItem(number, name, keypoints=points))
            if known.name != name:
                raise TfodError(
                    f"{reader.file.path}: category {number} is {name!r}, and {known.name!r} in "
                    "another set; write them apart"
                )
    label_map = LabelMap(tuple(items[number] for number in sorted(items)))
    return ChosenLabelMap(label_map, f"that of {readers[0].file.path}")


def _keypoint_items(keypoints: KeypointFile | None, category: int) -> tuple[Keypoint, ...]:
    if keypoints is None:
        return ()
    places = keypoints.places.get(category, range(0))
    return tuple(Keypoint(place, keypoints.names[place]) for place in places)
