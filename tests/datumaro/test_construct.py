"""Boxes and items that are made past Datumaro's constructors, beside those that are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attr
import pytest
from datumaro.components.dataset import Dataset
from tfod.datumaro import compat, construct

from tests.datumaro.conftest import jpeg
from tests.image_kinds import programs_of_pillow
from tests.mutants.sound import LABEL_MAP, record
from tests.records import write_shard

CORNERS = [[0.0, 0.0, 10.0, 20.0], [1.237, 2.005, 4.0, 6.5], [3.0, 3.0] * 2, [1e-9, 0.1, 1e5, 3e4]]


def fields_of(one: Any) -> dict[str, Any]:
    """Value and type of each field, lists too."""
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
    arguments = "a/b", "train", None, [], {"id": 1}
    names = "id", "subset", "media", "annotations", "attributes"
    constructed = compat.DatasetItem(**dict(zip(names, arguments, strict=True)))
    for _ in range(2):  # the first of a subset is constructed
        made = construct.make_item(*arguments)
        assert type(made) is type(constructed) and fields_of(made) == fields_of(constructed)


def test_this_datumaro_has_the_fields_that_are_known() -> None:
    assert construct._can_skip_constructor and construct._has_known_item_fields


def test_images_keep_their_bytes_in_other_formats(make_shard: Any, tmp_path: Path) -> None:
    make_shard("train", {"image/filename": "a.jpg", "image/encoded": jpeg()}, folder=tmp_path / "a")
    found = Dataset.import_from(str(tmp_path / "a"), "tf_detection_api")
    found.export(str(tmp_path / "b"), "coco", save_media=True)
    assert [path.read_bytes() for path in (tmp_path / "b").rglob("*.jpg")] == [jpeg()]
    (item,) = found
    item.media.save(str(tmp_path / "c" / "a.png"))
    assert (tmp_path / "c" / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("kind", programs_of_pillow())
def test_no_image_starts_a_program(
    kind: str, tmp_path: Path, ghostscript: Callable[[], bool]
) -> None:
    write_shard(
        tmp_path / "s",
        "train",
        record(encoded=programs_of_pillow()[kind], format=kind),
        label_map=LABEL_MAP.decode(),
    )
    found = Dataset.import_from(str(tmp_path / "s"), "tf_detection_api")
    for target in ("tf_detection_api", "coco"):
        found.export(str(tmp_path / target), target, save_media=True)
    assert not ghostscript()
