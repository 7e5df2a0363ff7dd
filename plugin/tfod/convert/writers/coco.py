"""COCO's JSON, as it streams past: ``annotations/instances_<subset>.json``, images beside it.

Source: cocodataset.org/#format-data; the folders are those that Datumaro and FiftyOne look for.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np

from tfod.convert.dataset import Images
from tfod.convert.numbers import digits, lines_of
from tfod.convert.writers.writer import Writer, masks_of, pixels_of
from tfod.detection.detection import Keypoints
from tfod.detection.images.masks import run_lengths
from tfod.detection.labels.label_map import LabelMap
from tfod.tfrecord.shard_sets.names import stem_of_subset

_DECIMALS = 6
_DECIMALS_OF_AREA = 2  # of a box, where the record has no other


class _Document:
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

    def __init__(self, folder: str, image_folder: str | None, target: str) -> None:
        super().__init__(folder, image_folder, target)
        self._open: dict[str, _Document] = {}
        self._objects = 0
        self._points: dict[int, Sequence[str]] = {}  # names of the keypoints of classes

    def begin(self, subset: str) -> None:
        self._subset = subset
        self._free, self._taken = 1, set[int]()
        file = f"instances_{stem_of_subset(subset)}.json"
        self._open[subset] = _Document(os.path.join(self.folder, "annotations", file))
        self.documents.append(self._open[subset].path)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._image_names(images, self._subset)
        self._write_images(images, names, self._subset)
        self._count_losses(images)
        ids = np.array(self._image_numbers(images), np.int64)
        height, width = (digits(side) for side in images.sizes.T)
        heads = lines_of(
            *(b'{"id":', digits(ids), b',"width":', width, b',"height":', height),
            b',"file_name":\n',
        )
        texts = json.dumps(names, separators=("\n", ":"))[1:-1].encode()
        pairs = zip(heads.splitlines(), texts.splitlines(), strict=True)
        entries = [b"%b%b},\n" % pair for pair in pairs]
        self._open[self._subset].add(b"".join(entries), self._annotations(images, ids, label_map))

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
                pixels = pixels_of(mask, one, size)
                found["segmentation"] = {"counts": run_lengths(pixels.T.ravel()), "size": size}
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
