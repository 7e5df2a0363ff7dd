"""Export of tasks and jobs: names, boxes, frame numbers and attributes, as the shard has them.

Shown, each time read back with our own reader: what becomes of every kind of shape, of video
frames with a step, of deleted and of empty frames, of tracks; and that what cannot travel is
counted in one line of the log.
"""

from __future__ import annotations

import hashlib
import io
import logging
import sys
from pathlib import Path

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
    frame,
    image_bytes,
    make_task,
    shape,
    tag,
    track,
)
from tests.files import write_files

FULL = ("cat", 8.0, 6.0, 40.0, 30.0)


def losses(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        one.getMessage()
        for one in caplog.records
        if one.name == "tfod.cvat" and one.levelno >= logging.WARNING
    ]


def test_a_task_is_one_shard_and_a_label_map(tmp_path: Path) -> None:
    found = export(make_task(box(0, "cat"), box(0, "bird", 1, 2, 3.5, 4.25)), tmp_path)
    assert sorted(found.files) == ["default.tfrecord", "label_map.pbtxt"]
    assert found.boxes() == {
        "a.jpg": [("bird", 1.0, 2.0, 3.5, 4.25), FULL],
        "b.jpg": [],
        "c.jpg": [],
    }
    assert [(one.id, one.name) for one in found.label_map.items] == [(1, "bird"), (2, "cat")]
    first = found.records[0]
    assert list(first.class_label or ()) == [1, 2]
    assert (first.width, first.height, len(first.encoded or b"")) == (WIDTH, HEIGHT, 0)


def test_the_subset_is_as_the_server_has_it(tmp_path: Path) -> None:
    """Old servers forget a task's subset in the items of every export but that of its project."""
    found = export(make_task(box(0, "cat"), subset="train"), tmp_path)
    assert list(found.subsets) == ["train"]


@pytest.mark.parametrize("save_images", [False, True])
def test_names_keep_folders_dots_letters_and_extensions(tmp_path: Path, save_images: bool) -> None:
    """New servers lower extensions in the items that a format sees, not in the frames."""
    names = ["in/side/a.jpg", "b.v2.final.png", "кадр 1.jpg", "frame.000123.jpg", "A.JPG"]
    found = export(make_task(box(1, "cat"), frames=names), tmp_path, save_images=save_images)
    assert found.names() == names
    assert found.boxes()["b.v2.final.png"] == [FULL]
    assert [one.source_id for one in found.records] == ["1", "2", "3", "4", "5"]


def test_images_are_the_bytes_that_were_uploaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """But for photos that lay on their side, which CVAT writes with a quality of 100."""
    names = ["a.jpg", "b.PNG", "c.png"]
    found = export(make_task(box(0, "cat"), frames=names), tmp_path, save_images=True)
    for name, record in zip(names, found.records, strict=True):
        kind = "PNG" if name.lower().endswith("png") else "JPEG"
        wanted = image_bytes(name, kind, (WIDTH, HEIGHT))
        assert bytes(record.encoded or b"") == wanted
        assert record.sha256 == hashlib.sha256(wanted).hexdigest()
        assert record.format == kind.lower()
    assert losses(caplog) == []
    turned = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT)).save(turned, "JPEG", quality=100, subsampling=0)
    export(make_task(frames=[Frame("d.jpg", WIDTH, HEIGHT, turned.getvalue())]), tmp_path,
           save_images=True)  # fmt: skip
    assert "EXIF orientation and encoded again (JPEG quality 100): 1" in losses(caplog)[0]


@pytest.mark.parametrize(("save_images", "times"), [(True, 1), (False, 0)])
def test_a_image_is_read_once(tmp_path: Path, save_images: bool, times: int) -> None:
    """Each reading is work of the server's: it decodes a chunk of the task for it."""
    read: list[str] = []

    def image(name: str) -> Frame:
        def reader() -> bytes:
            read.append(name)
            return image_bytes(name)

        return Frame(name, WIDTH, HEIGHT, reader)

    names = ["a.jpg", "b.jpg", "c.jpg"]
    task = make_task(box(1, "cat"), frames=[image(name) for name in names])
    export(task, tmp_path, save_images=save_images)
    assert read == names * times


def test_video_frames_have_numbers_of_the_video(tmp_path: Path) -> None:
    """Of cvat#1814: a step of 5 from 10 on makes frames 10, 15, 20 and no others."""
    task = make_task(box(1, "cat"), is_video=True, start_frame=10, step=5)
    found = export(task, tmp_path)
    assert found.names() == ["frame_000010.PNG", "frame_000015.PNG", "frame_000020.PNG"]
    assert [len(one.boxes) for one in found.records] == [0, 1, 0]


