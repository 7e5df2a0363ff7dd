"""Import of annotations into a task or a job: zips of other programs, and hostile ones.

Shown: shards, folders and label maps of all kinds; attributes, masks and boxes; the frames of
images, and the annotations of other jobs.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import cvat
import numpy as np
import pytest
from cvat.apps.engine.models import Annotations, AttributeSpec, AttributeType, Job, Label
from PIL import Image

from tests.cvat.server.tasks import (
    BOXES,
    HEIGHT,
    IN_PIXELS,
    LABEL_MAP,
    MASKS,
    WIDTH,
    box,
    export,
    import_into,
    make_task,
    put,
    record,
    refusal,
    shape,
    tag,
    upload,
)
from tests.image_kinds import file_of, saved
from tests.records import encode, image, objects
from tests.records import frame as shard

A_CAT, B_BIRD = record("a.jpg", "cat"), record("b.jpg", "bird")
BOTH = shard(A_CAT, B_BIRD)
OPEN_IMAGES = (
    b"item { id: 1 name: '/m/015p6' display_name: 'bird' }"
    b"item { id: 2 name: '/m/01yrx' display_name: 'cat' }"
)
OTHER_SYNTAX = (
    b"# by hand\nitem < name: 'bi' \"rd\"; id: 2, >\nitem: { id: 1 display_name: '\\143a' \"t\" }"
)


def with_map(label_map: bytes, cat: bytes, bird: bytes) -> dict[str, bytes]:
    return {"t.tfrecord": shard(cat, bird), "label_map.pbtxt": label_map}


def ids(cat: int, bird: int, *texts: str) -> tuple[bytes, bytes]:
    cat_text, bird_text = texts[:1], texts[1:]
    return record("a.jpg", *cat_text, ids=[cat]), record("b.jpg", *bird_text, ids=[bird])


LAYOUTS: dict[str, dict[str, bytes]] = {
    "any name in a folder": {"x/y/whatever.tfrecord": BOTH},
    "shards": {f"t.record-0000{i}-of-00002": shard(one) for i, one in enumerate((A_CAT, B_BIRD))},
    "subsets": {"a.tfrecord": shard(A_CAT), "d/e/f/g/h/b.record": shard(B_BIRD)},
    "Roboflow": {
        "train/Animals.tfrecord": shard(A_CAT),
        "train/Animals_label_map.pbtxt": LABEL_MAP,
        "valid/Animals.tfrecord": shard(B_BIRD),
        "valid/Animals_label_map.pbtxt": LABEL_MAP,
        "README.roboflow.txt": b"Animals - v1",
    },
    "compressed, with files of macOS": {
        "t.tfrecord": gzip.compress(BOTH),
        "__MACOSX/._t.tfrecord": b"\0\5\26\7" + bytes(60),
        ".DS_Store": b"junk",
    },
    "folders of another machine": {
        "t.tfrecord": shard(record("/home/me/a.jpg", "cat"), record("C:\\data\\b.jpg", "bird"))
    },
    "ids": with_map(LABEL_MAP, *ids(2, 1)),
    "ids of Open Images": with_map(OPEN_IMAGES, *ids(2, 1)),
    "other syntax": with_map(OTHER_SYNTAX, *ids(1, 2)),
    "texts of Open Images": with_map(
        OPEN_IMAGES, record("a.jpg", "/m/01yrx"), record("b.jpg", "/m/015p6")
    ),
    # Like in the training with the OD API, texts take precedence over ids.
    "texts and ids differ": with_map(
        LABEL_MAP + b"item { id: 3 name: 'dog' }", *ids(1, 2, "cat", "bird")
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_zips_of_other_programs(tmp_path: Path, temp_root: Path, layout: str) -> None:
    """The import replaces the annotations."""
    task = make_task(box(1, "bird"), tags=[tag(0, "bird")])
    rows = import_into(task, upload(tmp_path, LAYOUTS[layout]), temp_root=str(temp_root))
    assert [row[:4] for row in rows] == [
        ("a.jpg", "rectangle", "cat", IN_PIXELS),
        ("b.jpg", "rectangle", "bird", IN_PIXELS),
    ]
    assert task.annotations.tags == []
    assert list(temp_root.iterdir()) == []


def test_boxes_are_clipped_to_the_image(tmp_path: Path) -> None:
    payload = encode(image("a.jpg", HEIGHT, WIDTH) | objects([(-0.1, -0.1, 0.5, 1.05)], ["cat"]))
    ((*_, corners, _, _),) = put(tmp_path, make_task(), payload)
    assert corners == (0.0, 0.0, 32.0, 48.0)


class TestJobs:
    """An import into a job only changes the frames of the job."""

    def test_records_of_the_task(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        task = make_task(box(0, "bird"), box(1, "cat"), box(2, "cat"), is_video=True, step=3)
        path = export(task, tmp_path).path
        task.annotations = Annotations([box(0, "bird", 1, 1, 2, 2), box(1, "bird")])
        found = import_into(Job(task, 1, 2), path)
        assert [(row[0], row[2], row[3]) for row in found] == [
            ("a.jpg", "bird", (1.0, 1.0, 2.0, 2.0)),
            ("b.jpg", "cat", (8.0, 6.0, 40.0, 30.0)),
            ("c.jpg", "cat", (8.0, 6.0, 40.0, 30.0)),
        ]
        assert "skipped 1 image of other jobs or tasks" in caplog.text

    def test_ground_truth(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """CVAT describes the whole range of such a job; its page shows the selected frames."""
        job = Job(make_task(), 0, 2, type="ground_truth", chosen=(1,))
        found = put(tmp_path, job, *(record(f"{name}.jpg", "cat") for name in "abc"))
        assert [row[0] for row in found] == ["b.jpg"]
        assert "skipped 2 images of other jobs or tasks" in caplog.text

    def test_images_of_other_tasks_can_be_skipped(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their boxes do not matter. Their names may be numbers, or end like frame names."""
        monkeypatch.setenv("TFOD_CVAT_OTHER_FRAMES", "skip")
        task = make_task(frames=("day/a.jpg", "day/b.jpg", "day/c.jpg"))
        others = [record(name, "dog") for name in ("night/a.jpg", "1.jpg", "z.jpg", "")]
        boxes = objects([IN_PIXELS, IN_PIXELS], ["cat"])
        others.append(encode(image("y.jpg", HEIGHT, WIDTH) | boxes))
        found = put(tmp_path, task, *others, record("day/b.png", "cat"))
        assert [row[:4] for row in found] == [("day/b.jpg", "rectangle", "cat", IN_PIXELS)]
        assert "skipped 5 images of other jobs or tasks" in caplog.text
        path = upload(tmp_path, {"t.tfrecord": shard(*others)})
        assert refusal(task, path).startswith("none of the 5 images is a frame of this task. ")
        monkeypatch.setenv("TFOD_CVAT_OTHER_FRAMES", "maybe")
        assert "TFOD_CVAT_OTHER_FRAMES is 'maybe'" in refusal(task, path)


