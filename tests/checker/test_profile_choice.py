"""The profile that is chosen for real and well-known writers, and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tfod.detection.keys import OBJECT_ATTRIBUTES
from tfod.example.example import Example
from tfod.sources.layouts import KeyCounts, choose_layout

from tests.records import encode, image, objects

ENCODED = {"image/encoded": b"\xff\xd8\xff", "image/format": "jpeg"}
EMPTY = {"image/encoded": b"", "image/format": ""}
BOXES = objects([[0, 0, 1, 1]], ["cat"], [1])
SHA256 = {"image/key/sha256": "0" * 64}
PASCAL: dict[str, Any] = {f"image/object/{name}": [0] for name in ("difficult", "truncated")}
PASCAL["image/object/view"] = ["left"]
KITTI_3D = {one.key: [0.5] for one in OBJECT_ATTRIBUTES if "3d_bbox" in one.key}
OCCURRENCES = {f"image/object/{name}": [0] for name in ("group_of", "occluded", "depiction")}
KERAS = {"image": b"\xff\xd8\xff", "path": "a.jpg", "area": 2.0, "bbox": [1.0, 2.0, 3.0, 4.0]}
KERAS |= {"category_id": 1, "id": 7, "image_id": 9}
SIZE = {"image/height": 1, "image/width": 1}
SLIM = {"image/class/label": [0]}
SEGMENTATION = {"class/encoded": b"PNG", "class/format": "png"}
DEEPLAB = {f"image/segmentation/{key}": value for key, value in SEGMENTATION.items()}
DEEPLAB |= {**image(), **ENCODED, "image/channels": 3}
NAMED = image() | {"image/source_id": "a.jpg"}
WHOLE = NAMED | ENCODED | BOXES
COCO = NAMED | ENCODED | SHA256
OPEN_IMAGES = WHOLE | OCCURRENCES
for key in ("image/height", "image/width", "image/format"):
    del OPEN_IMAGES[key]
SQUARE = {"height": 1, "width": 1, "label": 0}
CROWD = {"image/object/is_crowd": [0], "image/object/area": [1.5]}
WRITERS: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "tf_detection_api": {
        "create_pascal": WHOLE | SHA256 | PASCAL,
        "create_pet": WHOLE | SHA256 | PASCAL | {"image/object/mask": [b"PNG"]},
        "create_pet, numeric masks": WHOLE | SHA256 | PASCAL | {"image/object/mask": [0.0, 1.0]},
        "create_kitti": WHOLE | SHA256 | KITTI_3D | PASCAL | {"image/object/truncated": [0.5]},
        "create_coco": COCO | objects([[0, 0, 1, 1]], ["cat"]) | CROWD,
        "create_coco of an empty image": COCO,
        "create_coco, panoptic masks": COCO | {"image/panoptic/category_mask": b"PNG"},
        "raccoon": WHOLE | {"image/format": "jpg"},
        "pascal without an id": image() | ENCODED | BOXES | PASCAL,
        "CVAT with images": WHOLE,
        "Datumaro with images": WHOLE | SHA256 | {"image/source_id": ""},
        "DeepLab's with boxes": NAMED | DEEPLAB | BOXES,
    },
    "open_images": {"create_oid": OPEN_IMAGES},
    "roboflow": {
        "Roboflow": image() | ENCODED | BOXES,
        "Datumaro's": image() | ENCODED | SHA256 | BOXES,
        "Datumaro's without images": image() | BOXES | EMPTY,
    },
    "cvat": {
        "CVAT": NAMED | BOXES,
        "CVAT, empty image": NAMED | BOXES | {"image/encoded": b""},
        "Datumaro": NAMED | BOXES | {"image/source_id": ""},
    },
    "keras_coco": {"the Keras guide": KERAS},
    "image_classification": {"TensorFlow's tutorial": SQUARE | {"depth": 3, "image_raw": b"x"}},
    "slim_classification": {"TF-Slim": ENCODED | SLIM | SIZE, "without a size": ENCODED | SLIM},
    "image_label": {
        "many scripts": SQUARE | {"channels": 3, "image": b"x"},
        "the tutorial without the depth": SQUARE | {"image_raw": b"x"},
        "others": SQUARE | {"img": b"x"},
        "FiftyOne": {"image_bytes": b"x", "filename": "a.jpg", "label": "cat"},
    },
}
"""The features of records by writer, by profile."""


def chosen(*records: Mapping[str, Any]) -> tuple[str, str]:
    """The name of the profile for records, and the reason; empty texts for none."""
    found = KeyCounts()
    for record in records:
        found.add(Example.from_bytes(encode(record)).batch)
    profile, why = choose_layout(found) or (None, "")
    return profile.name if profile else "", why


@pytest.mark.parametrize(("profile", "writers"), WRITERS.items(), ids=WRITERS)
def test_writers(profile: str, writers: Mapping[str, dict[str, Any]]) -> None:
    for writer, features in writers.items():
        name, why = chosen(features)
        assert name == profile, writer
        assert why.startswith("best fit: ") and "without" not in why, writer


@pytest.mark.parametrize(
    ("features", "present", "missing"),
    [
        (WHOLE, "12 of its 18", ""),
        (NAMED | BOXES, "10 of its 10", ""),
        (KERAS | {"area": 3}, "6 of its 7", ", area missing"),
        (
            *(BOXES, "6 of its 10"),
            ", image/filename, image/source_id, image/height, image/width missing",
        ),
    ],
)
def test_reasons(features: dict[str, Any], present: str, missing: str) -> None:
    assert chosen(features)[1] == f"best fit: {present} features are present{missing}"


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
    assert chosen(features) == chosen() == ("", "")


TABLE = {"fare": 1.5, "cabin": "C85"}
SCORED = NAMED | {"my/score": 0.5}


@pytest.mark.parametrize(
    ("counts", "profile"),
    [
        # Half of the records decide.
        ([(NAMED | ENCODED, 1), (NAMED | BOXES, 1)], "tf_detection_api"),
        ([(NAMED | ENCODED, 1), (NAMED | BOXES, 2)], "cvat"),
        # A table with a few detection records has no profile.
        ([(WHOLE, 2), (TABLE, 2)], "tf_detection_api"),
        ([(WHOLE, 2), (TABLE, 3)], ""),
        ([(WHOLE, 32), (TABLE, 33)], ""),
        ([(WHOLE, 33), (TABLE, 32)], "tf_detection_api"),
        # Some writers leave the lists out if there are no objects.
        ([(SCORED | BOXES, 1), (SCORED, 9)], "cvat"),
    ],
)
def test_mixed_records(counts: Any, profile: str) -> None:
    assert chosen(*(record for record, count in counts for _ in range(count)))[0] == profile