def test_video_frames_as_images(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = make_task(box(1, "cat"), is_video=True, step=2)
    found = export(task, tmp_path, save_images=True)
    assert len(found.records) == len(task.frames) == 3
    assert losses(caplog) == ["TFRecord: frames of videos, encoded again: 3"]
    for number, record in enumerate(found.records):
        with Image.open(io.BytesIO(bytes(record.encoded or b""))) as opened:
            assert opened.format == "PNG"
            assert opened.size == (WIDTH, HEIGHT)
            wanted = Image.open(io.BytesIO(task.frames[number].read())).convert("RGB")
            assert opened.convert("RGB").getpixel((5, 5)) == wanted.getpixel((5, 5))


def test_deleted_frames_stay_away(tmp_path: Path) -> None:
    task = make_task(box(1, "cat"), box(2, "bird"), deleted_frames=[1])
    assert list(export(task, tmp_path).boxes()) == ["a.jpg", "c.jpg"]


def test_a_track_is_a_box_in_every_frame_where_it_can_be_seen(tmp_path: Path) -> None:
    moving = track(
        "cat",
        box(0, "cat", 0, 0, 10, 10),
        box(2, "cat", 20, 10, 30, 20, occluded=True),
        box(3, "cat", 20, 10, 30, 20, outside=True),
        box(4, "cat", 5, 5, 9, 9),
    )
    task = make_task(frames=[f"{name}.jpg" for name in "abcdef"], tracks=[moving])
    found = export(task, tmp_path)
    assert list(found.boxes().values()) == [
        [("cat", 0.0, 0.0, 10.0, 10.0)],
        [("cat", 10.0, 5.0, 20.0, 15.0)],
        [("cat", 20.0, 10.0, 30.0, 20.0)],
        [],
        [("cat", 5.0, 5.0, 9.0, 9.0)],
        [("cat", 5.0, 5.0, 9.0, 9.0)],
    ]
    assert [list(one.attributes.get("occluded", [])) for one in found.records if len(one.boxes)][
        2
    ] == [1]


def test_a_job_is_its_own_frames(tmp_path: Path) -> None:
    moving = track("bird", box(0, "bird", 0, 0, 10, 10))
    task = make_task(box(0, "cat"), box(1, "cat"), tracks=[moving], start_frame=3, step=2)
    found = export(Job(task, 1, 2), tmp_path)
    assert found.boxes() == {
        "b.jpg": [("bird", 0.0, 0.0, 10.0, 10.0), FULL],
        "c.jpg": [("bird", 0.0, 0.0, 10.0, 10.0)],
    }


@pytest.mark.parametrize(("option", "names"), [("keep", 3), ("", 3), ("drop", 1)])
def test_empty_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, names: int
) -> None:
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", option)
    found = export(make_task(box(1, "cat")), tmp_path)
    assert len(found.records) == names
    assert found.boxes()["b.jpg"] == [FULL]


@pytest.mark.parametrize("kind", ["task", "job", "project", "other task"])
def test_classes_keep_the_ids_of_the_label_map_of_their_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of cvat#1169; a task without a project has the default one."""
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
    assert f"label map: {added}" in found.files["EXPORT_NOTES.txt"].decode()
    monkeypatch.setenv("TFOD_CVAT_LABEL_MAPS", str(tmp_path / "nowhere"))
    with pytest.raises(Exception, match="TFOD_CVAT_LABEL_MAPS is"):
        export(task, tmp_path)


def test_an_empty_task_is_a_shard_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of cvat#821: an export that holds nothing must not look like one that failed."""
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "drop")
    found = export(make_task(), tmp_path)
    assert "label_map.pbtxt" in found.files
    assert list(found.subsets) == ["default"]
    assert found.records == []


def test_a_tag_keeps_its_frame_from_being_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "drop")
    found = export(make_task(tags=[tag(2, "cat")]), tmp_path)
    assert found.names() == ["c.jpg"]
    assert [(one.text, one.label) for one in found.records[0].image_labels] == [("cat", 2)]


def test_nonsense_in_the_option_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "sometimes")
    with pytest.raises(Exception, match="TFOD_CVAT_EMPTY_FRAMES is 'sometimes'") as caught:
        export(make_task(), tmp_path)
    expected = "CvatExportError" if cvat.IS_NEW else "DatasetExportError"
    assert type(caught.value).__name__ == expected
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["difficult", "truncated", "is_crowd", "group_of"])
def test_checkboxes_become_numbers(tmp_path: Path, name: str) -> None:
    """The OD API reads these keys as integers."""
    task = make_task(box(0, "cat", attributes={name: "true"}), box(0, "cat", 1, 1, 9, 9))
    for label in task.labels:
        label.attributes = [AttributeSpec(name, AttributeType.CHECKBOX, "false")]
    found = export(task, tmp_path)
    assert list(found.records[0].attributes[name]) == [0, 1]
    (path,) = (tmp_path / "export.unpacked").iterdir()
    (example, *_) = tfod.read_examples(str(path))
    assert list(example.ints(f"image/object/{name}")) == [0, 1]


