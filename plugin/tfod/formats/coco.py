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
from typing import IO, Any

import numpy as np

from tfod.detection.detection import Detection, Keypoints, PngMask
from tfod.detection.images.mask_images import (
    draw_segmentation,
    encode_mask_png,
    fill_box,
    run_lengths,
)
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.formats.coco_json import (
    CocoDocument,
    box_of,
    classes_of,
    place_of,
    points_of,
    real_number,
    require_valid_entry,
    scalar,
    side,
    subset_of,
    whole_number,
)
from tfod.formats.dataset import Dataset, Images, chosen
from tfod.formats.format_writer import ATTRIBUTES, SOURCE_ID, FormatWriter, masks_of
from tfod.formats.numbers import DECIMALS, digits, lines_of, multiply_as_typed
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import quoted
from tfod.formats.reading.files import Frame, ImageFiles
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, rotated
from tfod.sources.format_recognition import SourceFiles, find_coco_files
from tfod.tfrecord.shard_sets.shard_names import to_stem

_UNPLACED = (
    "annotations whose image_id is not the id of an image (a number and a text are different ids), "
    "left out"
)

# Reading


def read(source: str, options: Options) -> Dataset:
    """Read a JSON of instances, or all of a folder's, each a subset.

    The JSONs are held in memory (six times their length), images are not. Without a label map the
    classes keep the ids of their categories.

    Raises:
        TfodError: there is none, or one makes no sense, or has no images.
    """
    files = find_coco_files(SourceFiles.at(source))
    if not files:
        raise TfodError(f"{source} holds no JSON of COCO's instances; name one")
    named = {subset_of(file): file for file in files}
    if len(named) < len(files):
        listed = ", ".join(files)
        raise TfodError(f"{source}: two JSONs are of the same subset: {listed}; name one")
    problems = ConversionProblems(options)
    documents = [
        CocoDocument.read(subset, file, options.images)
        for subset, file in chosen(named, options.subset, source).items()
    ]
    classes = classes_of(documents, options.label_map, problems)
    draw = functools.partial(_masks, problems) if options.masks else None
    reading = DatasetBuilder(classes, options, problems, draw=draw)
    subsets = {one.subset: _detections(one, reading) for one in documents}
    ids = [str(image.get("id")) for one in documents for image in one.images]
    return reading.dataset(subsets.items(), subsets, files, source_ids=ids)


def _detections(document: CocoDocument, reading: DatasetBuilder) -> Iterator[Detection | None]:
    """The Detections of a document, in the order of its images."""
    path, problems = document.file, reading.problems
    images = ImageFiles(document.folders, root=reading.options.unpacked)
    points = document.point_names
    left, ids = dict(document.annotations), set[str]()
    for entry in document.images:
        with require_valid_entry(f"{path}, image {quoted(entry.get('id'))}"):
            image_id, name = scalar(entry, "id"), entry["file_name"]
            if not isinstance(name, str) or not name:
                raise ValueError(f"file_name is {quoted(name)}, expected a text")
            size = side(entry, "height"), side(entry, "width")
            if str(image_id) in ids:
                raise ValueError("another image has this id, too")
        ids.add(str(image_id))
        found = (_object(one, document, reading) for one in left.pop(image_id, []))
        yield reading.detection(
            *(images, [name], size, list(filter(None, found)), f"{path}: {name}"),
            source_id=str(image_id),
            point_count=len(points),
            point_names=points,
        )
    for image_id, entries in left.items():
        for one in entries:
            problems.annotated += 1
            problems.add(_UNPLACED, f"{place_of(path, one.get('id'))}: {quoted(image_id)}")


def _object(
    entry: Mapping[str, Any], document: CocoDocument, reading: DatasetBuilder
) -> AnnotatedObject | None:
    """The object of an annotation; None where it is left out."""
    place, problems = place_of(document.file, entry.get("id")), reading.problems
    if not entry.get("bbox"):
        problems.annotated += 1
        problems.add("annotations without bbox, left out", place)
        return None
    with require_valid_entry(place):
        x, y, width, height = box_of(entry["bbox"])
        area = width * height
        if entry.get("area") is None:
            problems.add("annotations without area, that of their box is written", place)
        else:
            area = real_number(entry["area"], "area")
        values = {"is_crowd": int(real_number(entry.get("iscrowd") or 0, "iscrowd")), "area": area}
        # What CVAT and others say of an object besides.
        attributes = entry.get("attributes") or {}
        if not isinstance(attributes, dict):
            raise ValueError(f"attributes are {quoted(attributes)}, expected names and values")
        box = x, y, x + width, y + height
        drawn = rotated(box, attributes.get("rotation"), place, problems)
        if drawn:
            attributes = {key: value for key, value in attributes.items() if key != "rotation"}
        for name, value in values.items():
            if attributes.get(name) not in (None, value):
                problems.add(f"attributes named {name}, left out for COCO's own value", place)
        outline = entry.get("segmentation")
        if outline and not reading.options.masks:
            problems.add("outlines left out, for want of --masks", place)
        category = document.categories[whole_number(entry, "category_id")]
        points = None
        if entry.get("keypoints"):
            points = np.zeros((len(document.point_names), 3))
            own = points_of(entry["keypoints"], len(category.keypoints))
            points[[point.id for point in category.keypoints]] = own
    values = {**attributes, **values}
    return AnnotatedObject(category.class_name, box, place, values, points, outline, drawn)


