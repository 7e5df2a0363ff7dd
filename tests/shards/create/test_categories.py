"""COCO's categories as classes: ids that the OD API takes, one class a name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfod.detection.labels.label_map import read_label_map

from tests.commands import Result, Run
from tests.shards.create.conftest import by_filename

Categories = Sequence[Mapping[str, Any]]
# As Roboflow's exports have it: the project's name, which no annotation has.
ROBOFLOW = [
    {"id": 0, "name": "pets-hXq1", "supercategory": "none"},
    {"id": 1, "name": "cat", "supercategory": "pets-hXq1"},
    {"id": 2, "name": "dog", "supercategory": "pets-hXq1"},
]


def create(
    run: Run, folder: Path, categories: Categories, used: Sequence[int], *options: object
) -> Result:
    Image.new("RGB", (200, 100)).save(folder / "1.jpg")
    found = {
        "images": [{"id": 0, "file_name": "1.jpg", "width": 200, "height": 100}],
        "categories": categories,
        "annotations": [
            {
                "id": number,
                "image_id": 0,
                "category_id": category,
                "bbox": [1, 1, 10 + number, 10],
                "area": 100,
                "iscrowd": 0,
            }
            for number, category in enumerate(used)
        ],
    }
    (folder / "a.json").write_text(json.dumps(found))
    return run(
        *("coco", "--train-image-dir", folder, "--train-annotations-file", folder / "a.json"),
        *("--output-dir", folder / "out", *options),
    )


def classes(folder: Path) -> dict[int, str | None]:
    items = read_label_map(folder / "out" / "label_map.pbtxt")[0].items
    return {one.id: one.name for one in items}


def test_roboflows_unused_0_is_left_out(run: Run, tmp_path: Path) -> None:
    ran = create(run, tmp_path, ROBOFLOW, [1, 2])
    assert ran.code == 0
    assert ran.err == (
        "tfod create: 1 categories of id 0 that no annotation has, left out: the OD API has 0 for "
        f"the background (the first: {tmp_path / 'a.json'}: 'pets-hXq1')\n"
    )
    assert classes(tmp_path) == {1: "cat", 2: "dog"}
    assert by_filename(tmp_path / "out")["1.jpg"].class_label == [1, 2]


def test_a_used_0_is_refused_with_the_reason(run: Run, tmp_path: Path) -> None:
    ran = create(run, tmp_path, ROBOFLOW, [1, 0])
    assert ran.code == 2 and ran.err.count("\n") == 1 and not (tmp_path / "out").exists()
    assert "a.json, annotation 1: it is of category 0 ('pets-hXq1')" in ran.err
    assert "the OD API has 0 for the background and refuses a label map with it" in ran.err
    assert "or name a label map that has ids for them with --label-map\n" in ran.err


@pytest.mark.parametrize("option", ["--label-map-path", "--label-map"])
def test_a_label_map_has_ids_for_a_used_0(run: Run, tmp_path: Path, option: str) -> None:
    """By its own name, and by the one that messages say, which ``convert`` and ``diff`` have."""
    path = tmp_path / "mine.pbtxt"
    names = ("dog", "cat", "pets-hXq1")
    path.write_text("".join(f"item {{ id: {i} name: '{n}' }}\n" for i, n in enumerate(names, 1)))
    ran = create(run, tmp_path, ROBOFLOW, [0, 1, 2], option, path)
    assert ran.code == 0 and ran.err == ""
    one = by_filename(tmp_path / "out")["1.jpg"]
    assert one.class_label == [3, 2, 1] and one.class_text == ["pets-hXq1", "cat", "dog"]
    assert classes(tmp_path) == {1: "dog", 2: "cat", 3: "pets-hXq1"}


def test_a_class_that_the_label_map_lacks(run: Run, tmp_path: Path) -> None:
    ran = create(run, tmp_path, ROBOFLOW, [1, 2, 0], "--label-map-path", "coco")
    assert ran.code == 2 and not (tmp_path / "out").exists()
    assert "annotation 2: class 'pets-hXq1' is not in the label map coco; correct it" in ran.err


@pytest.mark.parametrize(
    ("ids", "kept"),
    [((1, 2), 1), ((7, 3), 3), ((0, 5), 5)],
)
def test_categories_of_one_name_are_one_class(
    run: Run, tmp_path: Path, ids: tuple[int, int], kept: int
) -> None:
    categories = [{"id": one, "name": "cat"} for one in ids]
    ran = create(run, tmp_path, [*categories, {"id": 9, "name": "dog"}], [*ids, 9])
    assert ran.code == 0
    other = next(one for one in ids if one != kept)
    assert "1 categories of a name that another one has, made one class (the first: " in ran.err
    assert f"'cat' is {kept} and {other}, written as {kept})" in ran.err
    assert ran.err.count("\n") == 1
    assert by_filename(tmp_path / "out")["1.jpg"].class_label == [kept, kept, 9]
    assert classes(tmp_path) == {kept: "cat", 9: "dog"}
