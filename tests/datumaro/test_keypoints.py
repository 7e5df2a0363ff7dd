"""Keypoints from COCO's JSON to shards and back: Datumaro's import and export, ``tfod convert``."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.cli.main import main
from tfod.detection.labels.label_map import read_label_map
from tfod.sources.reading import read_detections

from tests.conftest import examples
from tests.datumaro.conftest import import_dataset

HEIGHT, WIDTH = 48, 64
POINTS = {1: ["nose", "eye", "ear"], 4: ["nose", "thumb"], 6: []}
NAMES = {1: "person", 4: "hand", 6: "dog"}
PLACES = {1: [0, 1, 2], 4: [3, 4], 6: []}
"""Of the points of each category among those of a record."""

Triple = tuple[float, float, int]


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, Any]:
    """Of any category, with points (some of them not labelled) or without."""
    category = draw(st.sampled_from([1, 4, 6]))
    left, top = draw(st.integers(0, WIDTH - 9)), draw(st.integers(0, HEIGHT - 9))
    box = [left, top, draw(st.integers(2, WIDTH - left)), draw(st.integers(2, HEIGHT - top))]
    found = {"category_id": category, "bbox": box, "area": 1.5, "iscrowd": 0}
    if POINTS[category] and draw(st.booleans()):
        values = []
        for _ in POINTS[category]:
            x, y, v = draw(
                st.tuples(st.integers(0, WIDTH), st.integers(0, HEIGHT), st.integers(0, 2))
            )
            values += [x, y, v] if v else [0, 0, 0]
        found |= {"keypoints": values, "num_keypoints": sum(v > 0 for v in values[2::3])}
    return found


def points_of(one: dict[str, Any]) -> list[Triple]:
    """What is labelled of an annotation of COCO; nothing of one that has nothing."""
    values = one.get("keypoints") or []
    xy = [round(value, 3) for value in values]  # of a float32
    found = list(zip(xy[::3], xy[1::3], values[2::3], strict=True))
    return found if any(v for _, _, v in found) else []


def write_coco(folder: Path, images: list[list[dict[str, Any]]]) -> Path:
    listed, found = [], []
    for number, members in enumerate(images, 1):
        name = f"{number}.png"
        Image.new("RGB", (WIDTH, HEIGHT), (number, 0, 0)).save(folder / name)
        listed.append({"id": number, "file_name": name, "height": HEIGHT, "width": WIDTH})
        for one in members:
            found.append({"id": len(found) + 1, "image_id": number, **one})
    categories = [
        {"id": key, "name": NAMES[key], **({"keypoints": names} if names else {})}
        for key, names in POINTS.items()
    ]
    path = folder / "person_keypoints.json"
    path.write_text(json.dumps({"images": listed, "annotations": found, "categories": categories}))
    return path


def imported(folder: Path) -> list[list[tuple[str, list[Triple]]]]:
    """The class and the points of each object, as Datumaro has them."""
    dataset = import_dataset(folder)
    (labels, *_) = dataset.categories().values()
    found = []
    for item in sorted(dataset, key=lambda one: one.id):
        points = {one.group: one for one in item.annotations if one.type.name == "points"}
        objects = []
        for one in item.annotations:
            if one.type.name == "bbox":
                of = points.pop(one.group, None) if one.group else None
                xy = np.array(of.points, float).reshape(-1, 2).tolist() if of else []
                shown = [int(v.value) for v in of.visibility] if of else []
                triples = [(x, y, v) for (x, y), v in zip(xy, shown, strict=True)]
                objects.append((labels[one.label].name, triples))
        assert not points
        found.append(objects)
    return found


@examples(25)
@given(st.lists(st.lists(annotations(), max_size=3), min_size=1, max_size=3))
def test_they_come_back(images: list[list[dict[str, Any]]]) -> None:
    if not any(images):
        return
    expected = [[(NAMES[one["category_id"]], points_of(one)) for one in some] for some in images]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = write_coco(folder, images)
        assert main(["convert", str(file), str(folder / "shards")]) == 0
        label_map, _ = read_label_map(folder / "shards" / "label_map.pbtxt")
        for item in label_map.items:
            assert [point.id for point in item.keypoints] == PLACES[item.id]
            assert [point.label for point in item.keypoints] == POINTS[item.id]
        first = {one.filename: one for one in read_detections(folder / "shards")}

        assert imported(folder / "shards") == expected
        again = folder / "again"
        import_dataset(folder / "shards").export(str(again), "tf_detection_api", save_media=True)
        for one in read_detections(again):
            ours, theirs = first[one.filename].keypoints, one.keypoints
            if theirs is None:  # of an image without any
                assert ours is None or not ours.visibility.any()
                continue
            assert ours is not None and theirs.names == ours.names
            np.testing.assert_array_equal(theirs.visibility, ours.visibility)
            np.testing.assert_allclose(theirs.xy, ours.xy, atol=1e-6)

        assert main(["convert", str(folder / "shards"), str(folder / "c"), "--to", "coco"]) == 0
        (path,) = (folder / "c").rglob("instances_*.json")
        found = json.loads(path.read_text())
        source = json.loads(file.read_text())
        names = {one["name"]: one.get("keypoints", []) for one in found["categories"]}
        assert names == {NAMES[key]: value for key, value in POINTS.items()}
        assert [(one["category_id"], points_of(one)) for one in found["annotations"]] == [
            (one["category_id"], points_of(one)) for one in source["annotations"]
        ]
        assert all(
            ("keypoints" in one) is bool(POINTS[one["category_id"]])
            for one in found["annotations"]
            if first[f"{one['image_id']}.png"].keypoints is not None
        )
