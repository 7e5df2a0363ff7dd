"""Annotations from XML: Pascal VOC, one file a picture, and CVAT's own."""

from __future__ import annotations

import math
import os
import posixpath
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from tfod.errors import TfodError
from tfod.naming import safe_relative_path

from tfod_validator.annotations import Annotations, SourcePicture, not_compared
from tfod_validator.cvat_shapes import CvatShape
from tfod_validator.cvat_xml import CvatMeta, CvatTrack, read_cvat_xml
from tfod_validator.safe_xml import parse

_VOC_FOLDER = "Annotations"
_SIDES = ("xmin", "ymin", "xmax", "ymax")


def load_voc(source: str, files: Sequence[str]) -> Annotations:
    """Load Pascal VOC.

    A picture is called as its ``<filename>`` says, behind the XML's folder within the source.

    Args:
        source: what was asked for: the folder, or the only file.
        files: the XML files in it.

    Raises:
        TfodError: a file cannot be read or is ill-formed, or none is Pascal VOC.
    """
    pictures = []
    counts = {"XML files that are no Pascal VOC": 0, "objects without <bndbox>": 0}
    for file in files:
        root = parse(file)
        if root.tag != "annotation":
            counts["XML files that are no Pascal VOC"] += 1
            continue
        pictures.append(_voc_picture(root, file, source))
        counts["objects without <bndbox>"] += sum(
            one.find("bndbox") is None for one in root.iterfind("object")
        )
    if not pictures:
        raise TfodError(f"{source} holds no Pascal VOC annotations; give their folder")
    return Annotations(source, tuple(pictures), from_one=True, notes=not_compared(source, counts))


def _voc_picture(root: Any, file: str, source: str) -> SourcePicture:
    boxes, classes = [], []
    for one in root.iterfind("object"):
        corners = one.find("bndbox")
        if corners is not None:
            boxes.append([_voc_number(corners, side, file) for side in _SIDES])
            classes.append((one.findtext("name") or "").strip())
    size = root.find("size")
    height, width = (
        (None, None)
        if size is None
        else (_voc_size(size, "height", file), _voc_size(size, "width", file))
    )
    stem = os.path.splitext(os.path.basename(file))[0]
    name = safe_relative_path((root.findtext("filename") or "").strip()) or stem
    folder = "" if file == source else os.path.relpath(os.path.dirname(file), source)
    parts = [part for part in folder.split(os.sep) if part not in ("", ".", _VOC_FOLDER)]
    return SourcePicture.make(posixpath.join(*parts, name), (height, width), boxes, classes)


def _voc_size(size: Any, tag: str, file: str) -> int | None:
    return int(_voc_number(size, tag, file)) if (size.findtext(tag) or "").strip() else None


def _voc_number(element: Any, tag: str, file: str) -> float:
    found = element.find(tag)
    text = "" if found is None else (found.text or "").strip()
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        line = (element if found is None else found).sourceline
        raise TfodError(
            f"{file}, line {line}: <{tag}> has {text[:40]!r} where a number is expected; correct it"
        )
    return value


def load_cvat(path: str) -> Annotations:
    """Load CVAT for images 1.1 or CVAT for video 1.1, or a zip that holds it.

    Raises:
        TfodError: it cannot be read, is something else, or names no pictures.
    """
    meta: CvatMeta | None = None
    pictures: list[SourcePicture] = []
    tracked: dict[int, list[CvatShape]] = defaultdict(list)
    others = 0
    for part in read_cvat_xml(path):
        if isinstance(part, CvatMeta):
            meta = part
            continue
        others += part.other_shapes
        if isinstance(part, CvatTrack):
            for number, box in part.boxes:
                tracked[number].append(box)
        else:
            pictures.append(_cvat_picture(part.name, (part.height, part.width), part.boxes))
    if not pictures and meta is not None and meta.video:
        size = (meta.height, meta.width)
        pictures = [
            _cvat_picture(meta.frame_name(number), size, tracked[number]) for number in meta.numbers
        ]
    if not pictures:
        raise TfodError(f"{path} names no pictures; export the task as CVAT for images 1.1")
    notes = not_compared(path, {"shapes other than boxes": others})
    return Annotations(path, tuple(pictures), notes=notes)


def _cvat_picture(
    name: str, size: tuple[int | None, int | None], boxes: Sequence[CvatShape]
) -> SourcePicture:
    corners = [box.corners for box in boxes]
    return SourcePicture.make(name, size, corners, (box.label for box in boxes))
