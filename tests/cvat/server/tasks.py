"""Tasks of the double, their export and import, and their annotations as plain values."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import tfod
from cvat.apps.dataset_manager import task as server
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.engine.models import (
    Annotations,
    AttributeSpec,
    AttributeType,
    Frame,
    Job,
    Label,
    Project,
    Task,
)

from tests.image_kinds import plain_image
from tests.records import encode, image, objects
from tests.records import frame as shard
from tests.zip_forge import real_zip

BOXES, MASKS = "TFRecord 1.0", "TFRecord Masks 1.0"
WIDTH, HEIGHT = 64, 48
FULL = (0.25, 0.25, 0.75, 0.5)
IN_PIXELS = (16.0, 12.0, 48.0, 24.0)
"""The box of each object of :func:`record`, normalized and in pixels."""
LABEL_MAP = b"item { id: 1 name: 'bird' }\nitem { id: 2 name: 'cat' }\n"


@lru_cache(maxsize=64)
def image_bytes(seed: str = "", kind: str = "JPEG", size: tuple[int, int] = (64, 48)) -> bytes:
    """Return an image file, which differs for each seed."""
    colour = tuple(sum(seed.encode()) * factor % 256 for factor in (1, 7, 31))
    return plain_image(size, colour, kind)


def frame(name: str, width: int = WIDTH, height: int = HEIGHT) -> Frame:
    kind = {".png": "PNG", ".webp": "WEBP"}.get(Path(name).suffix.lower(), "JPEG")
    return Frame(name, width, height, image_bytes(name, kind, (width, height)))


def labels(*names: str) -> list[Label]:
    """Return labels; each has a number, a checkbox and a text."""
    specs = [
        AttributeSpec("count", AttributeType.NUMBER, "1"),
        AttributeSpec("difficult", AttributeType.CHECKBOX, "false"),
        AttributeSpec("colour", AttributeType.TEXT, ""),
    ]
    return [Label(name, list(specs)) for name in names]


def shape(
    kind: str, number: int, label: str, points: Iterable[float], **more: Any
) -> dict[str, Any]:
    """Return a stored shape on the relative frame ``number``."""
    values = {
        **tag(number, label),
        "type": kind,
        "points": [float(value) for value in points],
        "occluded": False,
        "outside": False,
        "z_order": 0,
        "rotation": 0.0,
        "elements": [],
    }
    assert more.keys() <= values.keys()
    return {**values, **more}


def box(number: int, label: str, *points: float, **more: Any) -> dict[str, Any]:
    return shape("rectangle", number, label, points or (8, 6, 40, 30), **more)


def tag(number: int, label: str) -> dict[str, Any]:
    values = {"frame": number, "label": label, "group": 0, "source": "manual"}
    return {**values, "attributes": {}, "id": None}


def track(label: str, *shapes: dict[str, Any]) -> dict[str, Any]:
    values = {"label": label, "group": 0, "source": "manual", "attributes": {}}
    return {**values, "frame": min(one["frame"] for one in shapes), "shapes": list(shapes)}


def make_task(
    *shapes: dict[str, Any],
    frames: Sequence[str | Frame] = ("a.jpg", "b.jpg", "c.jpg"),
    classes: Sequence[str] = ("bird", "cat"),
    tracks: Sequence[dict[str, Any]] = (),
    tags: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> Task:
    images = [frame(one) if isinstance(one, str) else one for one in frames]
    annotations = Annotations(list(shapes), list(tracks), list(tags))
    return Task(images, labels(*classes), annotations, **more)


class Exported:
    """An exported zip, opened with our reader."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.files = {name: archive.read(name) for name in archive.namelist()}
        self.subsets = {
            name.removesuffix(".tfrecord").removesuffix("-00000-of-00001"): self._read(name)
            for name in self.files
            if name.endswith(".tfrecord")
        }
        self.label_map = tfod.parse_label_map(self.files["label_map.pbtxt"].decode())[0]

    def _read(self, name: str) -> list[tfod.Detection]:
        if not self.files[name]:
            return []
        folder = self.path.with_suffix(".unpacked")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(self.files[name])
        return list(tfod.read_detections(str(folder / name)))

    @property
    def notes(self) -> str:
        return self.files["EXPORT_NOTES.txt"].decode()

    @property
    def records(self) -> list[tfod.Detection]:
        """The records of the only subset."""
        (found,) = self.subsets.values()
        return found

    def names(self, subset: str | None = None) -> list[str | None]:
        return [one.filename for one in (self.subsets[subset] if subset else self.records)]

    def boxes(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the class and corners in pixels of all boxes by file name."""
        return {str(one.filename): pixel_boxes(one) for one in self.records}


def pixel_boxes(one: tfod.Detection) -> list[tuple[Any, ...]]:
    assert one.width and one.height
    corners = one.boxes * (one.width, one.height, one.width, one.height)
    rows = corners.round(2).tolist()
    return [(text, *row) for text, row in zip(one.class_text or (), rows, strict=True)]


def export(
    instance: Task | Job | Project, folder: Path, name: str = BOXES, save_images: bool = False
) -> Exported:
    path = folder / "export.zip"
    root = folder / "export-tmp"
    root.mkdir(exist_ok=True)
    server.export(instance, path, name, save_images, temp_root=str(root))
    assert list(root.iterdir()) == []
    return Exported(path)


def record(name: str, *classes: str, ids: list[int] | None = None, **more: Any) -> bytes:
    """Return a record of another writer, with a box for each class or id."""
    boxes = [FULL] * len(ids or classes)
    own = objects(boxes, list(classes) or None, ids) if boxes else {}
    return encode(image(name, HEIGHT, WIDTH) | own | more)


def upload(folder: Path, files: dict[str, bytes] | bytes) -> Path:
    """Write a zip of these files, or these bytes."""
    path = folder / "upload.zip"
    path.write_bytes(files if isinstance(files, bytes) else real_zip(files.items()))
    return path


def import_into(instance: Task | Job, path: Path, name: str = BOXES, **more: Any) -> list[Any]:
    """Import a zip, and return all annotations of the task."""
    if isinstance(instance, Job):
        server.import_job_annotations(path, instance, name, **more)
        return stored(instance.task)
    server.import_task_annotations(path, instance, name, **more)
    return stored(instance)


def put(folder: Path, instance: Task | Job, *records: bytes, **more: Any) -> list[Any]:
    """Import a zip with a shard of these records, and return all annotations of the task."""
    return import_into(instance, upload(folder, {"t.tfrecord": shard(*records)}), **more)


def stored(task: Task) -> list[tuple[Any, ...]]:
    """Return name of the frame, type, label, points, occluded and attributes of all shapes."""
    return sorted(
        (
            task.frames[one["frame"]].name,
            one["type"],
            one["label"],
            tuple(round(value, 2) for value in one["points"]),
            one["occluded"],
            tuple(sorted(one["attributes"].items())),
        )
        for one in task.annotations.shapes
    )


SHOWN = 160 - len("cvat.apps.dataset_manager.bindings.CvatImportError: ")
"""Characters of an error that CVAT 2.73 shows on the page "Requests", without the class."""


def refusal(
    instance: Task | Job, path: Path, name: str = BOXES, *, by_cvat: bool = False, **more: Any
) -> str:
    """Return the message of a failed import, which changes nothing."""
    task = instance.task if isinstance(instance, Job) else instance
    task.annotations = task.annotations if len(task.annotations) else Annotations([box(0, "bird")])
    before = repr(task.annotations)
    with pytest.raises(Exception) as caught:
        import_into(instance, path, name, **more)
    assert type(caught.value) is CvatImportError, repr(caught.value)
    assert repr(task.annotations) == before, "the old annotations are gone"
    text = str(caught.value)
    assert "\n" not in text and "Traceback" not in text
    if not by_cvat:
        require_readable(text, path)
    return text


def require_readable(text: str, path: Path) -> None:
    """Check a message: it is one line without paths of the server, and the page shows the cause."""
    assert text.strip() == text and "\n" not in text
    assert str(path.parent) not in text, "a path of the server is shown"
    assert "annotation has no label" not in text  # CVAT's own message
    assert 0 < text.find(" Nothing was changed.") <= SHOWN - len(" Nothing was changed."), text
    sentences = text.rstrip(".").split(". ")
    assert len(set(sentences)) == len(sentences), text
