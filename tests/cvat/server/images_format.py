"""The answer of the server to a request for "CVAT for images 1.1".

Fact: ``dump_media_files`` in ``dataset_manager/formats/cvat.py`` of 2.15 and 2.73: the image of a
video frame is ``images/frame_000000.PNG``.
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
from tests.image_kinds import file_of


def cvat_for_images(task: Task, path: Path, save_images: bool = False) -> None:
    """Write the export of a task."""
    data = TaskData(task.annotations, task)
    root = ElementTree.Element("annotations")
    ElementTree.SubElement(root, "version").text = "1.1"
    meta = ElementTree.SubElement(ElementTree.SubElement(root, "meta"), "task")
    about = dict(data.meta["task"])
    labels = [label for _, label in about.pop("labels")]
    for name, value in about.items():
        ElementTree.SubElement(meta, name).text = value
    add_labels(meta, ({**one, "attributes": [a for _, a in one["attributes"]]} for one in labels))
    with zipfile.ZipFile(path, "w") as archive:
        for frame in data.group_by_frame(include_empty=True):
            _add_image(root, frame)
            if save_images:
                image = task.frames[frame.idx].read()
                if task.is_video:
                    image = file_of(Image.open(io.BytesIO(image)).convert("RGB"))
                archive.writestr(f"images/{frame.name}{'.PNG' * task.is_video}", image)
        archive.writestr("annotations.xml", ElementTree.tostring(root, encoding="utf-8"))


def _add_image(root: ElementTree.Element, frame: Any) -> None:
    named = {"id": frame.frame, "name": frame.name, "width": frame.width, "height": frame.height}
    image = ElementTree.SubElement(root, "image", {key: str(text) for key, text in named.items()})
    for one in frame.labeled_shapes:
        marks = {name: getattr(one, name) for name in ("occluded", "rotation", "z_order", "group")}
        add_shape(image, str(one.type), list(one.points), one.label, one.attributes, **marks)
    for tag in frame.tags:
        add(image, "tag", {"label": tag.label, "source": tag.source}, tag.attributes)
