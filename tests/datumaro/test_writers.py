"""The habits of the writers in the wild, a test each (their keys are listed in FACTS A.4).

Each record here has the keys, kinds and values that the named script writes, no others.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tfod.datumaro import compat

from tests.datumaro.conftest import boxes, content, ids_of, jpeg, labels_of
from tests.image_kinds import image_of_pixels
from tests.records import objects

IMAGE = jpeg(100, 200)
BOX = [0.25, 0.1, 0.5, 0.4]
PIXELS = (50, 10, 100, 40)


def coded(name: str, source_id: str | None, fmt: str | None, data: bytes = IMAGE) -> dict:
    """The image's features as most scripts write them."""
    found: dict[str, Any] = {"image/filename": name, "image/encoded": data}
    if source_id is not None:
        found["image/source_id"] = source_id
    if fmt is not None:
        found["image/format"] = fmt
    return found


SIZE = {"image/height": 100, "image/width": 200}
SHA = {"image/key/sha256": hashlib.sha256(IMAGE).hexdigest()}


def test_create_pascal(make_shard, load) -> None:
    make_shard(
        "pascal",
        SIZE
        | SHA
        | coded("2007_000027.jpg", "2007_000027.jpg", "jpeg")
        | objects([BOX], ["person"], [15])
        | {
            "image/object/difficult": [0],
            "image/object/truncated": [1],
            "image/object/view": ["Frontal"],
        },
    )
    dataset = load()
    (item,) = dataset
    assert boxes(dataset) == [("person", *PIXELS)] and ids_of(dataset) == {"person": 15}
    assert item.annotations[0].attributes == {
        "difficult": False,
        "truncated": True,
        "view": "Frontal",
    }
    assert item.attributes == {"source_id": "2007_000027.jpg"}


def test_create_pet_with_masks(make_shard, load, tmp_path) -> None:
    mask = image_of_pixels([[0, 1], [1, 1]])
    (tmp_path / "pet_label_map.pbtxt").write_text("item { id: 1 name: 'Abyssinian' }")
    shard = make_shard(
        "pets",
        {"image/height": 2, "image/width": 2}
        | coded("Abyssinian_100.jpg", "Abyssinian_100.jpg", "jpeg")
        | objects([[0, 0, 1, 1]], ["Abyssinian"], [1])
        | {"image/object/mask": [mask]},
    )
    from pathlib import Path

    Path(shard).rename(tmp_path / "pet_faces_train.record-00000-of-00001")
    (item,) = load()
    assert item.subset == "pet_faces_train"
    assert item.annotations[0].image.astype(int).tolist() == [[0, 1], [1, 1]]


def test_create_kitti(make_shard, load) -> None:
    """Full paths as names, truncated as float, 3D boxes and the angle alpha."""
    path = "/data/kitti/training/image_2/000001.png"
    extra = {f"image/object/3d_bbox/{k}": [1.5] for k in ("height", "width", "length", "x", "y")}
    make_shard(
        "kitti_train",
        SIZE
        | SHA
        | coded(path, path, "png")
        | objects([BOX], ["car"], [1])
        | {"image/object/difficult": [0], "image/object/truncated": [0.25]}
        | {"image/object/alpha": [-1.5], "image/object/3d_bbox/rot_y": [0.5]}
        | extra,
    )
    dataset = load()
    (item,) = dataset
    assert (item.id, item.attributes) == ("000001", {"source_id": path, "filename": path})
    attributes = item.annotations[0].attributes
    assert attributes["truncated"] == 0.25 and attributes["alpha"] == -1.5
    assert attributes["3d_bbox_length"] == 1.5 and attributes["3d_bbox_rot_y"] == 0.5


def test_create_coco_has_no_ids(make_shard, load) -> None:
    make_shard(
        "coco_train",
        SIZE
        | SHA
        | coded("000000000009.jpg", "9", "jpeg")
        | objects([BOX], ["bowl"])
        | {"image/object/is_crowd": [1], "image/object/area": [1500.0]},
    )
    dataset = load()
    (item,) = dataset
    assert boxes(dataset) == [("bowl", *PIXELS)]
    assert item.annotations[0].attributes == {"is_crowd": True, "area": 1500.0}
    assert item.attributes["source_id"] == "9"


