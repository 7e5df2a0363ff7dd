"""Items of an import equal constructed ones, take linear time and start no program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attr
import pytest
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError
from tfod.datumaro import compat, construct
from tfod.errors import TfodError

from tests.datumaro.conftest import import_dataset, jpeg
from tests.hostile import FAMILIES, growths
from tests.image_kinds import programs_of_pillow
from tests.mutants.sound import LABEL_MAP, record
from tests.records import write_shard

CORNERS = [[0.0, 0.0, 10.0, 20.0], [1.237, 2.005, 4.0, 6.5], [3.0, 3.0] * 2, [1e-9, 0.1, 1e5, 3e4]]


def fields_of(one: Any) -> dict[str, Any]:
    """Value and type of each field, and the types in lists."""
    values = {field.name: getattr(one, field.name) for field in attr.fields(type(one))}
    return {
        name: (type(value), value, [type(each) for each in value] if type(value) is list else None)
        for name, value in values.items()
    }


@pytest.mark.parametrize("label", [None, 0, 7])
def test_boxes(label: int | None) -> None:
    attributes: list[dict[str, Any]] = [{}, {"occluded": True}, {"id": 3}, {}]
    made = construct.make_boxes(construct.round_points(CORNERS), [label] * 4, attributes)
    for box, (left, top, right, bottom), own in zip(made, CORNERS, attributes, strict=True):
        corners = left, top, right - left, bottom - top
        constructed = compat.annotation.Bbox(*corners, label=label, attributes=own)
        assert type(box) is type(constructed) and fields_of(box) == fields_of(constructed)


def test_items() -> None:
    assert construct._can_skip_constructor and construct._has_known_item_fields
    arguments = "a/b", "train", None, [], {"id": 1}
    names = "id", "subset", "media", "annotations", "attributes"
    constructed = compat.DatasetItem(**dict(zip(names, arguments, strict=True)))
    for _ in range(2):  # the constructor is called for the first of a subset
        made = construct.make_item(*arguments)
        assert type(made) is type(constructed) and fields_of(made) == fields_of(constructed)


def test_images_keep_their_bytes_in_other_formats(make_shard: Any, tmp_path: Path) -> None:
    make_shard("train", {"image/filename": "a.jpg", "image/encoded": jpeg()}, folder=tmp_path / "a")
    found = import_dataset(tmp_path / "a")
    found.export(str(tmp_path / "b"), "coco", save_media=True)
    assert [path.read_bytes() for path in (tmp_path / "b").rglob("*.jpg")] == [jpeg()]
    (item,) = found
    item.media.save(str(tmp_path / "c" / "a.png"))
    assert (tmp_path / "c" / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", programs_of_pillow())
def test_no_image_starts_a_program(
    kind: str, tmp_path: Path, ghostscript: Callable[[], bool]
) -> None:
    encoded = record(encoded=programs_of_pillow()[kind], format=kind)
    write_shard(tmp_path / "s", "train", encoded, label_map=LABEL_MAP.decode())
    found = import_dataset(tmp_path / "s")
    for target in ("tf_detection_api", "coco"):
        found.export(str(tmp_path / target), target, save_media=True)
    assert not ghostscript()


SIZE = 4_000
MAX_GROWTH = 2.6  # as in tests/checker/test_linear.py


def import_folder(path: Path) -> None:
    folder = path if path.is_dir() or path.suffix == ".zip" else path.parent
    with contextlib.suppress(DatasetImportError, TfodError):  # the file may be damaged
        Dataset.import_from(os.fspath(folder), "tf_detection_api")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_twice_the_size_is_twice_the_work(tmp_path: Path, family: str) -> None:
    first, second = growths(import_folder, tmp_path, FAMILIES[family], SIZE)
    assert second <= MAX_GROWTH * max(first, SIZE)