FOLDERS = ("day/a.jpg", "night/a.jpg", "night/b.jpg", "night/night1.jpg")


@pytest.mark.parametrize(
    ("frames", "names", "expected"),
    [
        # CVAT's lookup takes frame 0 for no match if names are in folders.
        (("fr/0.jpg", "1.png", "fr/0/a.png"), ("fr/0.jpg", "1.png", "fr/0/a.png"), None),
        (("a.jpg", "q/a.jpg", "q/x/y/b.jpg", "x/y/b.jpg"), ("a.jpg", "x/y/b.jpg"), None),
        (("fr/a.png", "fr/b.png"), ("a.png", "b.png"), ("fr/a.png", "fr/b.png")),
        (("a.png", "b.PNG", "c.bmp"), ("a.jpg", "b.jpg"), ("a.png", "b.PNG")),
        # It takes the last of these frames for all.
        *((names, names[:1], None) for names in (("a.jpg", "a.png"), ("a.png", "a.jpg"))),
        (("a.jpg", "a.png"), ("a.png", "a.jpg"), None),
        (("a.v1", "a.v2"), ("a.v1", "a.v2"), None),
        # If several folders match, it takes the first, even if other images are not in it.
        (FOLDERS, ("a.jpg", "b.jpg"), ("night/a.jpg", "night/b.jpg")),
        (FOLDERS, ("night1.jpg",), ("night/night1.jpg",)),
    ],
)
def test_frames_of_images(tmp_path: Path, frames: Any, names: Any, expected: Any) -> None:
    found = put(tmp_path, make_task(frames=frames), *(record(name, "cat") for name in names))
    assert [row[0] for row in found] == sorted(expected or names)


@pytest.mark.parametrize("name", ["a.jpg", "/home/me/night/a.jpg"])
def test_a_name_in_several_folders(tmp_path: Path, name: str) -> None:
    path = upload(tmp_path, {"t.tfrecord": shard(record(name, "cat"))})
    text = refusal(make_task(frames=FOLDERS), path)
    assert text.startswith(f"the image matches no frame: {name}. ")
    assert "a.jpg exists in several folders (day/a.jpg, night/a.jpg)" in text


@pytest.mark.parametrize("name", ["frame_1.png", "frame_00000001.jpg"])
def test_frame_numbers_of_other_programs(tmp_path: Path, name: str) -> None:
    """CVAT would use an attribute `frame` before the digits."""
    task = make_task(is_video=True)
    extra = {"tfod/attributes": json.dumps({"image": {"frame": 0}})}
    put(tmp_path, task, record(name, "cat", **extra))
    assert [one["frame"] for one in task.annotations.shapes] == [1]


