"""The error messages of an import into a task or a job, which changes nothing.

``tasks.refusal`` checks in each test that the error is exactly a ``CvatImportError`` of one line,
that the old annotations are still there, and that no file was written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cvat
import pytest
from cvat.apps.dataset_manager.bindings import TaskData
from cvat.apps.engine.models import Job, Label, Task

from tests.cvat.server.tasks import (
    FULL,
    HEIGHT,
    LABEL_MAP,
    WIDTH,
    box,
    make_task,
    put,
    record,
    refusal,
    shape,
    tag,
    track,
    upload,
)
from tests.records import encode, image, objects
from tests.records import frame as shard
from tests.zip_forge import real_zip

Files = dict[str, bytes]
Refuse = Callable[..., str]


@pytest.fixture
def refuse(tmp_path: Path, temp_root: Path) -> Refuse:
    """Import a zip of these files, or these bytes, and return the message."""

    def refuse(files: Files | bytes, instance: Task | Job | None = None, **more: bool) -> str:
        before = sorted(tmp_path.rglob("*"))
        path = upload(tmp_path, files)
        text = refusal(instance or make_task(), path, temp_root=str(temp_root), **more)
        path.unlink()
        assert sorted(tmp_path.rglob("*")) == before, "files were written"
        return text

    return refuse


def shard_of(*records: bytes, **more: bytes) -> Files:
    return {"t.tfrecord": shard(*records)} | ({"label_map.pbtxt": more["map"]} if more else {})


def cats(*names: str) -> Files:
    return shard_of(*(record(f"{name}.jpg", "cat") for name in names))


def boxed(*corners: float) -> Files:
    """Return a valid record, and one with this box."""
    odd = encode(image("b.jpg", HEIGHT, WIDTH) | objects([corners], ["cat"]))
    return shard_of(record("a.jpg", "cat"), odd)


GOOD = cats("a")["t.tfrecord"]
TWO = cats("a", "b")["t.tfrecord"]
SECOND = "(t.tfrecord, record 1). Nothing was changed. "
UNKNOWN = "class 'dog' is not among the labels. Nothing was changed. Labels of the task: bird, cat."
DAMAGED = bytearray(TWO)
DAMAGED[len(GOOD) + 12 + 20] ^= 1


def damage_entry(name: str) -> bytes:
    data = bytearray(real_zip([("t.tfrecord", TWO), ("label_map.pbtxt", LABEL_MAP)]))
    start = data.index(name.encode()) + len(name)
    data[start + 4 : start + 14] = bytes(10)
    return bytes(data)


# A name, the zip, and texts of the message.
REFUSALS: dict[str, tuple[Files | bytes, list[str]]] = {
    "unknown class": (shard_of(record("a.jpg", "dog", "cat"), record("b.jpg", "dog")), [UNKNOWN]),
    "two classes": (
        shard_of(record("a.jpg", "dog"), record("b.jpg", "Cat")),
        ["2 classes are not among the labels: 'Cat', …. ", "Without a label: 'Cat', 'dog'. "],
    ),
    "class only in the label map": (
        shard_of(record("a.jpg", ids=[3]), map=LABEL_MAP + b"item { id: 3 name: 'dog' }"),
        [UNKNOWN],
    ),
    "no class": (
        shard_of(record("b.jpg", "cat"), record("a.jpg", "")),
        ["an object has neither a class text nor an id", SECOND, "image/object/class/text"],
    ),
    "no name": (
        shard_of(record("", "cat")),
        ["the record has no file name (image/filename). ", "Write the name of the frame to "],
    ),
    "id not in the label map": (
        shard_of(record("a.jpg", ids=[7]), map=LABEL_MAP),
        ["label_map.pbtxt has no id 7. ", "Add the class to it, or name the classes in the shard."],
    ),
    # CVAT would attach the boxes of 000001.jpg to frame 1, which is another image.
    "number as a name": (cats("000001", "b"), ["name is read as a frame number", "000001.jpg"]),
    "nan": (boxed(float("nan"), 0.1, 0.5, 0.5), [f"box 0 has xmin nan {SECOND}", "(b.jpg)"]),
    "x inverted": (
        boxed(0.5, 0.1, 0.25, 0.5),
        [f"box is inverted {SECOND}", "xmin is larger than xmax", "(b.jpg)"],
    ),
    "no label map": (shard_of(record("a.jpg", ids=[5])), ["only ids (#5) and no label map"]),
    "no image size": (
        shard_of(encode({"image/filename": "a.jpg"} | objects([FULL], ["cat"]))),
        ["the image size is unknown, ", "(t.tfrecord, record 0). ", "image/height and image/width"],
    ),
    "changed bit": (
        {"x/train.tfrecord": bytes(DAMAGED)},
        [
            "checksum of the data is wrong (train.tfrecord, record 1). ",
            f"x/train.tfrecord, record 1, byte {len(GOOD)}: ",
        ],
    ),
    "damaged shard": (damage_entry("t.tfrecord"), ["damaged entry (t.tfrecord). "]),
    "damaged label map": (damage_entry("label_map.pbtxt"), ["damaged entry (label_map.pbtxt). "]),
    # The defect is the kind of the shard, and not that it has no image names.
    "other records": (
        shard_of(encode({"speech/samples": [1, 2, 3]})),
        [
            "t.tfrecord has no image/filename and no boxes. Nothing was changed. The records ",
            "their features are speech/samples; ",
        ],
    ),
    **{
        name: (data, ["zip"])
        for name, data in {
            "not a zip": GOOD,
            "empty": b"",
            "start of a zip": b"PK\3\4",
            "end of a zip is missing": real_zip([("t.tfrecord", GOOD)])[:-30],
        }.items()
    },
    "empty zip": ({}, ["the zip contains no files. ", "*.tfrecord, *.record or *-00000-of-00010."]),
    # The message names the format of a zip of another format (cvat#4074).
    "CVAT for images": (
        {"annotations.xml": b"<annotations/>", "images/a.jpg": b"\xff\xd8\xff"},
        ["CVAT for images annotations, not TFRecord. ", "choose CVAT 1.1 in its menu. "],
    ),
    "COCO": (
        {"annotations/instances_default.json": b'{"images": []}', "images/a.jpg": b"x"},
        ["COCO annotations, not TFRecord. ", "choose COCO 1.0 in its menu. "],
    ),
    "VOC": ({"Annotations/a.xml": b"<annotation/>"}, ["choose PASCAL VOC 1.1 in its menu"]),
    "YOLO": (
        {"obj.data": b"x", "obj.names": b"cat", "obj_train_data/a.txt": b"0 1 1 1 1"},
        ["choose Ultralytics YOLO Detection 1.0 or YOLO 1.1 in its menu"],
    ),
    "zip in the zip": ({"x/inner.zip": real_zip([("t.tfrecord", GOOD)])}, ["Unpack x/inner.zip"]),
    "empty shard": (
        {"t.tfrecord": b"", "label_map.pbtxt": LABEL_MAP},
        ["t.tfrecord is empty (0 bytes). ", "export or download it again"],
    ),
    "several defects": (
        shard_of(record("a.jpg", "dog"), record("zzz.jpg", "cat")),
        ["'dog'", "zzz.jpg"],
    ),
    "many defects": (
        shard_of(*(record(f"no{number}.jpg", f"class{number}") for number in range(400))),
        ["400 of 400 images match no frame"],
    ),
    "control characters": (shard_of(record("a\nb\r\x1b[31m.jpg", "do\ng")), ["do"]),
}


DAMAGED_FRAMES = ["changed bit"]
"""The task has annotations on the frame of the damaged record, which is not missing."""


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusals(refuse: Refuse, kind: str) -> None:
    files, texts = REFUSALS[kind]
    message = refuse(
        files, make_task(*(box(number, "cat") for number in range(2) if kind in DAMAGED_FRAMES))
    )
    assert kind not in DAMAGED_FRAMES or message.startswith(texts[0])
    assert all(text in message for text in texts), message
    assert texts != [UNKNOWN] or message == UNKNOWN
    assert message.isprintable()
    assert len(message) < 2000  # CVAT's page shows all of it


def test_images_without_a_frame(refuse: Refuse) -> None:
    frames = [f"frame{number}" for number in range(37)]
    task = make_task(frames=[f"{name}.jpg" for name in frames])
    message = refuse(cats(*frames, "x", "y", "z"), task)
    assert message.startswith("3 of 40 images match no frame: x.jpg, …. Nothing was changed. ")
    assert "Without a frame: x.jpg, y.jpg, z.jpg. Frames are named like frame0.jpg." in message


@pytest.mark.parametrize("name", ["frame_000001.png", "frame_1.png", "000001.jpg", "1.jpg"])
def test_other_frame_numbers_than_those_of_the_video(refuse: Refuse, name: str) -> None:
    """CVAT takes the digits for the second frame, which is number 15 of the video."""
    task = make_task(is_video=True, start_frame=10, step=5)
    assert name.partition(".")[0] in refuse(shard_of(record(name, "cat")), task)


def test_a_part_of_a_skeleton_is_not_a_class(refuse: Refuse) -> None:
    task = make_task(box(0, "bird"))
    task.own_labels.append(Label("beak", parent="bird"))
    message = refuse(shard_of(record("a.jpg", "beak")), task)
    assert "class 'beak' is not among the labels" in message
    assert "Labels of the task: bird, cat." in message


@pytest.mark.parametrize(
    ("start", "files", "text"),
    [
        (1, shard_of(record("b.jpg", "dog")), "class 'dog' is not among the labels. "),
        (1, shard_of(record("b.jpg", "dog")), "Labels of the job: bird, cat."),
        (1, cats("a"), "not a frame of this job, but of the task's other jobs. "),
        (1, cats("a"), "Import the zip there, or into the task."),
        (2, cats("a", "b"), "none of the 2 images is a frame of this job, but"),
        (1, cats("a", "z"), "1 of 2 images matches no frame: z.jpg"),
    ],
)
def test_jobs(refuse: Refuse, start: int, files: Files, text: str) -> None:
    assert text in refuse(files, Job(make_task(box(0, "bird"), box(1, "bird")), start, 2))


def test_an_error_of_cvat(refuse: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a label is deleted during the import, the message is CVAT's."""

    def fail(self: TaskData, name: str) -> None:
        raise ValueError(f"Label {name!r} is not registered for this task")

    monkeypatch.setattr(TaskData, "_label", fail)
    message = refuse(cats("a"), by_cvat=True)
    assert "Image frame 0 a.jpg: can't import annotation #0 (bbox): Label 'cat' is not" in message


