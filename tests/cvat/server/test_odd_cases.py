"""What an attack has found: wrong frames, lost shards, bombs, values that CVAT cannot hold."""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import cvat
import numpy as np
import pytest
from cvat.apps.dataset_manager.bindings import CvatImportError, TaskData
from cvat.apps.dataset_manager.formats.registry import make_exporter
from cvat.apps.dataset_manager.project import import_dataset_as_project
from cvat.apps.engine.models import AttributeSpec, AttributeType, Label, Project, Task
from PIL import Image

from tests.cvat.server.tasks import (
    BOXES,
    FULL,
    HEIGHT,
    MASKS,
    WIDTH,
    box,
    export,
    image_bytes,
    import_into,
    labels,
    make_task,
    record,
    refusal,
    shape,
    stored,
    upload,
)
from tests.records import encode, image, objects
from tests.records import frame as shard


def where(task: Task) -> list[tuple[str, str]]:
    """Name of the frame and label of everything drawn."""
    return [(row[0], row[2]) for row in stored(task)]


def put(tmp_path: Path, task: Task, *records: bytes, **more: Any) -> list[Any]:
    return import_into(task, upload(tmp_path, {"t.tfrecord": shard(*records)}), **more)


def test_shards_deep_down_are_imported(tmp_path: Path) -> None:
    task = make_task(box(2, "bird"))
    files = {
        "a.tfrecord": shard(record("a.jpg", "cat")),
        "d/e/f/g/h/b.tfrecord": shard(record("b.jpg", "cat")),
    }
    import_into(task, upload(tmp_path, files))
    assert where(task) == [("a.jpg", "cat"), ("b.jpg", "cat")]


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
            "a.jpg is in several folders (day/a.jpg, night/a.jpg): name one. "
            "Frames are named like day/a.jpg."
        )


@pytest.mark.parametrize("name", ["DSC_0001.jpg", "kitten1.jpg", "IMG_00000001.jpg"])
def test_digits_behind_any_six_letters_are_no_frame(tmp_path: Path, name: str) -> None:
    task = make_task(is_video=True)
    path = upload(tmp_path, {"t.tfrecord": shard(record(name, "cat"))})
    assert f"{name!r} matches no frame" in refusal(task, path)


@pytest.mark.parametrize("score", [float("nan"), 7.0, -1.0, float("inf")])
def test_a_score_that_is_none_is_left_out(tmp_path: Path, score: float) -> None:
    task = make_task()
    payload = record("a.jpg", "cat", **{"image/object/attribute/score": [score]})
    assert len(put(tmp_path, task, payload)) == 1


def test_numbers_beyond_every_column_are_left_out(tmp_path: Path) -> None:
    task = make_task()
    extra = '{"objects":{"0":{"count":1' + "0" * 4000 + ',"colour":"a\\u0000b"}}}'
    put(tmp_path, task, record("a.jpg", "cat", **{"tfod/attributes": extra.encode()}))
    (found,) = task.annotations.shapes
    assert "colour" not in found["attributes"] and "count" not in found["attributes"]


