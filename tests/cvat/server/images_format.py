"""What the server sends for "CVAT for images 1.1", which the bridge asks for.

Fact: ``dump_media_files`` in ``dataset_manager/formats/cvat.py`` of 2.15 and 2.73: a video frame's
image is ``images/frame_000000.PNG``.
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

from tests.cvat.images_xml import add, add_labels, add_shape


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
    labels = (one for _, one in about["labels"])
    add_labels(
        task, ({**one, "attributes": [two for _, two in one["attributes"]]} for one in labels)
    )


def _add_image(root: ElementTree.Element, frame: Any) -> None:
    named = {"id": frame.frame, "name": frame.name, "width": frame.width, "height": frame.height}
    image = ElementTree.SubElement(root, "image", {key: str(one) for key, one in named.items()})
    for one in frame.labeled_shapes:
        marks = {"occluded": one.occluded, "rotation": one.rotation, "z_order": one.z_order}
        kind, points = str(one.type), list(one.points)
        add_shape(image, kind, points, one.label, one.attributes, group=one.group, **marks)
    for tag in frame.tags:
        add(image, "tag", {"label": tag.label, "source": tag.source}, tag.attributes)
