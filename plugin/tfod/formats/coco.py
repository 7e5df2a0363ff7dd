"""COCO's JSON: images, categories, and annotations with boxes, outlines, keypoints; images beside.

Read as create_coco_tf_record.py of the OD API reads it: boxes are divided by the size that the JSON
gives, ids of categories are kept. Sources: cocodataset.org/#format-data; Roboflow's export; CVAT's
for ``attributes``; the written folders are those that Datumaro and FiftyOne look for.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np

from tfod.detection.boxes import PixelBox
from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.images.coco_masks import draw_segmentation
from tfod.detection.images.masks import encode_mask_png, fill_box, run_lengths
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.formats.coco_json import (
    CocoDocument,
    CocoSet,
    classes_of,
    file_name,
    find_files,
    numbers,
    place_of,
    points_of,
    real_number,
    scalar,
    side,
    sound,
    whole_number,
)
from tfod.formats.dataset import Dataset, Images, chosen
from tfod.formats.documents import quoted
from tfod.formats.files import Frame, ImageFiles, by
from tfod.formats.numbers import digits, lines_of
from tfod.formats.objects import Objects, Reading
from tfod.formats.options import OddMasks, Options, Problems, Refusal
from tfod.formats.writer import Writer, masks_of, scaled
from tfod.tfrecord.shard_sets.names import stem_of_subset

_UNPLACED = (
    "annotations whose image_id is not the id of an image (a number and a text are different ids), "
    "left out"
)
_OTHER_SIZE = "masks of another size than their image"
_ODD_MASKS: Mapping[OddMasks, str | Refusal] = {
    OddMasks.REFUSE: Refusal(_OTHER_SIZE, "correct width and height, or choose --odd-masks"),
    OddMasks.SCALE: f"{_OTHER_SIZE}, scaled to it",
    OddMasks.DROP: f"{_OTHER_SIZE}, left out",
}


# Reading


def read(source: str, options: Options) -> Dataset:
    """Read a JSON of instances, or all of a folder's, each a subset.

    The annotations of all are held in memory (about 1.5 GB for COCO 2017), images are not. Without
    a label map the classes keep the ids of their categories.

    Raises:
        TfodError: there is none, or one makes no sense, or has no images.
    """
    files = find_files(source)
    if not files:
        raise TfodError(f"{source} holds no JSON of COCO's instances; name one")
    sets = [CocoSet.of(file, options.images) for file in files]
    if len({one.subset for one in sets}) < len(sets):
        listed = ", ".join(files)
        raise TfodError(f"{source}: two JSONs are of the same subset: {listed}; name one")
    named = chosen({one.subset: one for one in sets}, options.subset, source)
    problems = Problems(options)
    documents = {name: CocoDocument.read(one, options.masks) for name, one in named.items()}
    classes = classes_of(list(documents.values()), options.label_map, problems)
    reading = Reading(classes, options, problems)
    subsets = {name: _Reader(one, reading).detections() for name, one in documents.items()}
    ids = [str(image.get("id")) for one in documents.values() for image in one.images]
    return reading.dataset(subsets.items(), subsets, files, source_ids=ids)


@dataclass(frozen=True)
class _Reader:
    """Makes the Detections of a document, in the order of its images."""

    document: CocoDocument
    reading: Reading

    def detections(self) -> Iterator[Detection | None]:
        path, problems = self.document.own.file, self.reading.problems
        images = ImageFiles(self.document.own.folders)
        left = dict(self.document.annotations)
        names, ids = set[str](), set[Any]()
        for entry in self.document.images:
            with sound(f"{path}, image {quoted(entry.get('id'))}"):
                image_id, name = scalar(entry, "id"), file_name(entry)
                size = side(entry, "height"), side(entry, "width")
                if str(image_id) in ids:
                    raise ValueError("another image has this id, too")
            ids.add(str(image_id))
            if name in names:
                problems.add(
                    "images whose file_name another image has, too, a record for each",
                    f"{path}, image {quoted(image_id)}: {name}",
                )
            names.add(name)
            objects, where = self._objects(left.pop(image_id, [])), f"{path}: {name}"
            yield self.reading.detection(
                images, [name], size, objects, where, source_id=str(image_id)
            )
        for image_id, entries in left.items():
            for one in entries:
                place = place_of(path, one.get("id"))
                self._leave_out(_UNPLACED, f"{place}: {quoted(image_id)}")

    def _leave_out(self, why: str, where: str) -> None:
        self.reading.problems.annotated += 1
        self.reading.problems.add(why, where)

    def _objects(self, entries: Sequence[Mapping[str, Any]]) -> Objects:
        rows = []
        for entry in entries:
            place = place_of(self.document.own.file, entry.get("id"))
            if not entry.get("bbox"):
                self._leave_out("annotations without bbox, left out", place)
                continue
            with sound(place):
                rows.append(self._object(entry, place))
        names = dict.fromkeys(name for one in rows for name in one.attributes)
        return Objects(
            [one.category.class_name for one in rows],
            [one.box for one in rows],
            [one.place for one in rows],
            {name: [one.attributes.get(name) for one in rows] for name in names},
            self._keypoints(rows) if self.document.point_names else None,
            functools.partial(self._masks, rows) if self.reading.options.masks else None,
        )

    def _object(self, entry: Mapping[str, Any], place: str) -> _Object:
        x, y, width, height = numbers(entry["bbox"], 4, "bbox")
        problems = self.reading.problems
        if entry.get("area") is None:
            problems.add("annotations without area, that of their box is written", place)
            area = width * height
        else:
            area = real_number(entry["area"], "area")
        values = {"is_crowd": int(real_number(entry.get("iscrowd") or 0, "iscrowd")), "area": area}
        # What CVAT and others say of an object besides.
        attributes = entry.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise ValueError(f"attributes are {quoted(attributes)}, expected names and values")
        for name, value in values.items():
            if attributes.get(name) not in (None, value):
                problems.add(f"attributes named {name}, left out for COCO's own value", place)
        outline = entry.get("segmentation")
        if outline and not self.reading.options.masks:
            problems.add("outlines left out, for want of --masks", place)
        category = self.document.categories[whole_number(entry, "category_id")]
        points = entry.get("keypoints")
        points = points and points_of(points, len(category.keypoints))
        box = x, y, x + width, y + height
        return _Object(category, box, place, {**attributes, **values}, outline, points)

    def _keypoints(self, rows: Sequence[_Object]) -> Keypoints:
        """The points of all objects; zeros for an object that has none."""
        names = self.document.point_names
        found = np.zeros((len(rows), len(names), 3))
        for row, one in enumerate(rows):
            if one.points is not None:
                found[row, [point.id for point in one.category.keypoints]] = one.points
        return Keypoints(found[:, :, :2], found[:, :, 2].astype(np.int64), tuple(names))

    def _masks(self, rows: Sequence[_Object], frame: Frame) -> list[PngMask]:
        """A mask for each object, of the size of the image: the OD API wants one for each."""
        size, own = frame.size or (0, 0), frame.own or (0, 0)
        problems, odd = self.reading.problems, self.reading.options.odd_masks
        found = []
        for one in rows:
            drawn = draw_segmentation(one.outline, size, one.place)
            if drawn is None:
                problems.add("annotations without segmentation, their mask is their box", one.place)
            elif drawn.shape != own:
                problems.add(_ODD_MASKS[odd], f"{one.place}: {by(drawn.shape)} in {by(own)}")
                drawn = None if odd is OddMasks.DROP else scaled(drawn, own)
            is_box = drawn is None
            if drawn is None:
                box = np.nan_to_num(one.box, posinf=0, neginf=0)  # such a box is refused itself
                box = box * np.tile(np.divide(own, size)[::-1], 2)
                drawn = fill_box(tuple(box.tolist()), own)
            found.append(PngMask(encode_mask_png(drawn, is_box=is_box)))
        return found


class _Object(NamedTuple):
    """An annotation: its box in pixels, and its keypoints, x, y and visibility in each row."""

    category: LabelMapItem
    box: PixelBox
    place: str
    attributes: Mapping[str, Any]
    outline: Any
    points: np.ndarray | None


# Writing

_DECIMALS = 6
_DECIMALS_OF_AREA = 2  # of a box, where the record has no other


class _Lists:
    """A JSON of images and annotations; these lie in a file of their own until the end."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.path = path
        self._file: IO[bytes] = open(path, "xb")
        self._annotations: IO[bytes] = open(f"{path}.annotations", "xb+")
        self._file.write(b'{"images":[')
        self._begun: set[IO[bytes]] = set()

    def add(self, images: bytes, annotations: bytes) -> None:
        """Add entries, each with a comma behind it."""
        for file, entries in ((self._file, images), (self._annotations, annotations)):
            if entries:
                file.write(b",\n" if file in self._begun else b"\n")
                file.write(entries[:-2])
                self._begun.add(file)

    def finish(self, categories: Sequence[Mapping[str, Any]]) -> None:
        """Write the end."""
        self._file.write(b'],\n"annotations":[')
        self._annotations.seek(0)
        shutil.copyfileobj(self._annotations, self._file, 1 << 20)
        self._file.write(b'],\n"categories":' + json.dumps(categories).encode() + b"}\n")
        self._annotations.close()
        os.unlink(self._annotations.name)
        self._file.close()


