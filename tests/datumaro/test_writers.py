"""The habits of the writers in the wild, a test each (their keys are listed in FACTS A.4).

Each record here has the keys, kinds and values that the named script writes, no others.
"""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from tfod.datumaro import compat

from tests.datumaro.conftest import boxes, ids_of, jpeg
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


KITTI = "/data/kitti/training/image_2/000001.png"
FIFTYONE = "/home/me/fiftyone/a.jpg"
WRITERS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "create_pascal": (
        [
            SIZE
            | SHA
            | coded("2007_000027.jpg", "2007_000027.jpg", "jpeg")
            | objects([BOX], ["person"], [15])
            | {"image/object/difficult": [0], "image/object/truncated": [1]}
            | {"image/object/view": ["Frontal"]}
        ],
        {
            "boxes": [("person", *PIXELS)],
            "ids": {"person": 15},
            "attributes": {"difficult": False, "truncated": True, "view": "Frontal"},
            "image": {"source_id": "2007_000027.jpg"},
        },
    ),
    # Full paths as names, truncated as float, 3D boxes and the angle alpha.
    "create_kitti": (
        [
            SIZE
            | SHA
            | coded(KITTI, KITTI, "png")
            | objects([BOX], ["car"], [1])
            | {"image/object/difficult": [0], "image/object/truncated": [0.25]}
            | {"image/object/alpha": [-1.5], "image/object/3d_bbox/rot_y": [0.5]}
            | {"image/object/3d_bbox/length": [1.5]}
        ],
        {
            "id": "000001",
            "image": {"source_id": KITTI, "filename": KITTI},
            "attributes": {
                "difficult": False,
                "truncated": 0.25,
                "alpha": -1.5,
                "3d_bbox_length": 1.5,
                "3d_bbox_rot_y": 0.5,
            },
        },
    ),
    "create_coco, without ids": (
        [
            SIZE
            | SHA
            | coded("000000000009.jpg", "9", "jpeg")
            | objects([BOX], ["bowl"])
            | {"image/object/is_crowd": [1], "image/object/area": [1500.0]}
        ],
        {
            "boxes": [("bowl", *PIXELS)],
            "attributes": {"is_crowd": True, "area": 1500.0},
            "image": {"source_id": "9"},
        },
    ),
    "Model Garden's COCO, which omits the boxes of negatives": (
        [
            SIZE | SHA | coded("1.jpg", "1", "jpg") | objects([BOX], ["bowl"], [51]),
            SIZE | SHA | coded("2.jpg", "2", "jpg"),
        ],
        {"kinds": [["bbox"], []], "ids": {"bowl": 51}},
    ),
    "create_oid, without size and format": (
        [
            coded("000a1249af2bc5f0.jpg", "000a1249af2bc5f0", None)
            | objects([BOX], ["/m/01g317"], [3])
            | {"image/object/group_of": [0], "image/object/occluded": [-1]}
            | {"image/object/truncated": [1], "image/object/depiction": [0]}
            | {"image/class/label": [3], "image/class/text": ["/m/01g317"]}
        ],
        {
            "boxes": [("/m/01g317", *PIXELS)],
            "kinds": [["label", "bbox"]],
            "attributes": {
                "group_of": False,
                "occluded": -1,
                "truncated": True,
                "depiction": False,
            },
        },
    ),
    "raccoon, which says jpg": (
        [SIZE | coded("r-1.jpg", "r-1.jpg", "jpg") | objects([BOX], ["r"], [1])],
        {"boxes": [("r", *PIXELS)]},
    ),
    "FiftyOne, which counts from zero and names by path": (
        [SIZE | coded(FIFTYONE, FIFTYONE, "jpg") | objects([BOX, BOX], ["x", "y"], [0, 1])],
        {"boxes": [("x", *PIXELS), ("y", *PIXELS)], "ids": {"x": 0, "y": 1}},
    ),
}
"""Records, and what an import makes of them: of the first image its last annotation."""


@pytest.mark.parametrize("name", WRITERS)
def test_writers(make_shard, load, name: str) -> None:
    records, wanted = WRITERS[name]
    make_shard("train", *records)
    dataset = load()
    item = next(iter(dataset))
    found = {
        "boxes": boxes(dataset),
        "ids": ids_of(dataset),
        "kinds": [[one.type.name for one in each.annotations] for each in dataset],
        "attributes": item.annotations[-1].attributes,
        "id": item.id,
        "image": item.attributes,
    }
    assert {key: found[key] for key in wanted} == wanted


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