def test_parts_of_skeletons_are_no_classes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = make_task(box(0, "dog"))
    task.own_labels = [
        Label("person", type="skeleton"),
        Label("nose", parent="person"),
        Label("ear", parent="person"),
        Label("dog"),
    ]
    found = export(task, tmp_path)
    assert [(one.id, one.name) for one in found.label_map.items] == [(1, "person"), (2, "dog")]
    assert [text for text, *_ in found.boxes()["a.jpg"]] == ["dog"]
    assert list(found.records[0].class_label or ()) == [2]


def test_what_cannot_travel_is_one_line_of_the_log(
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
    (line,) = losses(caplog)
    assert "\n" not in line
    assert line == (
        "TFRecord: not written, because the format cannot store them: 1 polyline, 1 points; "
        "replaced by their enclosing box: 1 rotated box; clipped to their frame: 1 shape"
    )
    # And a text in the zip, for whoever gets that.
    assert found.files["EXPORT_NOTES.txt"].decode() == (
        "Exported from CVAT by tfod: 3 frames, 3 objects.\n\n"
        "In CVAT, but not in these shards:\n"
        "- not written, because the format cannot store them: 1 polyline, 1 points\n"
        "An import that replaces the annotations of the task deletes them there.\n"
        'Keep a copy as "CVAT for images 1.1".\n\n'
        "Changed in these shards:\n"
        "- replaced by their enclosing box: 1 rotated box\n"
        "- clipped to their frame: 1 shape\n"
    )
    # Grouped boxes are two objects, and no shape of the one is the other's.
    assert [text for text, *_ in found.boxes()["c.jpg"]] == ["bird", "cat", "bird"]
    drawn = found.records[2].shape_details
    assert [drawn[number].group for number in sorted(drawn)] == [4, 4, 0]
    assert drawn[2] == tfod.ShapeDetails((8, 6, 40, 30), 30, 1)


def test_nothing_is_said_where_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The attributes of a tag, of which CVAT hands over all, also those that nobody set."""
    export(
        make_task(box(0, "cat", attributes={"difficult": "true"}), tags=[tag(1, "cat")]), tmp_path
    )
    assert losses(caplog) == []


def test_the_order_of_the_database_does_not_count(tmp_path: Path) -> None:
    shapes = [
        box(0, "cat", 5, 5, 9, 9, z_order=1),
        box(0, "bird", 7, 5, 9, 9),
        box(0, "cat", 6, 5, 9, 9),
        shape("polygon", 0, "cat", (6, 5, 9, 5, 9, 9)),
    ]
    found = [export(make_task(*some), tmp_path).files for some in (shapes, shapes[::-1])]
    assert found[0] == found[1]


def test_cvat_s_own_notes_are_no_attributes(tmp_path: Path) -> None:
    """``frame`` above all: an importer would take it for the frame to attach the image to."""
    moving = track("cat", box(0, "cat"))
    found = export(make_task(tracks=[moving], start_frame=7, step=3), tmp_path)
    assert len(found.records) == 3
    for record in found.records:
        assert not set(record.image_extra) & {"frame"}
        assert not set(record.attributes) & {"keyframe", "outside", "rotation"}


def test_an_attribute_that_is_not_the_number_it_should_be_stays_a_text(tmp_path: Path) -> None:
    """CVAT's own conversion would end the export."""
    task = make_task(box(0, "cat", attributes={"count": "many"}))
    found = export(task, tmp_path)
    assert list(found.records[0].attributes["count"]) == ["many"]


def test_a_image_that_cannot_be_read_names_itself(tmp_path: Path) -> None:
    def lost() -> bytes:
        raise OSError(5, "Input/output error")

    broken = frame("a.jpg")
    task = make_task(frames=[type(broken)("lost.jpg", WIDTH, HEIGHT, lost)])
    with pytest.raises(Exception, match=r"lost.*Input/output error"):
        export(task, tmp_path, save_images=True)


def test_rectangles_drawn_from_the_wrong_corner_are_exported(tmp_path: Path) -> None:
    found = export(make_task(box(0, "cat", 30, 40, 10, 8)), tmp_path)
    assert found.boxes()["a.jpg"] == [("cat", 10.0, 8.0, 30.0, 40.0)]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
def test_an_export_on_a_full_disk_shows_no_path_of_the_server(tmp_path: Path) -> None:
    """The zip is written last, and is the largest."""
    task = make_task(box(0, "cat"))
    with pytest.raises(Exception) as caught:
        make_exporter(BOXES)("/dev/full", str(tmp_path), TaskData(task.annotations, task))
    assert str(caught.value) == "the server's disk is full; ask its administrator"
    if cvat.IS_NEW:
        assert type(caught.value).__name__ == "CvatExportError"
