"""What the tests of the Datumaro plugin share; they run on both lines of Datumaro."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

datumaro = pytest.importorskip("datumaro")

from datumaro.components.annotation import LabelCategories, PointsCategories  # noqa: E402
from datumaro.components.dataset import Dataset  # noqa: E402
from datumaro.components.errors import DatasetExportError, DatasetImportError  # noqa: E402
from tfod.datumaro import compat  # noqa: E402

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
    """Everything an item has, as plain values that can be compared."""
    names = labels_of(dataset)
    found = {}
    for item in dataset:
        annotations = []
        for one in item.annotations:
            kind = one.type.name
            plain: dict[str, Any] = {"type": kind, "attributes": dict(one.attributes)}
            plain["label"] = None if one.label is None else names[one.label]
            if kind == "mask":
                plain["mask"] = one.image.astype(int).tolist()
            elif kind != "label":
                plain["points"] = list(one.points)
            if kind == "points":
                plain["visibility"] = [value.value for value in one.visibility]
            annotations.append(plain)
        media = item.media
        found[item.id, item.subset] = {
            "annotations": annotations,
            "attributes": dict(item.attributes),
            "image": compat.read_image_bytes(media) if media is not None else None,
            "size": tuple(media.size) if media is not None and media.size else None,
        }
    return found


def ids_of(dataset: Any) -> dict[str, int]:
    """Class ids that the dataset's label map gave, by class name."""
    labels = dataset.categories()[compat.AnnotationType.label]
    return dict(
        zip(
            (label.name for label in labels),
            (item.id for item in labels.label_map.items),
            strict=True,
        )
    )


def boxes(dataset: Any, item_id: str | None = None) -> list[tuple[Any, ...]]:
    """All boxes as (class, x1, y1, x2, y2)."""
    names = labels_of(dataset)
    return [
        (None if one.label is None else names[one.label], *one.points)
        for item in dataset
        if item_id is None or item.id == item_id
        for one in item.annotations
        if one.type.name == "bbox"
    ]


def dataset_of(*items: Any, names: Any = ("cat", "dog", "кошка"), points: Any = None) -> Dataset:
    """A dataset with these classes, and the names of the points of some."""
    kinds = compat.AnnotationType
    categories: dict[Any, Any] = {kinds.label: LabelCategories.from_iterable(names)}
    if points:
        categories[kinds.points] = PointsCategories.from_iterable(points.items())
    return Dataset.from_iterable(list(items), categories=categories)


def imaged(name: str, *annotations: Any, data: bytes | None, **options: Any) -> Any:
    """An item of 34 x 21 pixels, those of tests/image_kinds; without data it has no image."""
    media = None
    if data:
        extension = ".jpg" if data.startswith(b"\xff\xd8") else ".png"
        media = compat.image_from_bytes(lambda *_: data, f"{name}{extension}", (HEIGHT, WIDTH))
    return compat.DatasetItem(id=name, media=media, annotations=list(annotations), **options)


def jpeg(height: int = 100, width: int = 200, colour: int = 90) -> bytes:
    """An image of one colour."""
    return plain_image((width, height), (colour, 120, 200))


def import_dataset(path: object, name: str = "tf_detection_api", **options: Any) -> Any:
    """Import a dataset."""
    return Dataset.import_from(str(path), name, **options)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What tfod has logged as warnings."""

    def output() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name.startswith("tfod")]

    yield output


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Any]:
    """Import what lies in the test's folder."""
    return lambda path=tmp_path, **options: import_dataset(path, **options)


def is_old_line() -> bool:
    """Whether this is Datumaro 0.3."""
    return hasattr(datumaro, "Converter")


Datum = Callable[..., str]
"""The fixture ``datum``."""


@pytest.fixture
def datum(tmp_path: Path) -> Datum:
    """Run ``datum`` in the test's folder, and give what it printed: ``datum("stats", code=1)``."""
    environment = {key: value for key, value in os.environ.items() if key != "TFOD_ACTIVATE"}

    def run(arguments: str, *more: str, code: int = 0) -> str:
        command = ["datum", *arguments.split(), *more]
        found, printed = run_program(command, tmp_path, {**environment, "HOME": str(tmp_path)})
        assert found == code, printed
        return printed

    return run


def refusal(do: Callable[..., Any], *arguments: object, **options: Any) -> BaseException:
    """What an import or an export is refused for."""
    with pytest.raises((DatasetImportError, DatasetExportError, OSError)) as caught:
        do(*arguments, **options)
    error: BaseException = caught.value
    while error.__cause__ is not None:
        error = error.__cause__
    return error


class _Tolerant:
    """Goes on behind what is refused; keeps the item and the reason."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[tuple[Any, BaseException | None]] = []

    def _handle_item_error(self, error: Any) -> None:
        self.errors.append((error.item_id, error.__cause__))

    _handle_annotation_error = _handle_item_error


class TolerantImport(_Tolerant, ImportErrorPolicy):
    """As somebody imports who wants what is sound."""


class TolerantExport(_Tolerant, ExportErrorPolicy):
    """As somebody exports who wants what can be written."""
