"""Which profile is chosen for what real and well-known writers write, and with which reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tfod.detection.keys import OBJECT_ATTRIBUTES
from tfod.example.example import Example
from tfod.sources.layouts import KeyCounts, choose_layout

from tests.records import encode, image, objects

ENCODED = {"image/encoded": b"\xff\xd8\xff", "image/format": "jpeg"}
BOXES = objects([[0, 0, 1, 1]], ["cat"], [1])
SHA256 = {"image/key/sha256": "0" * 64}
PASCAL = {
    "image/object/difficult": [0],
    "image/object/truncated": [0],
    "image/object/view": ["left"],
}
KITTI_3D = {one.key: [0.5] for one in OBJECT_ATTRIBUTES if "3d_bbox" in one.key}
OCCURRENCES = {f"image/object/{name}": [0] for name in ("group_of", "occluded", "depiction")}
KERAS = {
    "image": b"\xff\xd8\xff",
    "path": "a.jpg",
    "area": 2.0,
    "bbox": [1.0, 2.0, 3.0, 4.0],
    "category_id": 1,
    "id": 7,
    "image_id": 9,
}


def select_listed(*records: bytes) -> tuple[str, str]:
    """The name of the profile that is chosen for records, and why; empty texts for none."""
    found = KeyCounts()
    for record in records:
        found.add(Example.from_bytes(record).batch)
    profile, why = choose_layout(found) or (None, "")
    return profile.name if profile else "", why


SIZE = {"image/height": 1, "image/width": 1}
SLIM = {"image/class/label": [0]}
DEEPLAB = {
    **image(),
    **ENCODED,
    "image/channels": 3,
    "image/segmentation/class/encoded": b"PNG",
    "image/segmentation/class/format": "png",
}
NAMED = image() | {"image/source_id": "a.jpg"}
NO_SIZE = ("image/height", "image/width", "image/format")


WHOLE = NAMED | ENCODED | BOXES
EMPTY = {"image/encoded": b"", "image/format": ""}
SQUARE = {"height": 1, "width": 1, "label": 0}
WRITERS: Mapping[str, tuple[dict[str, Any], str]] = {
    "create_pascal": (WHOLE | SHA256 | PASCAL, "tf_detection_api"),
    "create_pet": (WHOLE | SHA256 | PASCAL | {"image/object/mask": [b"PNG"]}, "tf_detection_api"),
    "create_pet, numeric masks": (
        WHOLE | SHA256 | PASCAL | {"image/object/mask": [0.0, 1.0]},
        "tf_detection_api",
    ),
    "create_kitti": (
        WHOLE | SHA256 | KITTI_3D | PASCAL | {"image/object/truncated": [0.5]},
        "tf_detection_api",
    ),
    "create_coco": (
        NAMED | ENCODED | SHA256 | objects([[0, 0, 1, 1]], ["cat"])
        | {"image/object/is_crowd": [0], "image/object/area": [1.5]},
        "tf_detection_api",
    ),
    "create_coco of an empty image": (NAMED | ENCODED | SHA256, "tf_detection_api"),
    "create_coco's panoptic masks of an empty image": (
        NAMED | ENCODED | SHA256 | {"image/panoptic/category_mask": b"PNG"},
        "tf_detection_api",
    ),
    "create_oid": (
        {key: value for key, value in (WHOLE | OCCURRENCES).items() if key not in NO_SIZE},
        "open_images",
    ),
    "raccoon": (WHOLE | {"image/format": "jpg"}, "tf_detection_api"),
    "Roboflow": (image() | ENCODED | BOXES, "roboflow"),
    "Datumaro's Roboflow": (image() | ENCODED | SHA256 | BOXES, "roboflow"),
    "Datumaro's Roboflow without images": (image() | BOXES | EMPTY, "roboflow"),
    "pascal without an id": (image() | ENCODED | BOXES | PASCAL, "tf_detection_api"),
    "CVAT": (NAMED | BOXES, "cvat"),
    "CVAT, empty image": (NAMED | BOXES | {"image/encoded": b""}, "cvat"),
    "CVAT with images": (WHOLE, "tf_detection_api"),
    "Datumaro": (NAMED | BOXES | {"image/source_id": ""}, "cvat"),
    "Datumaro with images": (WHOLE | SHA256 | {"image/source_id": ""}, "tf_detection_api"),
    "the Keras guide": (KERAS, "keras_coco"),
    "TensorFlow's tutorial": (SQUARE | {"depth": 3, "image_raw": b"x"}, "image_classification"),
    "TF-Slim": (ENCODED | SLIM | SIZE, "slim_classification"),
    "TF-Slim without a size": (ENCODED | SLIM, "slim_classification"),
    "DeepLab's with boxes": (NAMED | DEEPLAB | BOXES, "tf_detection_api"),
    "many scripts": (SQUARE | {"channels": 3, "image": b"x"}, "image_label"),
    "the tutorial, but for the depth": (SQUARE | {"image_raw": b"x"}, "image_label"),
    "others": (SQUARE | {"img": b"x"}, "image_label"),
    "FiftyOne": ({"image_bytes": b"x", "filename": "a.jpg", "label": "cat"}, "image_label"),
}  # fmt: skip
"""What they write, and its profile."""


@pytest.mark.parametrize("writer", WRITERS)
def test_writers(writer: str) -> None:
    features, profile = WRITERS[writer]
    name, why = select_listed(encode(features))
    assert name == profile
    assert why.startswith("best fit: ") and "without" not in why


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (WHOLE, "12 of its 18 features are present"),
        (NAMED | BOXES, "10 of its 10 features are present"),
        (KERAS | {"area": 3}, "6 of its 7 features are present, area missing"),
        (
            BOXES,
            "6 of its 10 features are present, image/filename, image/source_id, "
            "image/height, image/width missing",
        ),
    ],
)
def test_reasons(features: dict[str, Any], reason: str) -> None:
    assert select_listed(encode(features))[1] == f"best fit: {reason}"


@pytest.mark.parametrize(
    "features",
    [
        {},
        {"fare": 1.5, "cabin_id": 3},
        {"height": 1, "width": 1},
        SQUARE,  # half of the tutorial's keys
        {"image": b"x", "objects/bbox": [0.1, 0.2, 0.3, 0.4], "objects/label": [0]},
        DEEPLAB,
        NAMED | {"image/lidar": [0.5]},
    ],
)
def test_none_fits(features: dict[str, Any]) -> None:
    assert select_listed(encode(features)) == select_listed() == ("", "")


def test_half_of_the_records_decide() -> None:
    whole, part = encode(NAMED | ENCODED), encode(NAMED | BOXES)
    assert select_listed(whole, part)[0] == "tf_detection_api"
    assert select_listed(whole, part, part)[0] == "cvat"


@pytest.mark.parametrize(
    ("detection", "table", "profile"),
    [(2, 2, "tf_detection_api"), (2, 3, ""), (32, 33, ""), (33, 32, "tf_detection_api")],
)
def test_a_table_beside_is_not_of_the_detection_that_few_records_are(
    detection: int, table: int, profile: str
) -> None:
    other = encode({"fare": 1.5, "cabin": "C85"})
    records = [*[encode(WHOLE)] * detection, *[other] * table]
    assert select_listed(*records)[0] == profile


def test_few_of_many_images_have_objects() -> None:
    """Writers that leave the lists out where there are no objects, with a key of their own."""
    score = {"my/score": 0.5}
    some, most = encode(NAMED | BOXES | score), encode(NAMED | score)
    assert select_listed(some, *[most] * 9)[0] == "cvat"