@pytest.mark.parametrize("name", ["DSC_0001.jpg", "kitten1.jpg", "IMG_00000001.jpg"])
def test_other_digits_are_not_a_frame_number(tmp_path: Path, name: str) -> None:
    """CVAT would read the digits after any six letters."""
    path = upload(tmp_path, {"t.tfrecord": shard(record("frame_000000", "cat"), record(name))})
    assert f"{name!r} matches no frame" in refusal(make_task(is_video=True), path)


class TestAttributes:
    def test_those_of_the_label(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The log counts the others."""
        keys = {f"image/object/{name}": [1] for name in ("occluded", "difficult", "truncated")}
        keys["image/caption"] = ["a yard", "with a cat"]
        ((*_, occluded, attributes),) = put(tmp_path, make_task(), record("a.jpg", "cat", **keys))
        assert (occluded, dict(attributes)) == (True, {"difficult": "true"})
        assert any("1 truncated" in line for line in caplog.messages)
        assert "captions of images, which CVAT cannot store: 2" in caplog.text

    @pytest.mark.parametrize(
        ("kind", "values", "name", "value", "expected"),
        [
            # CVAT stops an import at a checkbox that is neither true nor false.
            (AttributeType.CHECKBOX, "", "truncated", 0.5, None),
            (AttributeType.SELECT, "no\nyes", "difficult", 1, "yes"),
            (AttributeType.RADIO, "False\nTrue", "difficult", 0, "False"),
            (AttributeType.SELECT, "a\nb", "difficult", 1, None),
            (AttributeType.NUMBER, "0\n9\n1", "difficult", 1, "1"),
            (AttributeType.TEXT, "", "difficult", 1, "true"),
            (AttributeType.SELECT, "Left\nRight", "view", "Right", "Right"),
            (AttributeType.SELECT, "Left\nRight", "view", "Rear", None),
        ],
    )
    def test_kinds(
        self, tmp_path: Path, kind: Any, values: str, name: str, value: Any, expected: str | None
    ) -> None:
        """CVAT would store a value that is not a choice, and its page would fail."""
        task = make_task()
        for label in task.labels:
            label.attributes = [AttributeSpec(name, kind, "", values=values)]
        payload = record("a.jpg", "cat", **{f"image/object/{name}": [value]})
        ((*_, attributes),) = put(tmp_path, task, payload)
        assert dict(attributes).get(name) == expected

    @pytest.mark.parametrize("score", [float("nan"), 7.0, -1.0, float("inf")])
    def test_invalid_scores(self, tmp_path: Path, score: float) -> None:
        payload = record("a.jpg", "cat", **{"image/object/attribute/score": [score]})
        assert len(put(tmp_path, make_task(), payload)) == 1

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            pytest.param(2**63 - 1, "9223372036854775807", id="largest"),
            pytest.param(2**63, None, id="too-large"),
            pytest.param(-(2**63), None, id="too-small"),
            pytest.param(int("1" + "0" * 4000), None, id="huge"),
            pytest.param([1], None, id="list"),
            pytest.param({"a": 1}, None, id="object"),
            pytest.param("a\0b", None, id="NUL"),
            pytest.param("x" * 4096, "x" * 4096, id="longest"),
            pytest.param("x" * 4097, None, id="too-long"),
        ],
    )
    def test_texts(self, tmp_path: Path, value: Any, expected: str | None) -> None:
        extra = json.dumps({"objects": {"0": {"colour": value}}}).encode()
        payload = record("a.jpg", "cat", **{"tfod/attributes": extra})
        ((*_, attributes),) = put(tmp_path, make_task(), payload)
        assert dict(attributes).get("colour") == expected

    @pytest.mark.parametrize(
        ("name", "returns"),
        [
            *((name, False) for name in ("rotation", "score", "occluded")),
            *((name, True) for name in ("source", "outside", "keyframe", "track_id")),
        ],
    )
    def test_names_of_cvat(
        self, tmp_path: Path, name: str, returns: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Lost values are counted, and become the default of the label."""
        spec = AttributeSpec(name, AttributeType.SELECT, "no", values="no\nyes\n1")
        task = make_task(
            box(0, "cat", 5, 6, 30, 40, attributes={name: "1"}),
            tags=[{**tag(0, "cat"), "attributes": {name: "1"}}],
        )
        task.own_labels[:] = [Label("cat", [spec])]
        import_into(task, export(task, tmp_path).path)
        (found,) = task.annotations.shapes
        assert found["points"] == pytest.approx([5, 6, 30, 40], abs=0.01)
        assert (found["rotation"], found["occluded"]) == (0, False)
        assert found["attributes"] == ({name: "1"} if returns else {})
        assert (name in caplog.text) is not returns

    @pytest.mark.parametrize("name", [BOXES, MASKS])
    @pytest.mark.parametrize("kind", [AttributeType.NUMBER, AttributeType.TEXT])
    def test_typed_numbers(self, tmp_path: Path, kind: Any, name: str) -> None:
        """They return with the same digits."""
        typed = [
            "12.34",
            "007",
            "1e1",
            "1.0",
            "1.50",
            "7",
            "-0",
            "0.1",
            "3.14159265358979",
            str(1 << 64),
        ]
        both = [{"area": text, "weights": text} for text in typed]
        shapes = [box(0, "cat", 1, 1, 9, 9 + side, attributes=one) for side, one in enumerate(both)]
        tags = [{**tag(1, "cat"), "attributes": one} for one in both]
        task = make_task(*shapes, tags=tags)
        task.own_labels[:] = [Label("cat", [AttributeSpec(one, kind, "0") for one in both[0]])]
        import_into(task, export(task, tmp_path, name).path)
        for found in (task.annotations.shapes, task.annotations.tags):
            assert [one["attributes"] for one in found] == both


def with_mask(file: bytes, **more: Any) -> bytes:
    """Return a record of one cat with this mask."""
    return record("a.jpg", "cat", **{"image/object/mask": [file]}, **more)


def png_bomb(width: int, height: int) -> bytes:
    """Return a PNG without rows, whose size is only in its head."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (png_bomb(60_000, 60_000), f"is 60000x60000 pixels, but the image is {WIDTH}x{HEIGHT}"),
        (saved("L", "GIF"), "is not a PNG image"),
    ],
    ids=["bomb", "GIF"],
)
def test_the_size_of_masks_is_checked_before_their_pixels(
    tmp_path: Path, file: bytes, message: str
) -> None:
    path = upload(tmp_path, {"t.tfrecord": shard(with_mask(file))})
    assert message in refusal(make_task(), path, MASKS)


ROWS, COLUMNS = np.indices((HEIGHT, WIDTH))
TWO_PARTS = ((ROWS < 15) & (COLUMNS < 15)) | ((ROWS > 25) & (COLUMNS > 30))
KEYPOINTS = {
    **{f"image/object/keypoint/{axis}": [0.25, 0.5] for axis in "xy"},
    "image/object/keypoint/visibility": [2, 2],
}


@pytest.mark.parametrize(
    ("mask", "more", "kinds"),
    [
        (TWO_PARTS, {}, ["polygon", "polygon"]),
        (TWO_PARTS, KEYPOINTS, ["polygon", "polygon", "points"]),
        ((ROWS % 4 != 3) & (COLUMNS % 4 != 3), {}, ["mask"]),
        (np.zeros((HEIGHT, WIDTH)), {}, ["rectangle"]),  # CVAT's import stops in cvat#6767
    ],
    ids=["two parts", "with keypoints", "hundreds of parts", "no pixel"],
)
def test_the_parts_of_a_mask_are_a_group(
    tmp_path: Path, mask: np.ndarray, more: dict[str, Any], kinds: list[str]
) -> None:
    task = make_task()
    payload = with_mask(file_of(Image.fromarray(mask.astype(np.uint8))), **more)
    put(tmp_path, task, payload, name=MASKS, conv_mask_to_poly=True)
    shapes = task.annotations.shapes
    assert [one["type"] for one in shapes] == kinds
    groups = [one["group"] for one in shapes if one["type"] == "polygon"]
    assert len(set(groups)) <= 1 and 0 not in groups
    rectangles = [tuple(one["points"]) for one in shapes if one["type"] == "rectangle"]
    assert rectangles == [IN_PIXELS] * kinds.count("rectangle")


def test_losses_of_a_round_trip(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are in the notes of the export, and in the log of the import."""
    polygon = shape("polygon", 0, "cat", (1, 1, 9, 1, 9, 9))
    honeypots = {"frames": ["a.jpg", "b.jpg", "a.jpg"], "placeholders": [2]} if cvat.IS_NEW else {}
    drawn = polygon, box(1, "cat"), *[box(2, "cat")] * cvat.IS_NEW
    task = make_task(*drawn, deleted_frames=[1], **honeypots)
    found = export(task, tmp_path)
    hidden = "1 deleted, 1 honeypots" if honeypots else "1 deleted"
    assert "- replaced by rectangles, which an import does not undo: 1 polygon\n" in found.notes
    caplog.clear()
    import_into(task, found.path)
    for text in (found.notes, caplog.text):
        assert hidden in text and ("ground truth" in text) is bool(honeypots)
    assert "become rectangles: 1 polygon" in caplog.text
