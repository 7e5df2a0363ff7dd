"""Annotations that a shard was made from, and how Pascal VOC, CVAT's XML and COCO become that.

Boxes are in pixels, ``xmin, ymin, xmax, ymax``, as the source has them.
"""

from __future__ import annotations

import functools
import os
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfod.convert.coco import CocoFile, numbers, quoted, read_coco, real_number, scalar, sound_coco
from tfod.convert.cvat_xml.reader import CvatMeta, CvatTrack, read_cvat_xml, require_fewer
from tfod.convert.cvat_xml.shapes import CvatShape
from tfod.convert.documents import is_zip, read_head, root_tag
from tfod.convert.pascal import VOC_ANNOTATIONS, VocImage, read_voc
from tfod.errors import TfodError
from tfod.tfrecord.image_names import ImageNames

_LEADING_SPACE = 1024
_MOST_BOXES = 5_000_000


@dataclass(frozen=True)
class SourceImage:
    """One image of the source.

    Attributes:
        name: as the source has it, a path with forward slashes.
        height, width: in pixels; None where the source does not say.
        boxes: float64 of shape (n, 4), in pixels.
        classes: n names.
    """

    name: str
    height: int | None
    width: int | None
    boxes: np.ndarray
    classes: tuple[str, ...]

    @classmethod
    def make(
        cls,
        name: str,
        size: tuple[int | None, int | None],
        boxes: Sequence[Sequence[float]],
        classes: Iterable[str],
    ) -> SourceImage:
        """Make one from plain values; the size is height and width, 0 or less is unknown."""
        corners = np.array(boxes, "<f8").reshape(-1, 4)
        path = name.replace("\\", "/").removeprefix("./")
        height, width = (int(one) if one and one > 0 else None for one in size)
        return cls(path, height, width, corners, tuple(classes))


@dataclass(frozen=True)
class Annotations:
    """All of a source.

    Attributes:
        source: path of the file or folder.
        images: in the order of the source.
        from_one: pixels are counted from 1, as in Pascal VOC; some writers subtract that and
            some do not.
        notes: what is not compared, as sentences.
    """

    source: str
    images: tuple[SourceImage, ...]
    from_one: bool = False
    notes: tuple[str, ...] = ()

    def find(self, filename: str) -> tuple[int, ...]:
        """Places in ``images`` of those that a record's file name can mean: see ImageNames."""
        return self._names.find(filename)

    @functools.cached_property
    def _names(self) -> ImageNames:
        return ImageNames([one.name for one in self.images])


def load_annotations(path: str) -> Annotations:
    """Load annotations; what they are follows from their content.

    Args:
        path: a folder of Pascal VOC XML (subfolders count), one such file, CVAT's XML or its zip,
            or a COCO JSON of instances.

    Raises:
        TfodError: it cannot be read, or is something else.
    """
    if Path(path).is_dir():
        return _load_folder(path)
    if is_zip(path):
        return _load_cvat(path)
    start = read_head(path, _LEADING_SPACE).removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] in (b"{", b"["):
        return _load_coco(path)
    # Beside "<": the marks that UTF-16 starts with.
    if start[:1] == b"<" or start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        if root_tag(path) == "annotation":
            return _load_voc(path, [path])
        return _load_cvat(path)
    raise TfodError(
        f"{path} is neither XML nor JSON; give a folder of Pascal VOC XML, CVAT's "
        "annotations.xml, or a COCO JSON"
    )


