"""What the server sends for "CVAT for images 1.1", which the bridge asks for.

Facts: ``dump_as_cvat_annotation`` and ``dump_media_files`` in ``dataset_manager/formats/cvat.py``
of 2.15 and 2.73. Coordinates have two digits, an ellipse its centre and half axes, a mask integers;
a video frame's image is ``images/frame_000000.PNG``.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cvat.apps.dataset_manager.bindings import TaskData
from cvat.apps.engine.models import Task
from PIL import Image

_TAGS = {"rectangle": "box"}


def cvat_for_images(task: Task, path: Path, save_images: bool = False) -> None:
    """Write the export of a task."""
    data = TaskData(task.annotations, task)
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    _add_meta(ElementTree.SubElement(root, "meta"), data.meta["task"])
    with zipfile.ZipFile(path, "w") as archive:
        for frame in data.group_by_frame(include_empty=True):
            _add_image(root, frame)
            if save_images:
                name = frame.name + (".PNG" if task.is_video else "")
                archive.writestr(f"images/{name}", _media(task, frame.idx))
        archive.writestr("annotations.xml", ElementTree.tostring(root, encoding="utf-8"))


def _media(task: Task, place: int) -> bytes:
    data = task.frames[place].read()
    if not task.is_video:
        return data
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).convert("RGB").save(out, "PNG")
    return out.getvalue()


def _add_meta(meta: ElementTree.Element, about: dict[str, Any]) -> None:
    task = ElementTree.SubElement(meta, "task")
    for name, value in about.items():
        if name != "labels":
            ElementTree.SubElement(task, name).text = value
    labels = ElementTree.SubElement(task, "labels")
    for _, one in about["labels"]:
        label = ElementTree.SubElement(labels, "label")
        for name in ("name", "color", "type", "parent"):
            if name in one:
                ElementTree.SubElement(label, name).text = one[name]
        attributes = ElementTree.SubElement(label, "attributes")
        for _, spec in one["attributes"]:
            attribute = ElementTree.SubElement(attributes, "attribute")
            for name, value in spec.items():
                ElementTree.SubElement(attribute, name).text = value


def _add_image(root: ElementTree.Element, frame: Any) -> None:
    named = {"id": frame.frame, "name": frame.name, "width": frame.width, "height": frame.height}
    image = ElementTree.SubElement(root, "image", {key: str(one) for key, one in named.items()})
    for shape in frame.labeled_shapes:
        kind = str(shape.type)
        named = {"label": shape.label, "source": shape.source, "occluded": int(shape.occluded)}
        named |= _coordinates(kind, shape) | {"z_order": shape.z_order}
        if shape.group:
            named["group_id"] = shape.group
        _add(image, _TAGS.get(kind, kind), named, shape.attributes)
    for tag in frame.tags:
        _add(image, "tag", {"label": tag.label, "source": tag.source}, tag.attributes)


def _add(image: ElementTree.Element, name: str, named: dict[str, Any], attributes: Any) -> None:
    element = ElementTree.SubElement(image, name, {key: str(one) for key, one in named.items()})
    for one in attributes:
        ElementTree.SubElement(element, "attribute", {"name": one.name}).text = one.value


def _coordinates(kind: str, shape: Any) -> dict[str, str]:
    points = list(shape.points)
    if kind == "mask":
        left, top, right, bottom = (int(value) for value in points[-4:])
        runs = ", ".join(str(int(value)) for value in points[:-4])
        size = {"width": str(right - left + 1), "height": str(bottom - top + 1)}
        return {"rle": runs, "left": str(left), "top": str(top), **size}
    if kind == "rectangle":
        named = dict(zip(("xtl", "ytl", "xbr", "ybr"), points, strict=True))
    elif kind == "ellipse":
        x, y, right, top = points
        named = {"cx": x, "cy": y, "rx": right - x, "ry": y - top}
    else:
        pairs = zip(points[::2], points[1::2], strict=True)
        return {"points": ";".join(f"{x:.2f},{y:.2f}" for x, y in pairs)}
    if shape.rotation:
        named["rotation"] = shape.rotation
    return {key: f"{value:.2f}" for key, value in named.items()}
