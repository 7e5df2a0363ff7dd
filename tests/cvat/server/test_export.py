"""Export of tasks and jobs, read with our reader: names, boxes, frame numbers and attributes.

Shown: all kinds of shapes and tracks, frames of videos, deleted and empty frames. One line of the
log counts what the shards cannot store.
"""

from __future__ import annotations

import hashlib
import io
import logging
import sys
from functools import partial
from pathlib import Path
from typing import Any

import cvat
import pytest
import tfod
from cvat.apps.dataset_manager.bindings import TaskData
from cvat.apps.dataset_manager.formats.registry import make_exporter
from cvat.apps.engine.models import AttributeSpec, AttributeType, Frame, Job, Label, Project
from PIL import Image

from tests.cvat.server.tasks import (
    BOXES,
    HEIGHT,
    WIDTH,
    box,
    export,
    image_bytes,
    make_task,
    shape,
    tag,
    track,
)
from tests.files import write_files
from tests.image_kinds import plain_image

FULL = ("cat", 8.0, 6.0, 40.0, 30.0)
NAMES = ["a.jpg", "b.jpg", "c.jpg"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.name == "tfod.cvat" and one.levelno >= logging.WARNING
    ]


def test_a_shard_and_a_label_map(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Only changes are logged. CVAT passes all attributes of a tag, with their defaults."""
    shapes = [box(0, "cat", attributes={"difficult": "true"}), box(0, "bird", 1, 2, 3.5, 4.25)]
    found = export(make_task(*shapes, tags=[tag(1, "cat")]), tmp_path)
    assert sorted(found.files) == ["default.tfrecord", "label_map.pbtxt"]
    birds = [("bird", 1.0, 2.0, 3.5, 4.25), FULL]
    assert found.boxes() == {"a.jpg": birds, "b.jpg": [], "c.jpg": []}
    assert [(one.id, one.name) for one in found.label_map.items] == [(1, "bird"), (2, "cat")]
    first = found.records[0]
    assert list(first.class_label or ()) == [1, 2]
    assert (first.width, first.height, len(first.encoded or b"")) == (WIDTH, HEIGHT, 0)
    assert warnings(caplog) == []


@pytest.mark.parametrize("save_images", [False, True])
def test_names_of_frames_and_subset(tmp_path: Path, save_images: bool) -> None:
    """New servers change extensions of items to lower case, old ones forget the subset."""
    names = ["in/side/a.jpg", "b.v2.final.png", "кадр 1.jpg", "frame.000123.jpg", "A.JPG"]
    task = make_task(box(1, "cat"), frames=names, subset="train")
    found = export(task, tmp_path, save_images=save_images)
    assert list(found.subsets) == ["train"]
    assert found.names() == names
    assert found.boxes()["b.v2.final.png"] == [FULL]
    assert [one.source_id for one in found.records] == ["1", "2", "3", "4", "5"]


def test_images_are_the_uploaded_bytes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Except for rotated photos, which CVAT writes with a quality of 100."""
    names = ["a.jpg", "b.PNG", "c.png"]
    found = export(make_task(box(0, "cat"), frames=names), tmp_path, save_images=True)
    for name, record in zip(names, found.records, strict=True):
        kind = "PNG" if name.lower().endswith("png") else "JPEG"
        expected = image_bytes(name, kind, (WIDTH, HEIGHT))
        assert bytes(record.encoded or b"") == expected
        assert record.sha256 == hashlib.sha256(expected).hexdigest()
        assert record.format == kind.lower()
    assert warnings(caplog) == []
    rotated = plain_image((WIDTH, HEIGHT), quality=100, subsampling=0)
    export(make_task(frames=[Frame("d.jpg", WIDTH, HEIGHT, rotated)]), tmp_path, save_images=True)
    assert "EXIF orientation and encoded again (JPEG quality 100): 1" in warnings(caplog)[0]


@pytest.mark.parametrize(("save_images", "times"), [(True, 1), (False, 0)])
def test_an_image_is_read_once(tmp_path: Path, save_images: bool, times: int) -> None:
    """For each read, the server decodes a chunk of the task."""
    read: list[str] = []

    def read_image(name: str) -> bytes:
        read.append(name)
        return image_bytes(name)

    frames = [Frame(name, WIDTH, HEIGHT, partial(read_image, name)) for name in NAMES]
    task = make_task(box(1, "cat"), frames=frames)
    export(task, tmp_path, save_images=save_images)
    assert read == NAMES * times


def test_frames_of_a_video(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A step of 5 makes the frames 10, 15 and 20 (cvat#1814)."""
    task = make_task(box(1, "cat"), is_video=True, start_frame=10, step=5)
    for save_images in (False, True):
        found = export(task, tmp_path, save_images=save_images)
        assert found.names() == [f"frame_0000{number}.PNG" for number in (10, 15, 20)]
        assert [len(one.boxes) for one in found.records] == [0, 1, 0]
    assert warnings(caplog) == ["TFRecord: frames of videos, encoded again: 3"]
    for number, record in enumerate(found.records):
        with Image.open(io.BytesIO(bytes(record.encoded or b""))) as opened:
            assert (opened.format, opened.size) == ("PNG", (WIDTH, HEIGHT))
            expected = Image.open(io.BytesIO(task.frames[number].read())).convert("RGB")
            assert opened.convert("RGB").getpixel((5, 5)) == expected.getpixel((5, 5))


def test_frames_of_jobs_and_deleted_frames(tmp_path: Path) -> None:
    moving = track("bird", box(0, "bird", 0, 0, 10, 10))
    task = make_task(box(0, "cat"), box(1, "cat"), tracks=[moving], start_frame=3, step=2)
    bird = ("bird", 0.0, 0.0, 10.0, 10.0)
    found = export(Job(task, 1, 2), tmp_path)
    assert found.boxes() == {"b.jpg": [bird, FULL], "c.jpg": [bird]}
    task.deleted_frames = [1]
    assert list(export(task, tmp_path).boxes()) == ["a.jpg", "c.jpg"]


@pytest.mark.parametrize(
    ("option", "shapes", "tags", "names"),
    [
        ("keep", [box(1, "cat")], [], NAMES),
        ("", [box(1, "cat")], [], NAMES),
        ("drop", [box(1, "cat")], [], ["b.jpg"]),
        ("drop", [], [tag(2, "cat")], ["c.jpg"]),
        ("drop", [], [], []),  # an empty export is a shard (cvat#821)
    ],
)
def test_empty_frames(
    tmp_path: Path, monkeypatch: Any, option: str, shapes: Any, tags: Any, names: list[str]
) -> None:
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", option)
    found = export(make_task(*shapes, tags=tags), tmp_path)
    assert (list(found.subsets), found.names()) == (["default"], names)
    labels = [(one.text, one.label) for record in found.records for one in record.image_labels]
    assert labels == [("cat", 2)] * len(tags)


def test_invalid_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "sometimes")
    with pytest.raises(Exception, match="TFOD_CVAT_EMPTY_FRAMES is 'sometimes'") as caught:
        export(make_task(), tmp_path)
    expected = "CvatExportError" if cvat.IS_NEW else "DatasetExportError"
    assert type(caught.value).__name__ == expected
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["task", "job", "project", "other task"])
def test_classes_keep_the_ids_of_the_label_map_of_their_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A task without a project has the default label map (cvat#1169)."""
    write_files(tmp_path / "maps", {"3.pbtxt": "item { id: 7 name: 'cat' }"})
    write_files(tmp_path / "maps", {"default.pbtxt": "item { id: 4 name: 'bird' }"})
    monkeypatch.setenv("TFOD_CVAT_LABEL_MAPS", str(tmp_path / "maps"))
    task = make_task(box(0, "cat"), box(0, "bird", 1, 2, 3.5, 4.25))
    project = Project(task.labels)
    if kind != "other task":
        project.add(task)
    found = export({"job": Job(task, 0, 0), "project": project}.get(kind, task), tmp_path)
    ids = {"bird": 4, "cat": 5} if kind == "other task" else {"bird": 8, "cat": 7}
    assert {one.name: one.id for one in found.label_map.items} == ids
    assert list(found.records[0].class_label or ()) == [ids["bird"], ids["cat"]]
    added = "'cat' (5)" if kind == "other task" else "'bird' (8)"
    assert f"label map: {added}" in found.notes
    monkeypatch.setenv("TFOD_CVAT_LABEL_MAPS", str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="TFOD_CVAT_LABEL_MAPS is"):
        export(task, tmp_path)


@pytest.mark.parametrize("name", ["difficult", "truncated", "is_crowd", "group_of"])
def test_checkboxes_become_numbers(tmp_path: Path, name: str) -> None:
    """The OD API reads these keys as integers."""
    task = make_task(box(0, "cat", attributes={name: "true"}), box(0, "cat", 1, 1, 9, 9))
    for label in task.labels:
        label.attributes = [AttributeSpec(name, AttributeType.CHECKBOX, "false")]
    assert list(export(task, tmp_path).records[0].attributes[name]) == [0, 1]
    (path,) = (tmp_path / "export.unpacked").iterdir()
    (example, *_) = tfod.read_examples(str(path))
    assert list(example.ints(f"image/object/{name}")) == [0, 1]


def test_an_invalid_number_stays_a_text(tmp_path: Path) -> None:
    """CVAT's conversion would stop the export."""
    found = export(make_task(box(0, "cat", attributes={"count": "many"})), tmp_path)
    assert list(found.records[0].attributes["count"]) == ["many"]


def test_parts_of_skeletons_are_not_classes(tmp_path: Path) -> None:
    parts = [Label("nose", parent="person"), Label("ear", parent="person")]
    task = make_task(box(0, "dog"))
    task.own_labels = [Label("person", type="skeleton"), *parts, Label("dog")]
    found = export(task, tmp_path)
    assert [(one.id, one.name) for one in found.label_map.items] == [(1, "person"), (2, "dog")]
    assert [text for text, *_ in found.boxes()["a.jpg"]] == ["dog"]
    assert list(found.records[0].class_label or ()) == [2]


def test_losses_are_one_line_of_the_log_and_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = make_task(
        shape("polyline", 0, "cat", (1, 1, 5, 5)),
        shape("points", 1, "cat", (1, 1, 5, 5)),
        box(2, "cat", group=4),
        box(2, "bird", group=4),
        box(2, "bird", rotation=30.0, z_order=1),
    )
    found = export(task, tmp_path)
    (line,) = warnings(caplog)
    lost, replaced, clipped = line.split("; ")
    assert lost.startswith("TFRecord: not written, ") and lost.endswith("1 polyline, 1 points")
    assert replaced == "replaced by their enclosing box: 1 rotated box"
    assert clipped == "clipped to their frame: 1 shape"
    lost, changed = found.notes.split("Changed in these shards:\n")
    assert "3 frames, 3 objects." in lost and "1 polyline, 1 points\n" in lost
    assert "An import that replaces the annotations of the task deletes them there." in lost
    assert changed == f"- {replaced}\n- {clipped}\n"
    # Boxes of a group are separate objects.
    assert [text for text, *_ in found.boxes()["c.jpg"]] == ["bird", "cat", "bird"]
    drawn = found.records[2].shape_details
    assert [drawn[number].group for number in sorted(drawn)] == [4, 4, 0]
    assert drawn[2] == tfod.ShapeDetails((8, 6, 40, 30), 30, 1)


def test_the_order_in_the_database_does_not_matter(tmp_path: Path) -> None:
    shapes = [
        box(0, "cat", 5, 5, 9, 9, z_order=1),
        box(0, "bird", 7, 5, 9, 9),
        box(0, "cat", 6, 5, 9, 9),
        box(0, "cat", 30, 40, 10, 8),  # from another corner
        shape("polygon", 0, "cat", (6, 5, 9, 5, 9, 9)),
    ]
    first, second = (export(make_task(*some), tmp_path) for some in (shapes, shapes[::-1]))
    assert first.files == second.files
    assert ("cat", 10.0, 8.0, 30.0, 40.0) in first.boxes()["a.jpg"]


def test_an_image_that_cannot_be_read(tmp_path: Path) -> None:
    def fail() -> bytes:
        raise OSError(5, "Input/output error")

    task = make_task(frames=[Frame("lost.jpg", WIDTH, HEIGHT, fail)])
    with pytest.raises(Exception, match=r"lost.*Input/output error"):
        export(task, tmp_path, save_images=True)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_a_full_disk_shows_no_path_of_the_server(tmp_path: Path) -> None:
    """The zip is written last, and is the largest file."""
    task = make_task(box(0, "cat"))
    with pytest.raises(Exception) as caught:
        make_exporter(BOXES)("/dev/full", str(tmp_path), TaskData(task.annotations, task))
    assert str(caught.value) == "the server's disk is full; ask its administrator"
    if cvat.IS_NEW:
        assert type(caught.value).__name__ == "CvatExportError"