def _load_folder(folder: str) -> Annotations:
    files = sorted(
        os.path.join(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith((".xml", ".json")) and not name.startswith(".")
    )
    xml = [file for file in files if file.lower().endswith(".xml")]
    if len(xml) == 1 and root_tag(xml[0]) == "annotations":
        return _load_cvat(xml[0])
    if xml:
        return _load_voc(folder, xml)
    if len(files) == 1:
        return _load_coco(files[0])
    found = f"{len(files)} JSON files; name one" if files else "no XML and no JSON file"
    raise TfodError(f"{folder} holds {found}; give a folder of Pascal VOC XML or one file")


def _load_coco(path: str) -> Annotations:
    found = read_coco(path, ("category_id", "bbox"))
    with sound_coco(path):
        names = {scalar(one, "id"): str(one.get("name", one["id"])) for one in found.categories}
        listed = {scalar(one, "id") for one in found.images}
    return _from_coco(found, names, listed)


def _from_coco(found: CocoFile, names: dict[Any, str], listed: set[Any]) -> Annotations:
    without_box = homeless = 0
    boxes: dict[Any, list[list[float]]] = {key: [] for key in listed}
    classes: dict[Any, list[str]] = {key: [] for key in listed}
    for image, members in found.annotations.items():
        boxed = [one for one in members if one.get("bbox")]
        without_box += len(members) - len(boxed)
        if image not in listed:
            homeless += len(boxed)
            continue
        with sound_coco(f"{found.path}, image {quoted(image)}"):
            boxes[image] = [_corners(one["bbox"]) for one in boxed]
            ids = [scalar(one, "category_id") for one in boxed]
        classes[image] = [names.get(one, str(one)) for one in ids]
    images = []
    for one in found.images:
        key = one["id"]
        with sound_coco(f"{found.path}, image {quoted(key)}"):
            sides = [real_number(one.get(side) or 0, side) for side in ("height", "width")]
            size = int(sides[0]), int(sides[1])
            name = str(scalar(one, "file_name"))
        images.append(SourceImage.make(name, size, boxes[key], classes[key]))
    counts = {
        "annotations without bbox": without_box,
        "annotations of images that are not listed": homeless,
    }
    return Annotations(found.path, tuple(images), notes=_not_compared(found.path, counts))


def _corners(bbox: Any) -> list[float]:
    x, y, width, height = numbers(bbox, 4, "bbox")
    corners = [x, y, x + width, y + height]
    if not np.isfinite(corners).all():
        raise ValueError(f"bbox {bbox} is not finite")
    return corners


def _not_compared(source: str, counts: dict[str, int]) -> tuple[str, ...]:
    return tuple(
        f"{source}: {count} {what} are not compared" for what, count in counts.items() if count
    )


def _load_voc(source: str, files: Sequence[str]) -> Annotations:
    """Load Pascal VOC.

    An image is called as its ``<filename>`` says, behind the XML's folder within the source (a
    folder, or the only file) unless it begins so already, as by Datumaro and CVAT.

    Raises:
        TfodError: a file cannot be read or is ill-formed, or none is Pascal VOC.
    """
    images = []
    boxless = 0
    for found in filter(None, map(read_voc, files)):
        images.append(_voc_image(found, source))
        boxless += sum(one.box is None for one in found.objects)
    if not images:
        raise TfodError(f"{source} holds no Pascal VOC annotations; give their folder")
    others = len(files) - len(images)
    counts = {"XML files that are not Pascal VOC": others, "objects without <bndbox>": boxless}
    return Annotations(source, tuple(images), from_one=True, notes=_not_compared(source, counts))


def _voc_image(found: VocImage, source: str) -> SourceImage:
    file = found.file
    name = found.filename or os.path.splitext(os.path.basename(file))[0]
    folder = "" if file == source else os.path.relpath(os.path.dirname(file), source)
    parts = [part for part in folder.split(os.sep) if part not in ("", ".", VOC_ANNOTATIONS)]
    above = posixpath.join(*parts, "")
    boxed = [one for one in found.objects if one.box is not None]
    return SourceImage.make(
        name if name.startswith(above) else above + name,
        (found.height, found.width),
        [one.box for one in boxed if one.box],
        (one.name for one in boxed),
    )


def _load_cvat(path: str) -> Annotations:
    """Load CVAT for images 1.1 or CVAT for video 1.1, or a zip that holds it.

    Raises:
        TfodError: it cannot be read, is something else, or names no images.
    """
    meta: CvatMeta | None = None
    images: list[SourceImage] = []
    tracked: dict[int, list[CvatShape]] = defaultdict(list)
    others = boxes = 0
    for part in read_cvat_xml(path):
        if isinstance(part, CvatMeta):
            meta = part
            continue
        others += part.other_shapes
        boxes += len(part.boxes)
        require_fewer(boxes, _MOST_BOXES, "boxes", path)
        if isinstance(part, CvatTrack):
            for number, box in part.boxes:
                tracked[number].append(box)
        else:
            images.append(_cvat_image(part.name, (part.height, part.width), part.boxes))
    if not images and meta is not None and meta.video:
        size = (meta.height, meta.width)
        images = [
            _cvat_image(meta.frame_name(number), size, tracked[number]) for number in meta.numbers
        ]
    if not images:
        raise TfodError(f"{path} names no images; export the task as CVAT for images 1.1")
    notes = _not_compared(path, {"shapes other than boxes": others})
    return Annotations(path, tuple(images), notes=notes)


def _cvat_image(
    name: str, size: tuple[int | None, int | None], boxes: Sequence[CvatShape]
) -> SourceImage:
    corners = [box.corners for box in boxes]
    return SourceImage.make(name, size, corners, (box.label for box in boxes))