class CocoWriter(Writer):
    """Ids of images are their source ids, where these are numbers that no other image has."""

    CARRIES = frozenset(("masks", "keypoints"))
    ALL_ATTRIBUTES = True
    HAS_IDS = True

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._open: dict[str, _Lists] = {}
        self._objects = 0
        self._points: dict[int, Sequence[str]] = {}  # names of the keypoints of classes

    def begin(self, subset: str) -> None:
        file = f"instances_{stem_of_subset(subset)}.json"
        self._open[subset] = _Lists(os.path.join(self.folder, "annotations", file))
        self.documents.append(self._open[subset].path)

    def add(self, subset: str, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, subset)
        ids = np.array(self._image_numbers(images, subset), np.int64)
        height, width = (digits(side) for side in images.sizes.T)
        heads = lines_of(
            *(b'{"id":', digits(ids), b',"width":', width, b',"height":', height),
            b',"file_name":\n',
        )
        texts = json.dumps(names, separators=("\n", ":"))[1:-1].encode()
        pairs = zip(heads.splitlines(), texts.splitlines(), strict=True)
        entries = [b"%b%b},\n" % pair for pair in pairs]
        self._open[subset].add(b"".join(entries), self._annotations(images, ids, label_map))

    def finish(self, label_map: LabelMap) -> None:
        categories: list[dict[str, Any]] = []
        for one in label_map.items:
            names = [point.label for point in one.keypoints] or self._points.get(one.id, ())
            points = {"keypoints": list(names)} if names else {}
            categories.append({"id": one.id, "name": one.class_name, **points})
        for document in self._open.values():
            document.finish(categories)

    def _annotations(self, images: Images, ids: np.ndarray, label_map: LabelMap) -> bytes:
        """The entries of all objects, each with a comma behind it."""
        counts = np.diff(images.splits)
        first, self._objects = self._objects + 1, self._objects + len(images.boxes)
        left, top, right, bottom = images.in_pixels().T
        width, height = right - left, bottom - top
        area = (width * height).round(_DECIMALS_OF_AREA)
        crowd, others = np.zeros(len(left), np.int64), list[bytes]()
        if not images.is_plain:
            others = [
                text
                for row in range(len(ids))
                for text in self._others(images, row, area, crowd, label_map)
            ]
        x, y, w, h = (digits(side, _DECIMALS) for side in (left, top, width, height))
        places = _DECIMALS if others else _DECIMALS_OF_AREA
        lines = lines_of(
            *(b'{"id":', digits(np.arange(first, first + len(left)))),
            *(b',"image_id":', digits(np.repeat(ids, counts))),
            *(b',"category_id":', digits(np.array(images.classes, np.int64))),
            *(b',"bbox":[', x, b",", y, b",", w, b",", h, b'],"area":', digits(area, places)),
            *(b',"iscrowd":', digits(crowd), b"\n" if others else b',"segmentation":[]},\n'),
        )
        if not others:
            return lines
        parts = zip(lines.splitlines(), others, strict=True)
        return b"".join(b"%b%b},\n" % part for part in parts)

    def _others(
        self,
        images: Images,
        row: int,
        areas: np.ndarray,
        crowds: np.ndarray,
        label_map: LabelMap,
    ) -> Iterator[bytes]:
        """What the entries of a row's objects have besides; areas and crowds are set."""
        one, size = images.detections[row], tuple(images.sizes[row].tolist())
        start = images.splits[row]
        masks = masks_of(one)
        for number, mask in enumerate(masks):
            values = {name: column[number] for name, column in one.attributes.items()}
            area, crowd = values.pop("area", None), values.pop("is_crowd", None)
            if isinstance(area, (int, float)) and math.isfinite(area):
                areas[start + number] = area
            crowds[start + number] = int(bool(crowd))
            found: dict[str, Any] = {"segmentation": []}
            if mask is not None:
                pixels = self._pixels(mask, one, size)
                if pixels is not None:
                    runs = run_lengths(pixels.T.ravel())
                    found["segmentation"] = {"counts": runs, "size": size}
            if one.keypoints is not None:
                label = images.classes[start + number]
                found |= self._keypoints(one.keypoints, number, size, label, label_map)
            given = {name: value for name, value in values.items() if value is not None}
            if given:
                found["attributes"] = given
            yield b"".join(
                f",{json.dumps(name)}:{json.dumps(value)}".encode() for name, value in found.items()
            )

    def _keypoints(
        self, points: Keypoints, number: int, size: tuple[int, int], label: int, classes: LabelMap
    ) -> dict[str, Any]:
        """The points of an object: those of its class, where the label map says which they are."""
        count = points.xy.shape[1]
        item = classes.find_id(label)
        places = [point.id for point in item.keypoints] if item else []
        if not places or max(places) >= count:
            if any(one.keypoints for one in classes.items) and not points.visibility[number].any():
                return {}  # of a class that has none
            places = list(range(count))
            names = points.names or [str(place + 1) for place in places]
            self._points.setdefault(label, names)
        shown = points.visibility[number, places]
        pixels = points.xy[number, places] * np.array((size[1], size[0]), np.float64)
        xy = np.where(shown[:, None] > 0, pixels, 0).round(_DECIMALS).tolist()
        values = [
            value for (x, y), v in zip(xy, shown.tolist(), strict=True) for value in (x, y, v)
        ]
        return {"keypoints": values, "num_keypoints": int((shown > 0).sum())}