@pytest.mark.parametrize(
    ("value", "stored_as"),
    [
        (2**63 - 1, "9223372036854775807"),
        (2**63, None),
        (-(2**63), None),
        ([1], None),
        ({"a": 1}, None),
        ("x" * 4096, "x" * 4096),
        ("x" * 4097, None),
    ],
    ids=["largest", "too large", "too small", "list", "object", "longest text", "too long"],
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
    assert f"is 60000x60000 pixels, its image {WIDTH}x{HEIGHT}" in text
    gif = io.BytesIO()
    Image.new("L", (WIDTH, HEIGHT)).save(gif, "GIF")
    payload = record("a.jpg", "cat", **{"image/object/mask": [gif.getvalue()]})
    text = refusal(make_task(), upload(tmp_path, {"t.tfrecord": shard(payload)}), MASKS)
    assert "is not a PNG image" in text


def test_a_mask_in_two_parts_is_one_group(tmp_path: Path) -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[5:15, 5:15] = mask[25:40, 30:50] = 1
    png = io.BytesIO()
    Image.fromarray(mask).save(png, "PNG")
    payload = record("a.jpg", "cat", **{"image/object/mask": [png.getvalue()]})
    task = make_task()
    put(tmp_path, task, payload, name=MASKS, conv_mask_to_poly=True)
    assert [one["type"] for one in task.annotations.shapes] == ["polygon", "polygon"]
    first, second = (one["group"] for one in task.annotations.shapes)
    assert first == second != 0


def test_the_parts_of_a_mask_with_keypoints_stay_in_their_group(tmp_path: Path) -> None:
    """A record's mask and keypoints of one object are a group to Datumaro."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[5:15, 5:15] = mask[25:40, 30:50] = 1
    png = io.BytesIO()
    Image.fromarray(mask).save(png, "PNG")
    keypoints = {f"image/object/keypoint/{axis}": [0.25, 0.5] for axis in "xy"}
    payload = record(
        "a.jpg",
        "cat",
        **{"image/object/mask": [png.getvalue()], "image/object/keypoint/visibility": [2, 2]},
        **keypoints,
    )
    task = make_task()
    put(tmp_path, task, payload, name=MASKS, conv_mask_to_poly=True)
    groups = [(one["type"], one["group"]) for one in task.annotations.shapes]
    assert groups == [("polygon", 1), ("polygon", 1), ("points", 1)]


def test_a_mask_of_hundreds_of_parts_stays_a_mask(tmp_path: Path) -> None:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    rows, columns = np.indices(mask.shape)
    mask[(rows % 4 != 3) & (columns % 4 != 3)] = 1
    png = io.BytesIO()
    Image.fromarray(mask).save(png, "PNG")
    payload = record("a.jpg", "cat", **{"image/object/mask": [png.getvalue()]})
    task = make_task()
    put(tmp_path, task, payload, name=MASKS, conv_mask_to_poly=True)
    assert [one["type"] for one in task.annotations.shapes] == ["mask"]


@pytest.mark.parametrize("name", ["rotation", "source", "score", "occluded", "outside", "keyframe"])
def test_attributes_named_like_cvats_own_do_no_harm(tmp_path: Path, name: str) -> None:
    spec = AttributeSpec(name, AttributeType.NUMBER, "1")
    task = make_task(box(0, "cat", 5, 6, 30, 40, attributes={name: "45"}))
    task.own_labels[:] = [Label("cat", [spec])]
    path = export(task, tmp_path).path
    import_into(task, path)
    (found,) = task.annotations.shapes
    assert found["points"] == pytest.approx([5, 6, 30, 40], abs=0.01)
    assert found["rotation"] == 0


def test_numbers_come_back_as_they_were_typed(tmp_path: Path) -> None:
    spec = AttributeSpec("area", AttributeType.NUMBER, "0")
    task = make_task(box(0, "cat", attributes={"area": "12.34"}))
    task.own_labels[:] = [Label("cat", [spec])]
    import_into(task, export(task, tmp_path).path)
    assert task.annotations.shapes[0]["attributes"] == {"area": "12.34"}


def test_rectangles_drawn_from_the_wrong_corner_are_exported(tmp_path: Path) -> None:
    found = export(make_task(box(0, "cat", 30, 40, 10, 8)), tmp_path)
    assert found.boxes()["a.jpg"] == [("cat", 10.0, 8.0, 30.0, 40.0)]


def test_shapes_outside_of_the_image_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = make_task(
        box(0, "cat", 100, 100, 120, 120),
        shape("polygon", 0, "cat", (-30, -30, -10, -30, -10, -10)),
        box(0, "cat", 1, 2, 3, 4),
    )
    found = export(task, tmp_path)
    assert found.boxes()["a.jpg"] == [("cat", 1.0, 2.0, 3.0, 4.0)]
    assert "not written, wholly outside their frame: 2 shapes" in caplog.text


def test_ids_without_a_label_map_are_told_as_such(tmp_path: Path) -> None:
    path = upload(tmp_path, {"t.tfrecord": shard(record("a.jpg", ids=[1]))})
    assert refusal(make_task(), path).startswith("objects have only ids (#1) and no label map")


def with_image(name: str) -> bytes:
    own = {**image(name, HEIGHT, WIDTH), "image/encoded": image_bytes(name)}
    return encode(own | objects([FULL], ["cat"]))


def import_dataset(tmp_path: Path, files: dict[str, bytes]) -> Project:
    project = Project(labels("bird", "cat"))
    root = tmp_path / "root"
    root.mkdir()
    import_dataset_as_project(upload(tmp_path, files), project, BOXES, temp_root=str(root))
    return project


def test_images_get_a_images_extension(tmp_path: Path) -> None:
    """CVAT goes by extensions: manifest.jsonl is something else to it, whatever it holds."""
    names = ("manifest.jsonl", "a.zip", "b.mp4")
    project = import_dataset(tmp_path, {"t.tfrecord": shard(*(with_image(name) for name in names))})
    found = sorted(one.name for one in project.tasks[0].frames)
    assert all(name.endswith(".jpg") for name in found) and len(found) == 3


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (
            {"x" * 70 + ".tfrecord": shard(with_image("a.jpg"))},
            "CVAT takes 64. Nothing was changed. Rename its shard",
        ),
        (
            {"t.tfrecord": shard(with_image("a.jpg"), with_image("a.jpg/b.jpg"))},
            "cannot have its name on disk",
        ),
        ({"t.tfrecord": shard(with_image("n" * 300 + ".jpg"))}, "cannot have its name on disk"),
    ],
)
def test_names_that_no_disk_or_table_takes(
    tmp_path: Path, files: dict[str, bytes], text: str
) -> None:
    with pytest.raises(CvatImportError) as caught:
        import_dataset(tmp_path, files)
    assert text in str(caught.value)
    assert "administrator" not in str(caught.value)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_an_export_on_a_full_disk_shows_no_path_of_the_server(tmp_path: Path) -> None:
    """The zip is written last, and is the largest."""
    task = make_task(box(0, "cat"))
    with pytest.raises(Exception) as caught:
        make_exporter(BOXES)("/dev/full", str(tmp_path), TaskData(task.annotations, task))
    assert str(caught.value) == "the server's disk is full; ask its administrator"
    if cvat.IS_NEW:
        assert type(caught.value).__name__ == "CvatExportError"
