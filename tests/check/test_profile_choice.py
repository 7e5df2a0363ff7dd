"""Which profile is chosen for what real and well-known writers write, and with which reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tfod.check.profiles.choice import Sample, choose_profile, samples_of
from tfod.check.profiles.profile import READY
from tfod.detection.keys import BOX, OBJECT_ATTRIBUTES
from tfod.detection.stream import read_batches
from tfod.example.example import Example
from tfod.example.wire import Kind

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


def sample(*parts: dict[str, Any], without: tuple[str, ...] = ()) -> Sample:
    """The sample of a record made of these features."""
    features = {key: value for part in parts for key, value in part.items() if key not in without}
    return samples_of(Example.from_bytes(encode(features)).batch)[0]


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
def test_writers(writer: str, record: Sample, profile: str) -> None:
    chosen = choose_profile([record])
    assert chosen is not None, writer
    assert chosen[0] is READY[profile] and chosen[1].startswith("best fit: ")


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (
            [sample(NAMED, ENCODED, BOXES)],
            "best fit: image/encoded is there, with 12 of its "
            f"{len(READY['tf_detection_api'].features)} features",
        ),
        (
            [sample(NAMED, BOXES)],
            "best fit: no images, and all 4 required features are there, with 10 of its 10 "
            "features",
        ),
        (
            [sample(NAMED, BOXES), sample(NAMED, BOXES), sample(NAMED, ENCODED, BOXES)],
            "best fit: few images, and all 4 required features are there, with 10 of its 10 "
            "features",
        ),
        (
            [sample(image(), ENCODED, BOXES)],
            "best fit: all 5 required features are there, with 11 of its 11 features",
        ),
        (
            [sample(NAMED, ENCODED, without=("image/format",))],
            "best fit: image/encoded is there, with 5 of its "
            f"{len(READY['tf_detection_api'].features)} features",
        ),
        (
            [sample(BOXES)],
            "nearest: image/filename, image/source_id, image/height and image/width are missing",
        ),
        (
            # Each has the half of what CVAT's layout has.
            [
                sample(NAMED, without=("image/filename", "image/height")),
                sample(NAMED, without=("image/source_id", "image/width")),
            ],
            "nearest: few records have all of image/filename, image/source_id, image/height and "
            "image/width",
        ),
    ],
)
def test_reasons(samples: list[Sample], reason: str) -> None:
    chosen = choose_profile(samples)
    assert chosen is not None and chosen[1] == reason


@pytest.mark.parametrize(
    "samples",
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
        [{key: (None, False) for key in READY["tf_detection_api"].features if key not in BOX}],
    ],
)
def test_nothing_is_near(samples: list[Sample]) -> None:
    assert choose_profile(samples) is None


def test_half_of_the_records_decide() -> None:
    whole, part = sample(NAMED, ENCODED), sample(NAMED, BOXES)
    assert (choose_profile([whole, part]) or "")[0] is READY["tf_detection_api"]
    assert (choose_profile([whole, part, part]) or "")[0] is READY["cvat"]


@pytest.mark.parametrize(
    ("detection", "table", "profile"),
    [(2, 2, "tf_detection_api"), (2, 3, None), (32, 33, None), (33, 32, "tf_detection_api")],
)
def test_a_table_beside_is_not_of_the_detection_that_few_records_are(
    detection: int, table: int, profile: str | None
) -> None:
    other = sample({"fare": 1.5, "cabin": "C85"})
    chosen = choose_profile([*[sample(NAMED, ENCODED, BOXES)] * detection, *[other] * table])
    assert (chosen and chosen[0].name) == profile


def test_few_of_many_images_have_objects() -> None:
    """Writers that leave the lists out where there are no objects, with a key of their own."""
    score = {"my/score": 0.5}
    some, most = sample(NAMED, BOXES, score), sample(NAMED, score)
    assert (choose_profile([some, *[most] * 9]) or "")[0] is READY["cvat"]


def test_what_a_sample_says() -> None:
    output = sample({"a": b"", "b": ["", "x"], "c": [], "d": [0.0]})
    assert output == {
        "a": (Kind.BYTES, False),
        "b": (Kind.BYTES, True),
        "c": (Kind.INT64, False),
        "d": (Kind.FLOAT, True),
    }


@pytest.mark.parametrize(
    ("folder", "profile"),
    [
        ("anki-overdrive-cars", "tf_detection_api"),
        ("blood-cells", "tf_detection_api"),
        ("hyphal-tips", "tf_detection_api"),
        ("drawn-rectangles", "tf_detection_api"),
        ("datumaro-tf-detection-api", "tf_detection_api"),
        ("datumaro-roboflow", "roboflow"),
        ("titanic-table", None),
        ("viewer-sample", None),
    ],
)
def test_real_shards(corpus: Path, folder: str, profile: str | None) -> None:
    shards = sorted({*corpus.joinpath(folder).rglob("*.*record")})
    assert shards
    for shard in shards:
        chosen = choose_profile([one for batch in read_batches(shard) for one in samples_of(batch)])
        assert (chosen and chosen[0].name) == profile, shard
        assert chosen is None or chosen[1].startswith("best fit: ")
