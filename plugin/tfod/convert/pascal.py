"""Pascal VOC's XML: one file an image, as VOC's own tools, LabelImg and many others write it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tfod.convert.documents import parse, parse_number
from tfod.tfrecord.image_names import safe_relative_path

VOC_ANNOTATIONS = "Annotations"
"""The folder of the XML files in VOC's layout."""

_SIDES = ("xmin", "ymin", "xmax", "ymax")


@dataclass(frozen=True)
class VocObject:
    """One ``<object>``.

    Attributes:
        name: its class.
        line: of the file, where it is.
        box: xmin, ymin, xmax, ymax in pixels as the file has them (VOC counts from 1); None where
            it has no ``<bndbox>``.
        texts: what its other plain fields say, such as ``difficult`` and ``pose``.
        nested: names of its fields that are not plain, such as ``part``, ``attributes`` and another
            ``bndbox``.
    """

    name: str
    line: int
    box: tuple[float, float, float, float] | None
    texts: dict[str, str]
    nested: tuple[str, ...] = ()


@dataclass(frozen=True)
class VocImage:
    """One file.

    Attributes:
        file: its path.
        filename: of the image, as a safe relative path; '' where there is none.
        height, width: in pixels as the file has them; None where it has none, or 0.
        objects: in the file's order.
    """

    file: str
    filename: str
    height: int | None
    width: int | None
    objects: tuple[VocObject, ...]


def read_voc(file: str) -> VocImage | None:
    """Read one file; None where it is XML of another kind.

    Numbers of boxes that are not finite are taken, to be checked later.

    Raises:
        TfodError: it cannot be read, is not well-formed XML, or has no number where one must be.
    """
    root = parse(file)
    if root.tag != "annotation":
        return None
    size = root.find("size")
    height, width = (None if size is None else _size(size, tag, file) for tag in _SIZE)
    filename = safe_relative_path((root.findtext("filename") or "").strip())
    return VocImage(file, filename, height, width, tuple(_objects(root, file)))


_SIZE = ("height", "width")


def _objects(root: Any, file: str) -> Iterator[VocObject]:
    for one in root.iterfind("object"):
        corners = one.find("bndbox")
        box = None
        if corners is not None:
            xmin, ymin, xmax, ymax = (_number(corners, side, file, finite=False) for side in _SIDES)
            box = (xmin, ymin, xmax, ymax)
        texts = {child.tag: (child.text or "").strip() for child in one if not len(child)}
        nested = tuple(child.tag for child in one if len(child) and child is not corners)
        yield VocObject(texts.pop("name", ""), one.sourceline, box, texts, nested)


def _size(size: Any, tag: str, file: str) -> int | None:
    if not (size.findtext(tag) or "").strip():
        return None
    value = int(_number(size, tag, file))
    return value if value > 0 else None


def _number(element: Any, tag: str, file: str, *, finite: bool = True) -> float:
    found = element.find(tag)
    text = "" if found is None else (found.text or "").strip()
    line = (element if found is None else found).sourceline
    return parse_number(text, f"{file}, line {line}: <{tag}> has", finite)
