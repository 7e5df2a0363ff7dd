"""CVAT's XML, "CVAT for images 1.1", for all subsets: ``annotations.xml``, images beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO

import numpy as np

from tfod.convert.cvat_xml.detections import GROUP, OCCLUDED
from tfod.convert.cvat_xml.document import DocumentWriter, image_text
from tfod.convert.cvat_xml.reader import CvatTag
from tfod.convert.cvat_xml.shapes import BOX, MASK, CvatShape, encode_runs
from tfod.convert.dataset import Images
from tfod.convert.documents import MEMBER
from tfod.convert.writers.writer import NO_PLACE, Writer, masks_of, pixels_of
from tfod.detection.boxes import PixelBox
from tfod.detection.detection import AttributeValue, Detection
from tfod.detection.labels.label_map import LabelMap

_DECIMALS = 6
_MOVED = 0.01  # pixels
_ENCLOSED = "boxes of masks, written as the box of their pixels"
_EMPTY = "masks without a pixel, written as boxes"
_KINDS = {bool: "checkbox", int: "number", float: "number", str: "text"}


class CvatXmlWriter(Writer):
    """The frames are numbered from 0; what they hold lies in a file of its own until the end."""

    CARRIES = frozenset(("masks", "image classes"))
    ALL_ATTRIBUTES = True

    def __init__(self, folder: str, image_folder: str | None, target: str) -> None:
        super().__init__(folder, image_folder, target)
        self._frames: IO[bytes] = open(os.path.join(folder, "frames"), "xb+")
        self._count = 0
        self._subsets: list[str] = []
        self._kinds: dict[str, dict[str, str]] = {}
        self.documents.append(os.path.join(folder, MEMBER))

    def begin(self, subset: str) -> None:
        self._subset = subset
        self._subsets.append(subset)

    def add(self, images: Images, label_map: LabelMap) -> None:
        names = self._image_names(images, self._subset)
        self._write_images(images, names, self._subset)
        self._count_losses(images)
        classes = {one.id: one.class_name for one in label_map.items}
        corners = images.in_pixels().tolist()
        for row, name in enumerate(names):
            places = range(*images.splits[row : row + 2])
            texts = [classes[images.classes[at]] for at in places]
            boxes: list[PixelBox] = [tuple(corners[at]) for at in places]
            height, width = images.sizes[row].tolist()
            shapes = [CvatShape(BOX, *pair) for pair in zip(texts, boxes, strict=True)]
            tags: list[CvatTag] = []
            if not images.is_plain:
                one = images.detections[row]
                shapes = self._shapes(one, shapes, (height, width))
                tags = self._tags(one, label_map)
            frame = {"id": self._count, "name": name, "subset": self._subset}
            text = image_text(frame, (height, width), shapes, tags, _DECIMALS)
            self._frames.write(text.encode("utf-8", "replace"))
            self._count += 1

    def finish(self, label_map: LabelMap) -> None:
        labels = {**{one.class_name: {} for one in label_map.items}, **self._kinds}
        with open(self.documents[0], "xb") as file:
            document = DocumentWriter(file, "tfod", labels, self._subsets)
            self._frames.seek(0)
            shutil.copyfileobj(self._frames, file, 1 << 20)
            document.finish()
        self._frames.close()
        os.unlink(self._frames.name)

    def _shapes(
        self, one: Detection, boxes: Sequence[CvatShape], size: tuple[int, int]
    ) -> list[CvatShape]:
        """The boxes with what the record says of them besides; masks in their place."""
        shapes = []
        for number, (box, mask) in enumerate(zip(boxes, masks_of(one), strict=True)):
            values = {name: column[number] for name, column in one.attributes.items()}
            shape = replace(box, occluded=bool(values.pop(OCCLUDED, 0)))
            if isinstance(group := values.get(GROUP), int):
                shape = replace(shape, group=group)
                del values[GROUP]
            runs = None if mask is None else encode_runs(pixels_of(mask, one, size))
            self.losses[_EMPTY][""] += mask is not None and runs is None
            if runs is not None:
                self.losses[_ENCLOSED][""] += not np.allclose(runs[1], box.extent, atol=_MOVED)
                shape = replace(shape, kind=MASK, runs=tuple(runs[0]), extent=runs[1])
            shapes.append(replace(shape, attributes=tuple(self._attributes(box.label, values))))
        return shapes

    def _attributes(
        self, label: str, values: Mapping[str, AttributeValue]
    ) -> Iterator[tuple[str, str]]:
        kinds = self._kinds.setdefault(label, {})
        for name, value in values.items():
            if value is None:
                continue
            kind = _KINDS.get(type(value))
            if kind is None:
                self.losses[NO_PLACE][name] += 1
                continue
            if kinds.setdefault(name, kind) != kind:
                kinds[name] = "text"
            yield name, str(value).lower() if kind == "checkbox" else str(value)

    def _tags(self, one: Detection, label_map: LabelMap) -> list[CvatTag]:
        tags = []
        for each in one.image_labels:
            item = label_map.find_id(each.label) if each.label is not None else None
            name = each.text or (item.class_name if item else "")
            if not name or each.confidence == 0:
                self.losses[NO_PLACE]["classes that are absent, or have no name"] += 1
                continue
            self._kinds.setdefault(name, {})
            tags.append(CvatTag(name))
        return tags
