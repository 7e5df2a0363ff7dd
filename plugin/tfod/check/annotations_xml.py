"""Annotations from XML: Pascal VOC, one file an image, and CVAT's own."""

from __future__ import annotations

import os
import posixpath
from collections import defaultdict
from collections.abc import Sequence

from tfod.check.annotations import Annotations, SourceImage, not_compared
from tfod.check.cvat_shapes import CvatShape
from tfod.check.cvat_xml import CvatMeta, CvatTrack, read_cvat_xml, require_fewer
from tfod.convert.voc import VOC_ANNOTATIONS, VocImage, read_voc
from tfod.errors import TfodError

_MOST_BOXES = 5_000_000


def load_voc(source: str, files: Sequence[str]) -> Annotations:
    """Load Pascal VOC.

    An image is called as its ``<filename>`` says, behind the XML's folder within the source
    unless it begins so already, as by Datumaro and CVAT.

    Args:
        source: what was asked for: the folder, or the only file.
        files: the XML files in it.

    Raises:
        TfodError: a file cannot be read or is ill-formed, or none is Pascal VOC.
    """
    images = []
    counts = {"XML files that are no Pascal VOC": 0, "objects without <bndbox>": 0}
    for file in files:
        found = read_voc(file)
        if found is None:
            counts["XML files that are no Pascal VOC"] += 1
            continue
        images.append(_voc_image(found, source))
        counts["objects without <bndbox>"] += sum(one.box is None for one in found.objects)
    if not images:
        raise TfodError(f"{source} holds no Pascal VOC annotations; give their folder")
    return Annotations(source, tuple(images), from_one=True, notes=not_compared(source, counts))


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


def load_cvat(path: str) -> Annotations:
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
    notes = not_compared(path, {"shapes other than boxes": others})
    return Annotations(path, tuple(images), notes=notes)


def _cvat_image(
    name: str, size: tuple[int | None, int | None], boxes: Sequence[CvatShape]
) -> SourceImage:
    corners = [box.corners for box in boxes]
    return SourceImage.make(name, size, corners, (box.label for box in boxes))
