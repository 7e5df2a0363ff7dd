"""Round trips: of the corpus, of generated datasets, and of keypoints through COCO."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datumaro.components.annotation import Bbox
from datumaro.components.dataset import Dataset
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.cli.main import main
from tfod.datumaro import compat
from tfod.detection.labels.label_map import read_label_map
from tfod.sources.reading import read_detections

from tests.conftest import CORPUS, examples, typed_numbers
from tests.datumaro.conftest import content, dataset_of, ids_of, import_dataset, labels_of, refusal

OTHER = ("titanic-table", "viewer-sample")
FOLDERS = sorted(path.name for path in CORPUS.glob("*") if path.is_dir())


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in OTHER])
def test_corpus(tmp_path: Path, figures: dict[str, Any], name: str) -> None:
    """The numbers equal TensorFlow's, and a round trip changes nothing."""
    is_roboflow = name == "datumaro-roboflow"
    expected_format = "roboflow_tfrecord" if is_roboflow else "tf_detection_api"
    assert Dataset.detect(str(CORPUS / name)) == expected_format
    first = import_dataset(CORPUS / name)
    expected = [one for key, one in figures.items() if key.startswith(f"{name}/")]
    shapes = [one for item in first for one in item.annotations]
    names = labels_of(first)
    assert len(first) == sum(one["records"] for one in expected)
    assert len(shapes) == sum(one["boxes"] for one in expected)
    texts = sum((Counter(one["class_text"]) for one in expected), Counter[str]())
    assert Counter("" if one.label is None else names[one.label] for one in shapes) == texts
    images = [one["image"] for one in content(first).values() if one["image"]]
    assert sum(map(len, images)) == sum(one["encoded_bytes"] for one in expected)

    first.export(str(tmp_path / "1"), "tf_detection_api", save_media=True)
    second = import_dataset(tmp_path / "1")
    assert content(second) == content(first)
    assert (labels_of(second), ids_of(second)) == (labels_of(first), ids_of(first))
    second.export(str(tmp_path / "2"), "tf_detection_api", save_media=True)
    for path in (tmp_path / "1").iterdir():
        assert (tmp_path / "2" / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", OTHER)
def test_shards_of_other_kinds(name: str) -> None:
    message = str(refusal(import_dataset, CORPUS / name))
    assert "is not an object detection shard" in message and "tfod describe" in message


# Generated datasets

letters = st.characters(exclude_categories=("Cs", "Cc"))
labels = st.lists(st.text(letters, min_size=1, max_size=12), min_size=1, max_size=6, unique=True)
names = st.from_regex(r"\A[\w ]{1,8}(/[\w ]{1,8}){0,2}\Z").filter(
    lambda name: all(part.strip() for part in name.split("/"))
)
subsets = st.sampled_from(["train", "val", "test", "default", "a b", "x/y", "s-00000-of-00002"])
attributes = st.dictionaries(
    st.sampled_from(["occluded", "difficult", "pose", "count", "ratio", "parts", "кто"]),
    st.one_of(
        st.booleans(),
        st.integers(-(2**70), 2**70),
        typed_numbers,
        st.text(letters, max_size=8),
        st.lists(st.integers(), max_size=2),
    ),
    max_size=4,
)


@st.composite
def boxes(draw: st.DrawFn, count: int, height: int, width: int) -> Bbox:
    """A box inside the image, in hundredths of a pixel, as in Datumaro."""
    left, right = sorted(draw(st.tuples(*[st.integers(0, width * 100)] * 2)))
    top, bottom = sorted(draw(st.tuples(*[st.integers(0, height * 100)] * 2)))
    label = draw(st.one_of(st.none(), st.integers(0, count - 1)))
    corners = left / 100, top / 100, (right - left) / 100, (bottom - top) / 100
    return Bbox(*corners, label=label, attributes=draw(attributes))


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Images with boxes; some have bytes, others only a size."""
    classes = draw(labels)
    items = []
    for subset, name in draw(st.lists(st.tuples(subsets, names), max_size=5, unique=True)):
        height, width = draw(st.tuples(*[st.integers(1, 5000)] * 2))
        data = draw(st.one_of(st.none(), st.binary(min_size=1, max_size=40)))
        media = compat.image_from_pixels(None, ".jpg", (height, width))
        if data is not None and len(data) not in [height * width * depth for depth in (1, 3, 4)]:
            media = compat.image_from_bytes(lambda *_, x=data: x, f"{name}.jpg", (height, width))
        shapes = draw(st.lists(boxes(len(classes), height, width), max_size=4))
        source_id = {"source_id": draw(st.one_of(st.none(), st.text(letters)))}
        fields = {"subset": subset, "media": media, "attributes": source_id}
        items.append(compat.DatasetItem(id=name, annotations=shapes, **fields))
    return dataset_of(*items, names=classes)


@examples(60)
@given(
    source=datasets(),
    compression=st.sampled_from(["none", "gzip", "zlib"]),
    num_shards=st.integers(1, 3),
)
def test_any_dataset(source: Dataset, compression: str, num_shards: int) -> None:
    options = {"save_media": True, "compression": compression, "num_shards": num_shards}
    with tempfile.TemporaryDirectory() as folder:
        source.export(folder, "tf_detection_api", **options)
        if not len(source):
            return
        loaded = import_dataset(folder)
        assert _plain(loaded) == _plain(source)
        assert labels_of(loaded) == labels_of(source)


def _plain(dataset: Dataset) -> dict[Any, Any]:
    return {
        key: {**one, "annotations": [_exact(shape) for shape in one["annotations"]]}
        for key, one in content(dataset).items()
    }


def _exact(annotation: dict[str, Any]) -> dict[str, Any]:
    """Truth values without a key must not be imported as numbers."""
    kinds = {name: type(value) for name, value in annotation["attributes"].items()}
    for name in ("occluded", "difficult"):  # 0 and 1 of these keys are truth values
        kinds.pop(name, None)
    return {**annotation, "kinds": kinds}


# Keypoints from COCO's JSON to shards and back: Datumaro's import and export, `tfod convert`

HEIGHT, WIDTH = 48, 64
POINTS = {1: ["nose", "eye", "ear"], 4: ["nose", "thumb"], 6: []}
NAMES = {1: "person", 4: "hand", 6: "dog"}
INDICES = {1: [0, 1, 2], 4: [3, 4], 6: []}
"""Indices of the points of each category in a record."""

Triple = tuple[float, float, int]
NOT_LABELLED = st.just([0, 0, 0])
LABELLED = st.tuples(st.integers(0, WIDTH), st.integers(0, HEIGHT), st.integers(1, 2)).map(list)


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, Any]:
    """An annotation of any category, with points (some of them not labelled) or without."""
    category = draw(st.sampled_from([1, 4, 6]))
    left, top = draw(st.integers(0, WIDTH - 9)), draw(st.integers(0, HEIGHT - 9))
    box = [left, top, draw(st.integers(2, WIDTH - left)), draw(st.integers(2, HEIGHT - top))]
    found = {"category_id": category, "bbox": box, "area": 1.5, "iscrowd": 0}
    if POINTS[category] and draw(st.booleans()):
        points = [draw(st.one_of(NOT_LABELLED, LABELLED)) for _ in POINTS[category]]
        found["keypoints"] = [value for point in points for value in point]
        found["num_keypoints"] = sum(v > 0 for _, _, v in points)
    return found


def points_of(annotation: dict[str, Any]) -> list[Triple]:
    """The points of an annotation of COCO; an empty list if none is labelled."""
    values = annotation.get("keypoints") or []
    xy = [round(value, 3) for value in values]  # from float32
    found = list(zip(xy[::3], xy[1::3], values[2::3], strict=True))
    return found if any(v for _, _, v in found) else []


def write_coco(
    folder: Path, images: list[list[dict[str, Any]]], points: Mapping[int, list[str]] = POINTS
) -> Path:
    """A JSON of images with these annotations."""
    listed, found = [], []
    for number, members in enumerate(images, 1):
        name = f"{number}.png"
        Image.new("RGB", (WIDTH, HEIGHT), (number, 0, 0)).save(folder / name)
        listed.append({"id": number, "file_name": name, "height": HEIGHT, "width": WIDTH})
        found += [{"id": len(found) + n, "image_id": number, **x} for n, x in enumerate(members, 1)]
    categories = [
        {"id": key, "name": NAMES[key], **({"keypoints": names} if names else {})}
        for key, names in points.items()
    ]
    path = folder / "person_keypoints.json"
    path.write_text(json.dumps({"images": listed, "annotations": found, "categories": categories}))
    return path


def imported(folder: Path) -> list[list[tuple[str, list[Triple]]]]:
    """The class and the points of each object in Datumaro."""
    dataset = import_dataset(folder)
    names = labels_of(dataset)
    found = []
    for item in sorted(dataset, key=lambda one: one.id):
        points = {one.group: one for one in item.annotations if one.type.name == "points"}
        objects = []
        for box in (one for one in item.annotations if one.type.name == "bbox"):
            of_box = points.pop(box.group, None) if box.group else None
            xy = np.array(of_box.points, float).reshape(-1, 2).tolist() if of_box else []
            shown = [int(v.value) for v in of_box.visibility] if of_box else []
            triples = [(x, y, v) for (x, y), v in zip(xy, shown, strict=True)]
            objects.append((names[box.label], triples))
        assert not points
        found.append(objects)
    return found


@examples(25)
@given(st.lists(st.lists(annotations(), max_size=3), min_size=1, max_size=3).filter(any))
def test_any_keypoints(images: list[list[dict[str, Any]]]) -> None:
    expected = [[(NAMES[x["category_id"]], points_of(x)) for x in objects] for objects in images]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        file = write_coco(folder, images)
        assert main(["convert", str(file), str(folder / "shards")]) == 0
        label_map, _ = read_label_map(folder / "shards" / "label_map.pbtxt")
        for item in label_map.items:
            assert [point.id for point in item.keypoints] == INDICES[item.id]
            assert [point.label for point in item.keypoints] == POINTS[item.id]
        first = {one.filename: one for one in read_detections(folder / "shards")}

        assert imported(folder / "shards") == expected
        again = folder / "again"
        import_dataset(folder / "shards").export(str(again), "tf_detection_api", save_media=True)
        for one in read_detections(again):
            ours, theirs = first[one.filename].keypoints, one.keypoints
            if theirs is None:  # no object of the image has points
                assert ours is None or not ours.visibility.any()
                continue
            assert ours is not None and theirs.names == ours.names
            np.testing.assert_array_equal(theirs.visibility, ours.visibility)
            np.testing.assert_allclose(theirs.xy, ours.xy, atol=1e-6)

        assert main(["convert", str(folder / "shards"), str(folder / "c"), "--to", "coco"]) == 0
        (path,) = (folder / "c").rglob("instances_*.json")
        found, source = (json.loads(x.read_text()) for x in (path, file))
        names = {one["name"]: one.get("keypoints", []) for one in found["categories"]}
        assert names == {NAMES[key]: value for key, value in POINTS.items()}
        converted, originals = (
            [(x["category_id"], points_of(x)) for x in document["annotations"]]
            for document in (found, source)
        )
        assert converted == originals
        assert all(
            ("keypoints" in one) is bool(POINTS[one["category_id"]])
            for one in found["annotations"]
            if first[f"{one['image_id']}.png"].keypoints is not None
        )
