"""Which profile is chosen for what real and well-known writers write, and with which reason."""

from __future__ import annotations

from typing import Any

import pytest
from tfod.check.profiles.choice import KeyCounts, choose_profile
from tfod.detection.keys import OBJECT_ATTRIBUTES
from tfod.example.example import Example

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


def sample(*parts: dict[str, Any], without: tuple[str, ...] = ()) -> bytes:
    """A record of these features."""
    return encode(
        {key: value for part in parts for key, value in part.items() if key not in without}
    )


def choose(*records: bytes) -> tuple[str, str]:
    """The name of the profile that is chosen for records, and why; empty texts for none."""
    found = KeyCounts()
    for record in records:
        found.add(Example.from_bytes(record).batch)
    profile, why = choose_profile(found) or (None, "")
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


@pytest.mark.parametrize(
    ("writer", "record", "profile"),
    [
        ("create_pascal", sample(NAMED, ENCODED, SHA256, BOXES, PASCAL), "tf_detection_api"),
        (
            "create_pet",
            sample(NAMED, ENCODED, SHA256, BOXES, PASCAL, {"image/object/mask": [b"PNG"]}),
            "tf_detection_api",
        ),
        (
            "create_pet, numeric masks",
            sample(NAMED, ENCODED, SHA256, BOXES, PASCAL, {"image/object/mask": [0.0, 1.0]}),
            "tf_detection_api",
        ),
        (
            "create_kitti",
            sample(
                NAMED, ENCODED, SHA256, BOXES, KITTI_3D, PASCAL, {"image/object/truncated": [0.5]}
            ),
            "tf_detection_api",
        ),
        (
            "create_coco",
            sample(
                NAMED,
                ENCODED,
                SHA256,
                BOXES,
                {"image/object/is_crowd": [0]},
                {"image/object/area": [1.5]},
                without=("image/object/class/label",),
            ),
            "tf_detection_api",
        ),
        ("create_coco of an empty image", sample(NAMED, ENCODED, SHA256), "tf_detection_api"),
        (
            "create_coco's panoptic masks of an empty image",
            sample(NAMED, ENCODED, SHA256, {"image/panoptic/category_mask": b"PNG"}),
            "tf_detection_api",
        ),
        (
            "create_oid",
            sample(NAMED, ENCODED, BOXES, OCCURRENCES, without=NO_SIZE),
            "open_images",
        ),
        ("raccoon", sample(NAMED, ENCODED, BOXES, {"image/format": "jpg"}), "tf_detection_api"),
        ("Roboflow", sample(image(), ENCODED, BOXES), "roboflow"),
        ("Datumaro's Roboflow", sample(image(), ENCODED, SHA256, BOXES), "roboflow"),
        (
            "Datumaro's Roboflow without images",
            sample(image(), ENCODED, BOXES, {"image/encoded": b"", "image/format": ""}),
            "roboflow",
        ),
        ("pascal without an id", sample(image(), ENCODED, BOXES, PASCAL), "tf_detection_api"),
        ("CVAT", sample(NAMED, BOXES), "cvat"),
        ("CVAT, empty image", sample(NAMED, BOXES, {"image/encoded": b""}), "cvat"),
        ("CVAT with images", sample(NAMED, ENCODED, BOXES), "tf_detection_api"),
        ("Datumaro", sample(NAMED, BOXES, {"image/source_id": ""}), "cvat"),
        (
            "Datumaro with images",
            sample(NAMED, ENCODED, SHA256, BOXES, {"image/source_id": ""}),
            "tf_detection_api",
        ),
        ("the Keras guide", sample(KERAS), "keras_coco"),
        (
            "TensorFlow's tutorial",
            sample({"height": 1, "width": 1, "depth": 3, "label": 0, "image_raw": b"x"}),
            "image_classification",
        ),
        ("TF-Slim", sample(ENCODED, SLIM, SIZE), "slim_classification"),
        ("TF-Slim without a size", sample(ENCODED, SLIM), "slim_classification"),
        ("DeepLab's with boxes", sample(NAMED, DEEPLAB, BOXES), "tf_detection_api"),
        (
            "many scripts",
            sample({"height": 1, "width": 1, "channels": 3, "label": 0, "image": b"x"}),
            "image_label",
        ),
    ],
)
def test_writers(writer: str, record: bytes, profile: str) -> None:
    name, why = choose(record)
    assert name == profile, writer
    assert why.startswith("best fit: ") and "without" not in why


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (sample(NAMED, ENCODED, BOXES), "12 of its 18 features are there"),
        (sample(NAMED, BOXES), "10 of its 10 features are there"),
        (
            sample(BOXES),
            "6 of its 10 features are there, without image/filename, image/source_id, "
            "image/height, image/width",
        ),
    ],
)
def test_reasons(record: bytes, reason: str) -> None:
    assert choose(record)[1] == f"best fit: {reason}"


@pytest.mark.parametrize(
    "records",
    [
        [],
        [sample({})],
        [sample({"fare": 1.5, "cabin_id": 3})],
        [sample({"height": 1, "width": 1})],
        # Half of the tutorial's keys, and all but one: nothing says what they mean.
        [sample({"height": 1, "width": 1, "label": 0})],
        [sample({"height": 1, "width": 1, "label": 0, "image_raw": b"x"})],
        [sample({"width": 1, "height": 1, "label": 0, "img": b"x"})],
        [sample({"image": b"x", "objects/bbox": [0.1, 0.2, 0.3, 0.4], "objects/label": [0]})],
        [sample(KERAS, {"area": 3})],  # an int64 where a float is required
        [sample(DEEPLAB)],
        [sample(NAMED, {"image/lidar": [0.5]})],
    ],
)
def test_none_fits(records: list[bytes]) -> None:
    assert choose(*records) == ("", "")


def test_half_of_the_records_decide() -> None:
    whole, part = sample(NAMED, ENCODED), sample(NAMED, BOXES)
    assert choose(whole, part)[0] == "tf_detection_api"
    assert choose(whole, part, part)[0] == "cvat"


@pytest.mark.parametrize(
    ("detection", "table", "profile"),
    [(2, 2, "tf_detection_api"), (2, 3, ""), (32, 33, ""), (33, 32, "tf_detection_api")],
)
def test_a_table_beside_is_not_of_the_detection_that_few_records_are(
    detection: int, table: int, profile: str
) -> None:
    other = sample({"fare": 1.5, "cabin": "C85"})
    records = [*[sample(NAMED, ENCODED, BOXES)] * detection, *[other] * table]
    assert choose(*records)[0] == profile


def test_few_of_many_images_have_objects() -> None:
    """Writers that leave the lists out where there are no objects, with a key of their own."""
    score = {"my/score": 0.5}
    some, most = sample(NAMED, BOXES, score), sample(NAMED, score)
    assert choose(some, *[most] * 9)[0] == "cvat"