def _masks(
    problems: ConversionProblems, objects: Sequence[AnnotatedObject], frame: Frame
) -> list[PngMask]:
    """A mask for each object: the OD API wants one for each.

    It is of the size that the JSON gives, or the runs have; writers see that it is the image's.
    """
    size, own = frame.size or (0, 0), frame.own or (0, 0)
    found = []
    for one in objects:
        drawn = draw_segmentation(one.outline, size, one.place)
        if drawn is None:
            problems.add("annotations without segmentation, their mask is their box", one.place)
        is_box = drawn is None
        if drawn is None:
            corners = one.box * np.tile(np.divide(own, size)[::-1], 2)
            drawn = fill_box(tuple(corners.tolist()), own)
        found.append(PngMask(encode_mask_png(drawn, is_box=is_box)))
    return found


# Writing

_DECIMALS_OF_AREA = 2  # of a box, where the record has no other
_DIGITS = 16  # of an id at most: JSON's numbers are doubles for many readers
_OTHER_IDS = "source ids that are not the number of one image, which got another"


class _Lists:
    """A JSON of images and annotations; these lie in a file of their own until the end."""

    def __init__(self, file: IO[bytes], annotations: IO[bytes]) -> None:
        self._file, self._annotations = file, annotations
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


class Writer(FormatWriter):
    """Ids of images are their source ids, where these are numbers that no other image has."""

    CARRIES = frozenset(("masks", "keypoints", ATTRIBUTES, SOURCE_ID))

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._lists: dict[str, _Lists] = {}
        self._objects = 0
        self._points: dict[int, Sequence[str]] = {}  # names of the keypoints of classes
        self._taken: dict[str, set[int]] = {}  # numbers of images, by subset
        self._free: dict[str, int] = {}

    def begin(self, subset: str) -> None:
        folder = os.path.join(self.folder, "annotations")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"instances_{to_stem(subset)}.json")
        self._lists[subset] = _Lists(self._open(path), self._open(f"{path}.annotations"))
        self.documents.append(path)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, images.subset)
        ids = np.array(self._image_numbers(images), np.int64)
        height, width = (digits(side) for side in images.sizes.T)
        heads = lines_of(
            *(b'{"id":', digits(ids), b',"width":', width, b',"height":', height),
            b',"file_name":\n',
        )
        texts = json.dumps(names, separators=("\n", ":"))[1:-1].encode()
        pairs = zip(heads.splitlines(), texts.splitlines(), strict=True)
        entries = [b"%b%b},\n" % pair for pair in pairs]
        self._lists[images.subset].add(b"".join(entries), self._annotations(images, ids, label_map))

    def finish(self, label_map: LabelMap) -> None:
        categories: list[Mapping[str, Any]] = []
        for one in label_map.items:
            names = [point.label for point in one.keypoints] or self._points.get(one.id, ())
            points = {"keypoints": list(names)} if names else {}
            categories.append({"id": one.id, "name": one.class_name, **points})
        for document in self._lists.values():
            document.finish(categories)

    def _image_numbers(self, images: Images) -> list[int]:
        """A number for each image: its source id where that is one, and free; else the next."""
        texts = [one or "" for one in images.source_ids]
        numbers = [int(one) if one.isdecimal() and len(one) < _DIGITS else -1 for one in texts]
        distinct, taken = set(numbers), self._taken.setdefault(images.subset, set())
        if len(distinct) < len(numbers) or -1 in distinct or not taken.isdisjoint(distinct):
            free = self._free.get(images.subset, 1)
            for row, number in enumerate(numbers):
                if number < 0 or number in taken:
                    self.losses[_OTHER_IDS][""] += texts[row] not in ("", images.filenames[row])
                    while free in taken:
                        free += 1
                    numbers[row] = free
                taken.add(numbers[row])
            self._free[images.subset] = free
        taken.update(numbers)
        return numbers

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
        x, y, w, h = (digits(side, DECIMALS) for side in (left, top, width, height))
        places = DECIMALS if others else _DECIMALS_OF_AREA
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
        self, images: Images, row: int, areas: np.ndarray, crowds: np.ndarray, label_map: LabelMap
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
        pixels = multiply_as_typed(points.xy[number, places], np.array(size[::-1]))
        xy = np.where(shown[:, None] > 0, pixels, 0).round(DECIMALS).tolist()
        values = [
            value for (x, y), v in zip(xy, shown.tolist(), strict=True) for value in (x, y, v)
        ]
        return {"keypoints": values, "num_keypoints": int((shown > 0).sum())}
