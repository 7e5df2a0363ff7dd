"""COCO's JSON of instances: images, categories, and annotations with boxes, outlines and keypoints.

Reading follows create_coco_tf_record.py of the OD API: boxes are divided by the size in the JSON,
and category ids are kept. Sources: cocodataset.org/#format-data; exports of Roboflow; exports of
CVAT for ``attributes``. Datumaro and FiftyOne read the folders that are written.
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

from tfod.detection.detection import Detection, Keypoints
from tfod.detection.images.mask_images import draw_segmentation, run_lengths
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.errors import TfodError
from tfod.formats.coco_json import (
    CocoDocument,
    convert_entry_errors,
    format_location,
    get_scalar,
    get_side,
    get_subset,
    get_whole_number,
    merge_categories,
    parse_box,
    parse_keypoints,
    parse_real_number,
)
from tfod.formats.dataset import Dataset, Images, select_subsets
from tfod.formats.format_writer import ATTRIBUTES, SOURCE_ID, FormatWriter, get_masks
from tfod.formats.numbers import DECIMALS, format_numbers, format_rows, multiply_as_typed
from tfod.formats.options import ConversionProblems, Options
from tfod.formats.reading.documents import to_short_json
from tfod.formats.reading.files import ImageFiles
from tfod.formats.reading.objects import AnnotatedObject, DatasetBuilder, draw_masks, read_rotation
from tfod.sources.format_recognition import SourceFiles, find_coco_files
from tfod.tfrecord.shard_sets.shard_names import to_stem

_UNKNOWN_IMAGE = (
    "annotations whose image_id is not the id of an image (a number and a text are different ids), "
    "left out"
)

# Reading


def read(source: str, options: Options) -> Dataset:
    """Read a JSON of instances, or those in a folder, each as a subset; or raise TfodError.

    The JSONs take six times their length in memory. Without a label map, category ids are kept.
    """
    files = find_coco_files(SourceFiles.at(source))
    if not files:
        raise TfodError(f"{source} contains no JSON of COCO's instances; pass the path of one")
    files_by_subset = {get_subset(file): file for file in files}
    if len(files_by_subset) < len(files):
        listed = ", ".join(files)
        raise TfodError(f"{source}: two JSONs belong to the same subset: {listed}; pass one")
    problems = ConversionProblems(options)
    documents = [
        CocoDocument.read(subset, file, options.images)
        for subset, file in select_subsets(files_by_subset, options.subset, source).items()
    ]
    classes = merge_categories(documents, options.label_map, problems)
    draw = functools.partial(draw_masks, draw_segmentation, problems) if options.masks else None
    builder = DatasetBuilder(classes, options, problems, draw=draw)
    subsets = {document.subset: _build_detections(document, builder) for document in documents}
    ids = [str(image.get("id")) for document in documents for image in document.images]
    return builder.build_dataset(subsets.items(), subsets, files, source_ids=ids)


def _build_detections(
    document: CocoDocument, builder: DatasetBuilder
) -> Iterator[Detection | None]:
    path, problems = document.file, builder.problems
    images = ImageFiles(document.folders, root=builder.options.unpacked_folder)
    remaining, ids = dict(document.annotations), set[str]()
    for entry in document.images:
        with convert_entry_errors(f"{path}, image {to_short_json(entry.get('id'))}"):
            image_id, name = get_scalar(entry, "id"), entry["file_name"]
            if not isinstance(name, str) or not name:
                raise ValueError(f"file_name is {to_short_json(name)}, expected a text")
            size = get_side(entry, "height"), get_side(entry, "width")
            if str(image_id) in ids:
                raise ValueError("another image has the same id")
        ids.add(str(image_id))
        annotations = remaining.pop(image_id, [])
        objects = (_read_object(annotation, document, builder) for annotation in annotations)
        yield builder.build_detection(
            images,
            [name],
            size,
            list(filter(None, objects)),
            f"{path}: {name}",
            source_id=str(image_id),
            point_count=len(document.point_names),
            point_names=document.point_names,
        )
    for image_id, annotations in remaining.items():
        for annotation in annotations:
            problems.annotated += 1
            location = format_location(path, annotation.get("id"))
            problems.add(_UNKNOWN_IMAGE, f"{location}: {to_short_json(image_id)}")


def _read_object(
    entry: Mapping[str, Any], document: CocoDocument, builder: DatasetBuilder
) -> AnnotatedObject | None:
    """Read an annotation; return None if it has no box."""
    location, problems = format_location(document.file, entry.get("id")), builder.problems
    if not entry.get("bbox"):
        problems.annotated += 1
        problems.add("annotations without bbox, left out", location)
        return None
    with convert_entry_errors(location):
        x, y, width, height = parse_box(entry["bbox"])
        area = width * height
        if entry.get("area") is None:
            problems.add("annotations without area, computed from their box", location)
        else:
            area = parse_real_number(entry["area"], "area")
        is_crowd = int(parse_real_number(entry.get("iscrowd") or 0, "iscrowd"))
        values = {"is_crowd": is_crowd, "area": area}
        attributes = entry.get("attributes") or {}  # written by CVAT and others
        if not isinstance(attributes, dict):
            raise ValueError(f"attributes are {to_short_json(attributes)}, expected an object")
        box = x, y, x + width, y + height
        details = read_rotation(box, attributes.get("rotation"), location, problems)
        if details:
            attributes = {key: value for key, value in attributes.items() if key != "rotation"}
        for name, value in values.items():
            if attributes.get(name) not in (None, value):
                problems.add(f"attributes named {name}, replaced by COCO's own value", location)
        outline = entry.get("segmentation")
        if outline and not builder.options.masks:
            problems.add("outlines, left out because --masks is not set", location)
        category = document.categories[get_whole_number(entry, "category_id")]
        points = None
        if entry.get("keypoints"):
            points = np.zeros((len(document.point_names), 3))
            rows = [point.id for point in category.keypoints]
            points[rows] = parse_keypoints(entry["keypoints"], len(rows))
    values = {**attributes, **values}
    return AnnotatedObject(category.class_name, box, location, values, points, outline, details)


# Writing

_AREA_DECIMALS = 2  # for areas computed from boxes
_MAX_DIGITS = 16  # many readers of JSON parse numbers as doubles
_NEW_IDS = "source ids that are not a unique number, replaced by a new id"


class _JsonFile:
    """A JSON of images and annotations; the latter are in a temporary file until the end."""

    def __init__(self, file: IO[bytes], annotations: IO[bytes]) -> None:
        self._file, self._annotations = file, annotations
        self._file.write(b'{"images":[')
        self._non_empty: set[IO[bytes]] = set()

    def add(self, images: bytes, annotations: bytes) -> None:
        """Add entries, each of which ends with a comma and a line end."""
        for file, entries in ((self._file, images), (self._annotations, annotations)):
            if entries:
                file.write(b",\n" if file in self._non_empty else b"\n")
                file.write(entries[:-2])
                self._non_empty.add(file)

    def finish(self, categories: Sequence[Mapping[str, Any]]) -> None:
        """Append annotations and categories, and close the file."""
        self._file.write(b'],\n"annotations":[')
        self._annotations.seek(0)
        shutil.copyfileobj(self._annotations, self._file, 1 << 20)
        self._file.write(b'],\n"categories":' + json.dumps(categories).encode() + b"}\n")
        self._annotations.close()
        os.unlink(self._annotations.name)
        self._file.close()


class Writer(FormatWriter):
    """Writes JSONs of instances. Image ids are the source ids if these are unique numbers."""

    SUPPORTED = frozenset(("masks", "keypoints", ATTRIBUTES, SOURCE_ID))

    def __init__(self, folder: str, image_folder: str | None, options: Options) -> None:
        super().__init__(folder, image_folder, options)
        self._json_files: dict[str, _JsonFile] = {}
        self._object_count = 0
        self._point_names: dict[int, Sequence[str]] = {}  # by class id
        self._used_ids: dict[str, set[int]] = {}  # ids of images by subset
        self._next_ids: dict[str, int] = {}

    def begin(self, subset: str) -> None:
        path = os.path.join(self.folder, self._get_json_name(subset))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._json_files[subset] = _JsonFile(self._open(path), self._open(f"{path}.annotations"))
        self.documents.append(path)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._write_images(images, self._get_image_folder(images.subset))
        ids = np.array(self._make_image_ids(images), np.int64)
        height, width = (format_numbers(side) for side in images.sizes.T)
        heads = format_rows(
            *(b'{"id":', format_numbers(ids), b',"width":', width, b',"height":', height),
            b',"file_name":\n',
        )
        json_names = json.dumps(names, separators=("\n", ":"))[1:-1].encode()
        pairs = zip(heads.splitlines(), json_names.splitlines(), strict=True)
        entries = b"".join(b"%b%b},\n" % pair for pair in pairs)
        annotations = self._format_annotations(images, ids, label_map)
        self._json_files[images.subset].add(entries, annotations)

    def finish(self, label_map: LabelMap) -> None:
        categories = list(map(self._make_category, label_map.items))
        for json_file in self._json_files.values():
            json_file.finish(categories)

    # Methods that the writer of another layout overrides

    def _get_json_name(self, subset: str) -> str:
        return os.path.join("annotations", f"instances_{to_stem(subset)}.json")

    def _get_image_folder(self, subset: str) -> str:
        return subset

    def _make_category(self, item: LabelMapItem) -> dict[str, Any]:
        names = [point.label for point in item.keypoints] or self._point_names.get(item.id, ())
        points = {"keypoints": list(names)} if names else {}
        return {"id": item.id, "name": item.class_name, **points}

    # Parts of the JSON

    def _make_image_ids(self, images: Images) -> list[int]:
        """Return the source id of each image if it is a unique number, else a free number."""
        texts = [text or "" for text in images.source_ids]
        ids = [int(text) if text.isdecimal() and len(text) < _MAX_DIGITS else -1 for text in texts]
        distinct, used = set(ids), self._used_ids.setdefault(images.subset, set())
        if len(distinct) < len(ids) or -1 in distinct or not used.isdisjoint(distinct):
            free = self._next_ids.get(images.subset, 1)
            for row, number in enumerate(ids):
                if number < 0 or number in used:
                    self.losses[_NEW_IDS][""] += texts[row] not in ("", images.filenames[row])
                    while free in used:
                        free += 1
                    ids[row] = free
                used.add(ids[row])
            self._next_ids[images.subset] = free
        used.update(ids)
        return ids

    def _format_annotations(self, images: Images, ids: np.ndarray, label_map: LabelMap) -> bytes:
        """Format the entries of all objects, each of which ends with a comma and a line end."""
        counts = np.diff(images.splits)
        first = self._object_count + 1
        self._object_count += len(images.boxes)
        left, top, right, bottom = images.to_pixels().T
        width, height = right - left, bottom - top
        areas = (width * height).round(_AREA_DECIMALS)
        crowds, endings = np.zeros(len(left), np.int64), list[bytes]()
        if not images.is_plain:
            endings = [
                ending
                for row in range(len(ids))
                for ending in self._format_endings(images, row, areas, crowds, label_map)
            ]
        x, y, w, h = (format_numbers(side, DECIMALS) for side in (left, top, width, height))
        area = format_numbers(areas, DECIMALS if endings else _AREA_DECIMALS)
        ending = b"\n" if endings else b',"segmentation":[]},\n'
        lines = format_rows(
            *(b'{"id":', format_numbers(np.arange(first, first + len(left)))),
            *(b',"image_id":', format_numbers(np.repeat(ids, counts))),
            *(b',"category_id":', format_numbers(np.array(images.classes, np.int64))),
            *(b',"bbox":[', x, b",", y, b",", w, b",", h, b'],"area":', area),
            *(b',"iscrowd":', format_numbers(crowds), ending),
        )
        if not endings:
            return lines
        pairs = zip(lines.splitlines(), endings, strict=True)
        return b"".join(b"%b%b},\n" % pair for pair in pairs)

    def _format_endings(
        self, images: Images, row: int, areas: np.ndarray, crowds: np.ndarray, label_map: LabelMap
    ) -> Iterator[bytes]:
        """Yield the remaining values of each object of a row, and set its area and crowd flag."""
        detection, size = images.detections[row], tuple(images.sizes[row].tolist())
        start = images.splits[row]
        for number, mask in enumerate(get_masks(detection)):
            values = {name: column[number] for name, column in detection.attributes.items()}
            area, is_crowd = values.pop("area", None), values.pop("is_crowd", None)
            if isinstance(area, (int, float)) and math.isfinite(area):
                areas[start + number] = area
            crowds[start + number] = int(bool(is_crowd))
            entry: dict[str, Any] = {"segmentation": []}
            if mask is not None:
                pixels = self._fit_mask(mask, detection, size)
                if pixels is not None:
                    counts = run_lengths(pixels.T.ravel())
                    entry["segmentation"] = {"counts": counts, "size": size}
            if detection.keypoints is not None:
                label = images.classes[start + number]
                entry |= self._format_keypoints(detection.keypoints, number, size, label, label_map)
            attributes = {name: value for name, value in values.items() if value is not None}
            if attributes:
                entry["attributes"] = attributes
            texts = (f",{json.dumps(name)}:{json.dumps(value)}" for name, value in entry.items())
            yield "".join(texts).encode()

    def _format_keypoints(
        self, points: Keypoints, number: int, size: tuple[int, int], label: int, classes: LabelMap
    ) -> dict[str, Any]:
        """Return the keypoints of an object, limited to its class if the label map defines them."""
        count = points.xy.shape[1]
        item = classes.find_id(label)
        rows = [point.id for point in item.keypoints] if item else []
        if not rows or max(rows) >= count:
            has_points = any(item.keypoints for item in classes.items)
            if has_points and not points.visibility[number].any():
                return {}  # the class has no keypoints
            rows = list(range(count))
            self._point_names.setdefault(label, points.names or [str(row + 1) for row in rows])
        visibility = points.visibility[number, rows]
        pixels = multiply_as_typed(points.xy[number, rows], np.array(size[::-1]))
        xy = np.where(visibility[:, None] > 0, pixels, 0).round(DECIMALS).tolist()
        points_and_flags = zip(xy, visibility.tolist(), strict=True)
        values = [value for point, flag in points_and_flags for value in (*point, flag)]
        return {"keypoints": values, "num_keypoints": int((visibility > 0).sum())}
