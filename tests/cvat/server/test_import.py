"""Import of annotations into a task or a job: zips as others make them, and what an attack found.

Shown: ``.record`` files, shards, Roboflow's folders, label maps in odd but legal syntax or none at
all; what becomes of attributes, masks, odd boxes, and of the annotations of other jobs.
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
from cvat.apps.engine.models import (
    Annotations,
    AttributeSpec,
    AttributeType,
    Job,
    JobType,
    Label,
    Task,
)
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
    stored,
    tag,
    upload,
)
from tests.image_kinds import file_of, saved
from tests.records import encode, image, objects
from tests.records import frame as shard


def rows(task: Task) -> list[tuple[Any, ...]]:
    """Name of the frame, label and corners."""
    return [(name, label, points) for name, _, label, points, *_ in stored(task)]


def test_a_mask_without_a_pixel_is_its_box(tmp_path: Path) -> None:
    """Of cvat#6767: CVAT says 'zero-size array to reduction operation minimum' and stops."""
    found = put(
        tmp_path,
        make_task(),
        with_mask(np.zeros((HEIGHT, WIDTH), np.uint8)),
        name=MASKS,
        conv_mask_to_poly=False,
    )
    assert [(row[1], row[3]) for row in found] == [("rectangle", IN_PIXELS)]


def with_mask(mask: np.ndarray, **more: Any) -> bytes:
    """A record of one cat with this mask."""
    file = file_of(Image.fromarray(mask))
    return record("a.jpg", "cat", **{"image/object/mask": [file]}, **more)


