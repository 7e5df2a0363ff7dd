"""Datasets, imports and exports of the Datumaro plugin, for Datumaro 0.3 and 1.x."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

datumaro = pytest.importorskip("datumaro")

from datumaro.components.annotation import LabelCategories, PointsCategories  # noqa: E402
from datumaro.components.dataset import Dataset  # noqa: E402
from datumaro.components.errors import DatasetExportError, DatasetImportError  # noqa: E402
from datumaro.components.progress_reporting import NullProgressReporter  # noqa: E402
from tfod.datumaro import compat  # noqa: E402
from tfod.detection.detection import Detection  # noqa: E402
from tfod.sources.reading import read_detections  # noqa: E402

try:
    from datumaro.components.exporter import ExportErrorPolicy
    from datumaro.components.importer import ImportErrorPolicy
except ImportError:
    from datumaro.components.converter import ExportErrorPolicy
    from datumaro.components.extractor import ImportErrorPolicy

from tests.commands import run_program  # noqa: E402
from tests.image_kinds import HEIGHT, WIDTH, plain_image  # noqa: E402


def labels_of(dataset: Any) -> list[str]:
    """Names of a dataset's classes."""
    return [label.name for label in dataset.categories()[compat.AnnotationType.label]]


def content(dataset: Any) -> dict[tuple[str, str], dict[str, Any]]:
    """All values of each item, as plain values that can be compared."""
    names = labels_of(dataset)
    items = {}
    for item in dataset:
        annotations = []
        for annotation in item.annotations:
            kind = annotation.type.name
            plain: dict[str, Any] = {"type": kind, "attributes": dict(annotation.attributes)}
            plain["label"] = None if annotation.label is None else names[annotation.label]
            if kind == "mask":
                plain["mask"] = annotation.image.astype(int).tolist()
            elif kind != "label":
                plain["points"] = list(annotation.points)
            if kind == "points":
                plain["visibility"] = [value.value for value in annotation.visibility]
            annotations.append(plain)
        media = item.media
        items[item.id, item.subset] = {
            "annotations": annotations,
            "attributes": dict(item.attributes),
            "image": compat.read_image_bytes(media) if media is not None else None,
            "size": tuple(media.size) if media is not None and media.size else None,
        }
    return items


def ids_of(dataset: Any) -> dict[str, int]:
    """Class ids in the dataset's label map, by class name."""
    labels = dataset.categories()[compat.AnnotationType.label]
    ids = (item.id for item in labels.label_map.items)
    return dict(zip((label.name for label in labels), ids, strict=True))


def boxes(dataset: Any, item_id: str | None = None) -> list[tuple[Any, ...]]:
    """All boxes as (class, x1, y1, x2, y2)."""
    names = labels_of(dataset)
    return [
        (None if shape.label is None else names[shape.label], *shape.points)
        for item in dataset
        if item_id is None or item.id == item_id
        for shape in item.annotations
        if shape.type.name == "bbox"
    ]


def dataset_of(*items: Any, names: Any = ("cat", "dog", "кошка"), points: Any = None) -> Dataset:
    """A dataset with these classes, and the names of their points."""
    kinds = compat.AnnotationType
    categories: dict[Any, Any] = {kinds.label: LabelCategories.from_iterable(names)}
    if points:
        categories[kinds.points] = PointsCategories.from_iterable(points.items())
    return Dataset.from_iterable(list(items), categories=categories)


def imaged(name: str, *annotations: Any, data: bytes | None, **options: Any) -> Any:
    """An item of 34 x 21 pixels, like tests/image_kinds; without data, it has no image."""
    media = None
    if data:
        extension = ".jpg" if data.startswith(b"\xff\xd8") else ".png"
        media = compat.image_from_bytes(lambda *_: data, f"{name}{extension}", (HEIGHT, WIDTH))
    return compat.DatasetItem(id=name, media=media, annotations=list(annotations), **options)


def item(name: str = "a", *annotations: Any, data: bytes | None = None, **options: Any) -> Any:
    """An item of 200 x 100 pixels; without data, only its size is known."""
    media = compat.image_from_pixels(None, ".jpg", (100, 200))
    if data is not None:
        media = compat.image_from_bytes(lambda *_: data, f"{name}.jpg", None)
    return compat.DatasetItem(id=name, media=media, annotations=list(annotations), **options)


def jpeg(height: int = 100, width: int = 200, colour: int = 90) -> bytes:
    """An image of one colour."""
    return plain_image((width, height), (colour, 120, 200))


def import_dataset(path: object, name: str = "tf_detection_api", **options: Any) -> Any:
    """Import a dataset."""
    return Dataset.import_from(str(path), name, **options)


def export(source: Any, folder: Path, **options: Any) -> list[Detection]:
    """Export a dataset, and read the shards."""
    source.export(str(folder), "tf_detection_api", **options)
    return list(read_detections(folder))


def export_one(
    folder: Path, *annotations: Any, data: bytes | None = None, **options: Any
) -> Detection:
    """Export an item with these annotations, and read its record."""
    (detection,) = export(dataset_of(item("a", *annotations, data=data)), folder, **options)
    return detection


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the warnings that tfod has logged."""
    return lambda: [
        record.getMessage() for record in caplog.records if record.name.startswith("tfod")
    ]


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    """Import the test's folder, or another one."""
    return lambda path=tmp_path, **options: import_dataset(path, **options)


class Progress(NullProgressReporter):
    """Keeps the reports of an import or export."""

    def __init__(self) -> None:
        self.reported: list[Any] = []

    def start(self, total: int, *, desc: Any = None) -> None:
        self.reported.append((total, desc))

    def report_status(self, progress: int) -> None:
        self.reported.append(progress)

    def iter(self, iterable: Any, *, total: Any = None, desc: Any = None) -> Any:
        self.reported.append((len(iterable), desc))
        yield from iterable


def is_old_line() -> bool:
    """Whether this is Datumaro 0.3."""
    return hasattr(datumaro, "Converter")


Datum = Callable[..., str]
"""Type of the fixture ``datum``."""


@pytest.fixture
def datum(tmp_path: Path) -> Datum:
    """Run ``datum`` in the test's folder, and return its output: ``datum("stats", code=1)``."""
    environment = {key: value for key, value in os.environ.items() if key != "TFOD_ACTIVATE"}

    def run(arguments: str, *more: str, code: int = 0) -> str:
        command = ["datum", *arguments.split(), *more]
        status, output = run_program(command, tmp_path, {**environment, "HOME": str(tmp_path)})
        assert status == code, output
        return output

    return run


def refusal(do: Callable[..., Any], *arguments: object, **options: Any) -> BaseException:
    """The first cause of the error of an import or export."""
    with pytest.raises((DatasetImportError, DatasetExportError, OSError)) as caught:
        do(*arguments, **options)
    error: BaseException = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    return error


class _Tolerant:
    """An error policy that continues after an error, and keeps the item and the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[Any, BaseException | None]] = []

    def _handle_item_error(self, error: Any) -> None:
        self.errors.append((error.item_id, error.__cause__))

    _handle_annotation_error = _handle_item_error


class TolerantImport(_Tolerant, ImportErrorPolicy):
    """The error policy of a user who wants the valid items."""


class TolerantExport(_Tolerant, ExportErrorPolicy):
    """The error policy of a user who wants the items that can be written."""