class TestReplacedAnnotations:
    """An import does not delete annotations that the shards cannot replace."""

    SHAPES = (
        shape("skeleton", 0, "cat", (), elements=[shape("points", 0, "cat", (1, 1))]),
        shape("points", 1, "cat", (1, 1, 5, 5)),
        shape("points", 2, "cat", (1, 1, 5, 5)),
        box(1, "cat"),
    )
    LOST = "which shards cannot store. Nothing was changed. "

    def test_shapes(self, refuse: Refuse, tmp_path: Path) -> None:
        line = track("cat", *(shape("polyline", number, "cat", (1, 1, 5, 5)) for number in (0, 1)))
        task = make_task(*self.SHAPES, tracks=[line])
        message = refuse(cats("a", "b", "c"), task)
        lost = "2 points, 1 skeleton, 1 polyline tracks"
        assert message.startswith(f"import deletes {lost}, {self.LOST}")
        for option in ("import_mode=append (CVAT 2.65", "--mode append", "--force"):
            assert option in message
        assert len(put(tmp_path, task, record("a.jpg", "cat"), import_mode="append")) == 5

    def test_shapes_of_a_job(self, refuse: Refuse, tmp_path: Path) -> None:
        task = make_task(*self.SHAPES)
        assert refuse(cats("b"), Job(task, 1, 1)).startswith(
            f"import deletes 1 points, {self.LOST}"
        )
        task.annotations.shapes.pop(1)
        assert len(put(tmp_path, Job(task, 1, 1), record("b.jpg", "cat"))) == 3

    def test_frames_without_a_record(self, refuse: Refuse, tmp_path: Path) -> None:
        """A record without a box empties its frame. Other jobs do not matter."""
        moving = track("cat", box(1, "cat"), box(3, "cat", outside=True))
        frames = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
        task = make_task(box(0, "bird"), tracks=[moving], frames=frames, deleted_frames=[1])
        message = refuse(cats("a"), task)
        assert message.startswith(
            "import deletes the annotations of 1 frame without a record. Nothing was "
            "changed. c.jpg. Import the shards into their job, or export the whole task again. "
        )
        cat = record("a.jpg", "cat")
        assert len(put(tmp_path, Job(task, 0, 1), cat)) == 1
        assert len(put(tmp_path, task, cat, import_mode="append")) == 2
        assert len(put(tmp_path, task, record("a.jpg"), record("c.jpg"))) == 0

    def test_frames_with_a_tag(self, refuse: Refuse) -> None:
        message = refuse(cats("a"), make_task(box(0, "bird"), tags=[tag(2, "cat")]))
        assert "1 frame without a record. Nothing was changed. c.jpg" in message

    @pytest.mark.skipif(not cvat.IS_NEW, reason="old servers have no placeholders")
    def test_validation_frames(self, refuse: Refuse) -> None:
        """If jobs have placeholders of them, CVAT's import deletes the ground truth."""
        task = make_task(
            box(2, "cat"),
            shape("points", 2, "cat", (1, 1)),
            frames=["v.jpg", "b.jpg", "v.jpg"],
            placeholders=[0],
        )
        message = refuse(cats("b"), task)
        assert message.startswith(f"import deletes 1 points, {self.LOST}")
        assert "the annotations of 1 frame without a record. v.jpg. " in message