OPEN_IMAGES = (
    b"item { id: 1 name: '/m/015p6' display_name: 'bird' }"
    b"item { id: 2 name: '/m/01yrx' display_name: 'cat' }"
)
LAYOUTS: dict[str, dict[str, bytes]] = {
    "any name": {"whatever.tfrecord": shard(record("a.jpg", "cat"), record("b.jpg", "bird"))},
    ".record": {"train.record": shard(record("a.jpg", "cat"), record("b.jpg", "bird"))},
    "shards": {
        "t.record-00000-of-00002": shard(record("a.jpg", "cat")),
        "t.record-00001-of-00002": shard(record("b.jpg", "bird")),
    },
    "two subsets": {
        "train.tfrecord": shard(record("a.jpg", "cat")),
        "val.tfrecord": shard(record("b.jpg", "bird")),
    },
    "in a folder": {"x/y/t.tfrecord": shard(record("a.jpg", "cat"), record("b.jpg", "bird"))},
    "ids and a label map": {
        "default.tfrecord": shard(record("a.jpg", ids=[2]), record("b.jpg", ids=[1])),
        "label_map.pbtxt": LABEL_MAP,
    },
    "texts, no label map": {"t.tfrecord": shard(record("a.jpg", "cat"), record("b.jpg", "bird"))},
    "odd syntax": {
        "t.tfrecord": shard(record("a.jpg", ids=[7]), record("b.jpg", ids=[3])),
        "label_map.pbtxt": (
            b"# by hand\nitem < name: 'bi' \"rd\"; id: 3, >\n"
            b"item: { id: 7 display_name: '\\143a' \"t\" }"
        ),
    },
    "Roboflow": {
        "train/Animals.tfrecord": shard(record("a.jpg", "cat")),
        "train/Animals_label_map.pbtxt": LABEL_MAP,
        "valid/Animals.tfrecord": shard(record("b.jpg", "bird")),
        "valid/Animals_label_map.pbtxt": LABEL_MAP,
        "README.roboflow.txt": b"Animals - v1",
    },
    "names of Open Images, by id": {
        "t.tfrecord": shard(record("a.jpg", ids=[2]), record("b.jpg", ids=[1])),
        "label_map.pbtxt": OPEN_IMAGES,
    },
    "names of Open Images, by text": {
        "t.tfrecord": shard(record("a.jpg", "/m/01yrx"), record("b.jpg", "/m/015p6")),
        "label_map.pbtxt": OPEN_IMAGES,
    },
    "junk of a Mac": {
        "t.tfrecord": shard(record("a.jpg", "cat"), record("b.jpg", "bird")),
        "__MACOSX/._t.tfrecord": b"\0\5\26\7" + bytes(60),
        ".DS_Store": b"junk",
    },
    "names with the folders of another machine": {
        "t.tfrecord": shard(record("/home/me/a.jpg", "cat"), record("C:\\data\\b.jpg", "bird"))
    },
    "compressed": {
        "t.tfrecord": gzip.compress(shard(record("a.jpg", "cat"), record("b.jpg", "bird")))
    },
    "deep down": {
        "a.tfrecord": shard(record("a.jpg", "cat")),
        "d/e/f/g/h/b.tfrecord": shard(record("b.jpg", "bird")),
    },
    # As in training with the OD API, the text decides: ids need not be the task's.
    "ids that differ from their texts": {
        "t.tfrecord": shard(record("a.jpg", "cat", ids=[1]), record("b.jpg", "bird", ids=[2])),
        "label_map.pbtxt": LABEL_MAP,
    },
    "a class in the label map that no box has": {
        "t.tfrecord": shard(record("a.jpg", "cat"), record("b.jpg", "bird")),
        "label_map.pbtxt": LABEL_MAP + b"item { id: 3 name: 'dog' }",
    },
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_zips_of_others(tmp_path: Path, temp_root: Path, layout: str) -> None:
    task = make_task(box(1, "bird"))
    import_into(task, upload(tmp_path, LAYOUTS[layout]), temp_root=str(temp_root))
    assert rows(task) == [("a.jpg", "cat", IN_PIXELS), ("b.jpg", "bird", IN_PIXELS)]
    assert list(temp_root.iterdir()) == []


@pytest.mark.parametrize("name", ["frame_1.png", "frame_00000001.jpg"])
def test_frames_of_a_video_as_others_number_them(tmp_path: Path, name: str) -> None:
    """Where every frame of the video is in the task, its digits are the frame's number.

    An attribute called frame does not move the image: CVAT goes by it before the digits.
    """
    task = make_task(is_video=True)
    extra = {"tfod/attributes": json.dumps({"image": {"frame": 0}})}
    put(tmp_path, task, record(name, "cat", **extra))
    assert [one["frame"] for one in task.annotations.shapes] == [1]


def test_boxes_that_hang_over_the_edge_are_cut(tmp_path: Path) -> None:
    own = objects([(-0.1, -0.1, 0.5, 1.05)], ["cat"])
    task = make_task()
    put(tmp_path, task, encode(image("a.jpg", HEIGHT, WIDTH) | own))
    assert rows(task) == [("a.jpg", "cat", (0.0, 0.0, 32.0, 48.0))]


def test_attributes_that_the_label_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Numbers become the label's texts; what it lacks is counted in the log."""
    keys = {f"image/object/{name}": [1] for name in ("occluded", "difficult", "truncated")}
    keys["image/caption"] = ["a yard", "with a cat"]
    ((*_, occluded, attributes),) = put(tmp_path, make_task(), record("a.jpg", "cat", **keys))
    assert occluded is True
    assert dict(attributes) == {"difficult": "true"}
    assert any("1 truncated" in line for line in caplog.messages)
    assert "captions of images, which CVAT cannot store: 2" in caplog.text


@pytest.mark.parametrize(
    ("kind", "values", "key", "stored_as"),
    [
        # CVAT ends an import at a checkbox that is neither true nor false.
        (AttributeType.CHECKBOX, "", {"image/object/truncated": [0.5]}, None),
        (AttributeType.SELECT, "no\nyes", {"image/object/difficult": [1]}, "yes"),
        (AttributeType.RADIO, "False\nTrue", {"image/object/difficult": [0]}, "False"),
        (AttributeType.SELECT, "a\nb", {"image/object/difficult": [1]}, None),
        (AttributeType.NUMBER, "0\n9\n1", {"image/object/difficult": [1]}, "1"),
        (AttributeType.TEXT, "", {"image/object/difficult": [1]}, "true"),
        (AttributeType.SELECT, "Left\nRight", {"image/object/view": ["Right"]}, "Right"),
        (AttributeType.SELECT, "Left\nRight", {"image/object/view": ["Rear"]}, None),
    ],
)
def test_attributes_are_of_the_kind_that_the_label_has(
    tmp_path: Path, kind: AttributeType, values: str, key: dict[str, Any], stored_as: str | None
) -> None:
    """A value that may not be chosen is left out: CVAT would store it, and its page stumble."""
    name = next(iter(key)).rpartition("/")[2]
    task = make_task()
    for label in task.labels:
        label.attributes = [AttributeSpec(name, kind, "", values=values)]
    ((*_, attributes),) = put(tmp_path, task, record("a.jpg", "cat", **key))
    assert dict(attributes).get(name) == stored_as


def test_what_was_there_is_replaced(tmp_path: Path) -> None:
    task = make_task(box(0, "bird"), box(2, "bird"), tags=[tag(0, "bird")])
    put(tmp_path, task, record("b.jpg", "cat"), record("a.jpg"), record("c.jpg"))
    assert rows(task) == [("b.jpg", "cat", IN_PIXELS)]
    assert task.annotations.tags == []


def test_a_job_replaces_its_own_frames(tmp_path: Path) -> None:
    task = make_task(box(0, "bird", 1, 1, 5, 5), box(1, "bird"), box(2, "bird"))
    put(tmp_path, Job(task, 1, 2), record("b.jpg", "cat"), record("c.jpg"))
    assert rows(task) == [("a.jpg", "bird", (1, 1, 5, 5)), ("b.jpg", "cat", IN_PIXELS)]


def test_a_zip_of_the_task_in_one_of_its_jobs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The job's frames are taken, the others counted."""
    task = make_task(box(0, "bird"), box(1, "cat"), box(2, "cat"), is_video=True, step=3)
    path = export(task, tmp_path).path
    task.annotations = Annotations([box(0, "bird", 1, 1, 2, 2)])
    found = import_into(Job(task, 1, 2), path)
    assert [(row[0], row[2], row[3]) for row in found] == [
        ("a.jpg", "bird", (1.0, 1.0, 2.0, 2.0)),
        ("b.jpg", "cat", (8.0, 6.0, 40.0, 30.0)),
        ("c.jpg", "cat", (8.0, 6.0, 40.0, 30.0)),
    ]
    assert "skipped 1 image of other jobs or tasks" in caplog.text


def test_images_of_other_tasks_can_be_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever they hold; their names may be numbers, or end as those of the task's frames."""
    monkeypatch.setenv("TFOD_CVAT_OTHER_FRAMES", "skip")
    task = make_task(frames=("day/a.jpg", "day/b.jpg", "day/c.jpg"))
    others = [record(name, "dog") for name in ("night/a.jpg", "1.jpg", "z.jpg", "")]
    others.append(encode(image("y.jpg", HEIGHT, WIDTH) | objects([IN_PIXELS, IN_PIXELS], ["cat"])))
    put(tmp_path, task, *others, record("day/b.png", "cat"))
    assert rows(task) == [("day/b.jpg", "cat", IN_PIXELS)]
    assert "skipped 5 images of other jobs or tasks" in caplog.text
    path = upload(tmp_path, {"t.tfrecord": shard(*others)})
    assert refusal(task, path).startswith("none of the 5 images is a frame of this task. ")
    monkeypatch.setenv("TFOD_CVAT_OTHER_FRAMES", "maybe")
    assert "TFOD_CVAT_OTHER_FRAMES is 'maybe'" in refusal(task, path)


def test_a_zip_of_the_task_in_its_job_of_ground_truth(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CVAT describes the whole range of such a job; its page shows the chosen frames alone."""
    task = make_task()
    job = Job(task, 0, 2, type=JobType.GROUND_TRUTH, chosen=(1,))
    put(tmp_path, job, *(record(name, "cat") for name in ("a.jpg", "b.jpg", "c.jpg")))
    assert rows(task) == [("b.jpg", "cat", IN_PIXELS)]
    assert "skipped 2 images of other jobs or tasks" in caplog.text


def where(task: Task) -> list[tuple[str, str]]:
    """Name of the frame and label of everything drawn."""
    return [(row[0], row[2]) for row in stored(task)]


@pytest.mark.parametrize(
    ("frames", "names"),
    [
        (("fr/0.jpg", "1.png", "fr/0/a.png"), ("1.png", "fr/0.jpg", "fr/0/a.png")),
        (("a.jpg", "q/a.jpg", "q/x/y/b.jpg", "x/y/b.jpg"), ("a.jpg", "x/y/b.jpg")),
        (("fr/a.png", "fr/b.png"), ("a.png", "b.png")),
    ],
)
def test_every_image_goes_to_its_own_frame(
    tmp_path: Path, frames: tuple[str, ...], names: tuple[str, ...]
) -> None:
    """CVAT's own lookup takes frame 0 for none found where names lie in folders."""
    task = make_task(frames=frames)
    put(tmp_path, task, *(record(name, "cat") for name in names))
    found = sorted(name for name, _ in where(task))
    assert [name.endswith(own) for name, own in zip(found, sorted(names), strict=True)]
    assert {name.rsplit("/")[-1] for name in found} == {name.rsplit("/")[-1] for name in names}
    assert len(found) == len(set(found)) == len(names)
    if all(name in frames for name in names):
        assert found == sorted(names)


@pytest.mark.parametrize("frames", [("a.jpg", "a.png"), ("a.png", "a.jpg"), ("a.v1", "a.v2")])
def test_frames_that_differ_in_their_extension(tmp_path: Path, frames: tuple[str, ...]) -> None:
    """CVAT's own lookup takes the last of them for all."""
    for name in frames:
        task = make_task(frames=frames)
        put(tmp_path, task, record(name, "cat"))
        assert where(task) == [(name, "cat")]
    task = make_task(frames=frames)
    put(tmp_path, task, *(record(name, "cat") for name in frames))
    assert where(task) == [(name, "cat") for name in sorted(frames)]


@pytest.mark.parametrize(
    ("names", "frames"),
    [
        (["a.jpg"], None),
        (["/home/me/night/a.jpg"], None),
        (["a.jpg", "b.jpg"], ["night/a.jpg", "night/b.jpg"]),
        (["night1.jpg"], ["night/night1.jpg"]),
    ],
)
def test_folders_that_names_lack(tmp_path: Path, names: list[str], frames: list[str]) -> None:
    """Of several folders CVAT takes the first, whether or not it has the other images."""
    task = make_task(frames=("day/a.jpg", "night/a.jpg", "night/b.jpg", "night/night1.jpg"))
    if frames:
        put(tmp_path, task, *(record(name, "cat") for name in names))
        assert [name for name, _ in where(task)] == frames
    else:
        path = upload(tmp_path, {"t.tfrecord": shard(*(record(name, "cat") for name in names))})
        assert refusal(task, path) == (
            f"the image matches no frame: {names[0]}. Nothing was changed. "
            "a.jpg exists in several folders (day/a.jpg, night/a.jpg); add the folder to the name. "
            "Frames are named like day/a.jpg."
        )


@pytest.mark.parametrize("name", ["DSC_0001.jpg", "kitten1.jpg", "IMG_00000001.jpg"])
def test_digits_behind_any_six_letters_are_no_frame(tmp_path: Path, name: str) -> None:
    task = make_task(is_video=True)
    path = upload(tmp_path, {"t.tfrecord": shard(record("frame_000000", "cat"), record(name))})
    assert f"{name!r} matches no frame" in refusal(task, path)


@pytest.mark.parametrize("score", [float("nan"), 7.0, -1.0, float("inf")])
def test_a_score_that_is_none_is_left_out(tmp_path: Path, score: float) -> None:
    task = make_task()
    payload = record("a.jpg", "cat", **{"image/object/attribute/score": [score]})
    assert len(put(tmp_path, task, payload)) == 1


@pytest.mark.parametrize(
    ("value", "stored_as"),
    [
        (2**63 - 1, "9223372036854775807"),
        (2**63, None),
        (-(2**63), None),
        (int("1" + "0" * 4000), None),
        ([1], None),
        ({"a": 1}, None),
        ("a\0b", None),
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, None),
    ],
    ids=[
        "largest",
        "too-large",
        "too-small",
        "huge",
        "list",
        "object",
        "NUL",
        "longest",
        "too-long",
    ],
)
def test_values_that_a_text_attribute_can_hold(
    tmp_path: Path, value: Any, stored_as: str | None
) -> None:
    task = make_task()
    extra = json.dumps({"objects": {"0": {"colour": value}}}).encode()
    put(tmp_path, task, record("a.jpg", "cat", **{"tfod/attributes": extra}))
    (found,) = task.annotations.shapes
    assert found["attributes"].get("colour") == stored_as


def png_bomb(width: int, height: int) -> bytes:
    """A PNG of so many black pixels, whose rows nobody needs to unpack to know its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_masks_are_not_unpacked_before_their_size_is_known(tmp_path: Path) -> None:
    payload = record("a.jpg", "cat", **{"image/object/mask": [png_bomb(60_000, 60_000)]})
    text = refusal(make_task(), upload(tmp_path, {"t.tfrecord": shard(payload)}), MASKS)
    assert f"is 60000x60000 pixels, but the image is {WIDTH}x{HEIGHT}" in text
    payload = record("a.jpg", "cat", **{"image/object/mask": [saved("L", "GIF")]})
    text = refusal(make_task(), upload(tmp_path, {"t.tfrecord": shard(payload)}), MASKS)
    assert "is not a PNG image" in text


def in_two_parts() -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[5:15, 5:15] = mask[25:40, 30:50] = 1
    return mask


def in_hundreds_of_parts() -> np.ndarray:
    rows, columns = np.indices((HEIGHT, WIDTH))
    return ((rows % 4 != 3) & (columns % 4 != 3)).astype(np.uint8)


KEYPOINTS = {
    **{f"image/object/keypoint/{axis}": [0.25, 0.5] for axis in "xy"},
    "image/object/keypoint/visibility": [2, 2],
}


@pytest.mark.parametrize(
    ("mask", "more", "kinds"),
    [
        (in_two_parts(), {}, ["polygon", "polygon"]),
        (in_two_parts(), KEYPOINTS, ["polygon", "polygon", "points"]),
        (in_hundreds_of_parts(), {}, ["mask"]),
    ],
    ids=["two parts", "with keypoints", "hundreds of parts"],
)
def test_the_parts_of_a_mask_are_one_group(
    tmp_path: Path, mask: np.ndarray, more: dict[str, Any], kinds: list[str]
) -> None:
    """Hundreds of parts stay a mask."""
    task = make_task()
    put(tmp_path, task, with_mask(mask, **more), name=MASKS, conv_mask_to_poly=True)
    assert [one["type"] for one in task.annotations.shapes] == kinds
    groups = [one["group"] for one in task.annotations.shapes if one["type"] == "polygon"]
    assert len(set(groups)) <= 1 and 0 not in groups


@pytest.mark.parametrize(
    ("name", "comes"),
    [
        ("rotation", False),
        ("score", False),
        ("occluded", False),
        ("source", True),
        ("outside", True),
        ("keyframe", True),
        ("track_id", True),
    ],
)
def test_attributes_named_like_cvats_own_do_no_harm(
    tmp_path: Path, name: str, comes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Those that do not come are counted, and are left to the label's default."""
    spec = AttributeSpec(name, AttributeType.SELECT, "no", values="no\nyes\n1")
    task = make_task(
        box(0, "cat", 5, 6, 30, 40, attributes={name: "1"}),
        tags=[{**tag(0, "cat"), "attributes": {name: "1"}}],
    )
    task.own_labels[:] = [Label("cat", [spec])]
    path = export(task, tmp_path).path
    import_into(task, path)
    (found,) = task.annotations.shapes
    assert found["points"] == pytest.approx([5, 6, 30, 40], abs=0.01)
    assert (found["rotation"], found["occluded"]) == (0, False)
    assert found["attributes"] == ({name: "1"} if comes else {})
    assert (f"{name}" in caplog.text) is not comes


def test_what_no_export_has_is_lost_by_an_import(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The notes of the export say so, and the log of the import, which is one of rectangles."""
    polygon = shape("polygon", 0, "cat", (1, 1, 9, 1, 9, 9))
    honeypots = {"frames": ["a.jpg", "b.jpg", "a.jpg"], "placeholders": [2]} if cvat.IS_NEW else {}
    drawn = polygon, box(1, "cat"), *[box(2, "cat")] * cvat.IS_NEW
    task = make_task(*drawn, deleted_frames=[1], **honeypots)
    found = export(task, tmp_path)
    notes = found.files["EXPORT_NOTES.txt"].decode()
    hidden = "1 deleted, 1 honeypots" if honeypots else "1 deleted"
    assert "- replaced by rectangles, which an import does not undo: 1 polygon\n" in notes
    caplog.clear()
    import_into(task, found.path)
    for text in (notes, caplog.text):
        assert hidden in text and ("ground truth" in text) is bool(honeypots)
    assert "become rectangles: 1 polygon" in caplog.text


@pytest.mark.parametrize("name", [BOXES, MASKS])
@pytest.mark.parametrize("kind", [AttributeType.NUMBER, AttributeType.TEXT])
def test_numbers_come_back_as_they_were_typed(tmp_path: Path, kind: Any, name: str) -> None:
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
        f"{1 << 64}",
    ]
    both = [{"area": text, "weights": text} for text in typed]
    shapes = [box(0, "cat", 1, 1, 9, 9 + side, attributes=one) for side, one in enumerate(both)]
    tags = [{**tag(1, "cat"), "attributes": one} for one in both]
    task = make_task(*shapes, tags=tags)
    task.own_labels[:] = [Label("cat", [AttributeSpec(one, kind, "0") for one in both[0]])]
    import_into(task, export(task, tmp_path, name).path)
    stored_shapes, stored_tags = task.annotations.shapes, task.annotations.tags
    assert [one["attributes"] for one in (*stored_shapes, *stored_tags)] == both * 2
