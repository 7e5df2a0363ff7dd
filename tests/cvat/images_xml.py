"""Shapes of "CVAT for images 1.1", for both doubles of a server.

Facts: ``dump_as_cvat_annotation`` in ``dataset_manager/formats/cvat.py`` of 2.15 and 2.73.
Coordinates have two digits, an ellipse has its centre and half axes, a mask has integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree


def add_shape(
    image: ElementTree.Element,
    kind: str,
    points: Sequence[float],
    label: str,
    attributes: Iterable[tuple[str, str]],
    *,
    occluded: bool = False,
    rotation: float = 0.0,
    z_order: int = 0,
    group: int = 0,
) -> None:
    """Add a shape with the type and points of CVAT."""
    named: dict[str, Any] = {"label": label, "source": "manual", "occluded": int(occluded)}
    numbers: dict[str, float] = {"rotation": rotation} if rotation else {}
    if kind == "mask":
        left, top, right, bottom = (int(value) for value in points[-4:])
        named["rle"] = ", ".join(str(int(value)) for value in points[:-4])
        named |= {"left": left, "top": top, "width": right - left + 1, "height": bottom - top + 1}
    elif kind == "rectangle":
        numbers |= dict(zip(("xtl", "ytl", "xbr", "ybr"), points, strict=True))
    elif kind == "ellipse":
        x, y, right, top = points
        numbers |= {"cx": x, "cy": y, "rx": right - x, "ry": y - top}
    else:
        pairs = zip(points[::2], points[1::2], strict=True)
        named["points"] = ";".join(f"{x:.2f},{y:.2f}" for x, y in pairs)
    named |= {name: f"{value:.2f}" for name, value in numbers.items()}
    named |= {"z_order": z_order, **({"group_id": group} if group else {})}
    add(image, "box" if kind == "rectangle" else kind, named, attributes)


def add(
    image: ElementTree.Element,
    tag: str,
    named: Mapping[str, Any],
    attributes: Iterable[tuple[str, str]],
) -> None:
    """Add an element with its attributes."""
    element = ElementTree.SubElement(image, tag, {key: str(text) for key, text in named.items()})
    for name, value in attributes:
        ElementTree.SubElement(element, "attribute", {"name": name}).text = value


def add_labels(task: ElementTree.Element, labels: Iterable[Mapping[str, Any]]) -> None:
    """Add the labels of a task or a project, each with its attributes."""
    parent = ElementTree.SubElement(task, "labels")
    for one in labels:
        label = ElementTree.SubElement(parent, "label")
        _add_texts(label, {"parent": one.get("parent_id"), **one}, ("name", "parent"))
        attributes = ElementTree.SubElement(label, "attributes")
        for spec in one["attributes"]:
            attribute = ElementTree.SubElement(attributes, "attribute")
            _add_texts(attribute, spec, ("name", "input_type"))


def _add_texts(
    parent: ElementTree.Element, values: Mapping[str, Any], names: Iterable[str]
) -> None:
    for name in names:
        if values.get(name) is not None:
            ElementTree.SubElement(parent, name).text = str(values[name])