def test_create_coco_keypoints(make_shard, load) -> None:
    make_shard(
        "coco_train",
        SIZE
        | coded("000000000009.jpg", "9", "jpeg")
        | objects([BOX, BOX], ["person", "dog"])
        | {
            "image/object/keypoint/x": [0.5, 0.0, 0.0, 0.0],
            "image/object/keypoint/y": [0.5, 0.0, 0.0, 0.0],
            "image/object/keypoint/num": [1, 0],
            "image/object/keypoint/visibility": [2, 0, 0, 0],
            "image/object/keypoint/text": ["nose", "left_eye"] * 2,
        },
    )
    dataset = load()
    (item,) = dataset
    assert [one.type.name for one in item.annotations] == ["bbox", "points", "bbox"]
    schemas = dataset.categories()[compat.AnnotationType.points].items
    assert [schema.labels for schema in schemas.values()] == [["nose", "left_eye"]]


def test_model_garden_coco_omits_box_keys_of_negatives(make_shard, load) -> None:
    base = SIZE | SHA
    make_shard(
        "train",
        base | coded("1.jpg", "1", "jpg") | objects([BOX], ["bowl"], [51]),
        base | coded("2.jpg", "2", "jpg"),
    )
    dataset = load()
    assert [len(item.annotations) for item in dataset] == [1, 0]
    assert ids_of(dataset) == {"bowl": 51}


def test_create_oid_has_no_size_and_no_format(make_shard, load) -> None:
    make_shard(
        "oid",
        coded("000a1249af2bc5f0.jpg", "000a1249af2bc5f0", None)
        | objects([BOX], ["/m/01g317"], [3])
        | {
            "image/object/group_of": [0],
            "image/object/occluded": [-1],
            "image/object/truncated": [1],
            "image/object/depiction": [0],
            "image/class/label": [3],
            "image/class/text": ["/m/01g317"],
        },
    )
    dataset = load()
    assert boxes(dataset) == [("/m/01g317", *PIXELS)]
    (item,) = dataset
    assert [one.type.name for one in item.annotations] == ["label", "bbox"]
    assert item.annotations[1].attributes == {
        "group_of": False,
        "occluded": -1,
        "truncated": True,
        "depiction": False,
    }


def test_raccoon_says_jpg(make_shard, load) -> None:
    make_shard("raccoon", SIZE | coded("r-1.jpg", "r-1.jpg", "jpg") | objects([BOX], ["r"], [1]))
    assert boxes(load()) == [("r", *PIXELS)]


def test_roboflow_has_no_source_id(make_shard, load, tmp_path) -> None:
    name = "Frame608_jpg.rf.0123456789abcdef0123456789abcdef.jpg"
    folder = tmp_path / "train"
    make_shard(
        "Objects",
        SIZE | coded(name, None, "jpeg") | objects([BOX], ["cup"], [2]),
        folder=folder,
    )
    (folder / "Objects_label_map.pbtxt").write_text(
        'item {\n    name: "bowl",\n    id: 1,\n    display_name: "bowl"\n}\n'
        'item {\n    name: "cup",\n    id: 2,\n    display_name: "cup"\n}\n'
    )
    dataset = load()
    assert labels_of(dataset) == ["bowl", "cup"] and boxes(dataset)[0][0] == "cup"
    assert next(iter(dataset)).id == name[: -len(".jpg")]


def test_fiftyone_counts_from_zero_and_names_by_path(make_shard, load) -> None:
    path = "/home/me/fiftyone/a.jpg"
    make_shard("tf", SIZE | coded(path, path, "jpg") | objects([BOX, BOX], ["x", "y"], [0, 1]))
    dataset = load()
    assert ids_of(dataset) == {"x": 0, "y": 1}
    assert [box[0] for box in boxes(dataset)] == ["x", "y"]


def test_datumaro_without_images_and_with_stripped_names(make_shard, load, tmp_path) -> None:
    """Datumaro's own exporter: empty texts for names that are not ASCII, 0 for no class."""
    (tmp_path / "label_map.pbtxt").write_text(
        "item {\n\tid: 1\n\tname: 'кошка'\n}\n\nitem {\n\tid: 2\n\tname: 'cat'\n}\n\n", "utf-8"
    )
    empty = {"image/encoded": "", "image/format": "", "image/key/sha256": ""}
    make_shard(
        "train",
        SIZE
        | {"image/filename": "1.jpg", "image/source_id": ""}
        | empty
        | objects([BOX, BOX, BOX], ["", "cat", ""], [1, 2, 0]),
    )
    dataset = load()
    assert [box[0] for box in boxes(dataset)] == ["кошка", "cat", None]
    assert content(dataset)["1", "train"]["image"] is None


@pytest.mark.parametrize("extension", ["record", "tfrecord", "tfrecords", "tfrec"])
def test_extensions(make_shard, load, tmp_path, extension) -> None:
    from pathlib import Path

    shard = Path(make_shard("s", SIZE | coded("a.jpg", "a", "jpg")))
    shard.rename(tmp_path / f"s.{extension}")
    assert len(load()) == 1
