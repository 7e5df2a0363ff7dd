"""What a user reads when a zip cannot be imported, and that the old annotations are still there.

Shown for tasks and jobs: each refusal is exactly a ``CvatImportError`` of one line that says what
is wrong, where, and what to do; nothing was changed, nothing was written beside the temporary
folder and nothing is left in it. ``tasks.refusal`` sees to that in every test here.
"""

from __future__ import annotations

import struct
from pathlib import Path

import cvat
import pytest
from cvat.apps.engine.models import Job, Label, Task

from tests.cvat.server.tasks import (
    FULL,
    HEIGHT,
    LABEL_MAP,
    WIDTH,
    box,
    import_into,
    make_task,
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


@pytest.fixture
def refuse(tmp_path: Path, temp_root: Path):
    """Import a zip of these files, or these bytes; returns what the user reads."""

    def refuse(
        files: dict[str, bytes] | bytes, instance: Task | Job | None = None, **more: bool
    ) -> str:
        before = sorted(tmp_path.rglob("*"))
        path = upload(tmp_path, files)
        text = refusal(instance or make_task(), path, temp_root=str(temp_root), **more)
        path.unlink()
        assert sorted(tmp_path.rglob("*")) == before, "something was left behind"
        return text

    return refuse


def one_shard(*records: bytes) -> dict[str, bytes]:
    return {"t.tfrecord": shard(*records)}


GOOD = shard(record("a.jpg", "cat"))
TWO = shard(record("a.jpg", "cat"), record("b.jpg", "cat"))
SECOND = "(t.tfrecord, record 1). Nothing was changed. "


def boxed(*corners: float) -> dict[str, bytes]:
    """A sound record, and one with this box."""
    odd = encode(image("b.jpg", HEIGHT, WIDTH) | objects([corners], ["cat"]))
    return one_shard(record("a.jpg", "cat"), odd)


def test_a_part_of_a_skeleton_is_no_class(refuse) -> None:
    task = make_task(box(0, "bird"))
    task.own_labels.append(Label("beak", parent="bird"))
    text = refuse(one_shard(record("a.jpg", "beak")), task)
    assert "class 'beak' is not among the labels" in text
    assert "Labels of the task: bird, cat." in text


@pytest.mark.parametrize(
    ("start", "images", "says"),
    [
        (1, {"b.jpg": "dog"}, "class 'dog' is not among the labels"),
        (1, {"b.jpg": "dog"}, "Labels of the job: bird, cat."),
        (
            1,
            {"a.jpg": "cat"},
            "the image is not a frame of this job, but of the task's other jobs. Nothing was "
            "changed. Import the zip there, or into the task.",
        ),
        (2, {"a.jpg": "cat", "b.jpg": "cat"}, "none of the 2 images is a frame of this job, but"),
        (1, {"a.jpg": "cat", "z.jpg": "cat"}, "1 of 2 images matches no frame: z.jpg"),
    ],
)
def test_of_a_job(refuse, start: int, images: dict[str, str], says: str) -> None:
    task = make_task(box(0, "bird"), box(1, "bird"))
    records = [record(name, label) for name, label in images.items()]
    assert says in refuse(one_shard(*records), Job(task, start, 2))


def test_images_that_match_no_frame(refuse) -> None:
    frames = [f"frame{number}.jpg" for number in range(37)]
    records = [record(name, "cat") for name in frames] + [
        record(name, "cat") for name in ("x.jpg", "y.jpg", "z.jpg")
    ]
    text = refuse(one_shard(*records), make_task(frames=frames))
    assert text == (
        "3 of 40 images match no frame: x.jpg, …. Nothing was changed. "
        "Without a frame: x.jpg, y.jpg, z.jpg. Frames are named like frame0.jpg."
    )


@pytest.mark.parametrize("name", ["frame_000001.png", "frame_1.png", "000001.jpg", "1.jpg"])
def test_numbers_that_count_otherwise_than_the_video(refuse, name: str) -> None:
    """CVAT takes the digits for the second frame, which is number 15 of the video."""
    task = make_task(is_video=True, start_frame=10, step=5)
    assert name.partition(".")[0] in refuse(one_shard(record(name, "cat")), task)


def test_a_flipped_bit_names_record_and_byte(refuse) -> None:
    """Of a task with annotations, too, for whose frames the damaged shard lacks a record."""
    first, second = record("a.jpg", "cat"), record("b.jpg", "cat")
    data = bytearray(shard(first, second))
    start = len(shard(first))
    data[start + 12 + 20] ^= 1
    text = refuse({"x/train.tfrecord": bytes(data)}, make_task(box(0, "cat"), box(1, "cat")))
    assert "has no record" not in text
    assert text.startswith("checksum of the data is wrong (train.tfrecord, record 1). ")
    assert f"x/train.tfrecord, record 1, byte {start}: " in text


@pytest.mark.parametrize("name", ["t.tfrecord", "label_map.pbtxt"])
def test_a_zip_with_a_damaged_entry(refuse, name: str) -> None:
    data = bytearray(real_zip([("t.tfrecord", TWO), ("label_map.pbtxt", LABEL_MAP)]))
    start = data.index(name.encode()) + len(name)
    data[start + 4 : start + 14] = bytes(10)
    assert refuse(bytes(data)).startswith(f"damaged entry ({name}). Nothing was changed. {name}: ")


REFUSALS: dict[str, tuple[dict[str, bytes] | bytes, list[str]]] = {
    "a class that the task lacks": (
        one_shard(record("a.jpg", "dog", "cat"), record("b.jpg", "dog")),
        [
            "class 'dog' is not among the labels. Nothing was changed. Labels of the task: bird, "
            "cat."
        ],
    ),
    "two classes": (
        one_shard(record("a.jpg", "dog"), record("b.jpg", "Cat")),
        [
            "2 classes are not among the labels: 'Cat', …. Nothing was changed. "
            "Without a label: 'Cat', 'dog'. Labels of the task: bird, cat."
        ],
    ),
    "a class that only the label map names": (
        one_shard(record("a.jpg", ids=[3]))
        | {"label_map.pbtxt": LABEL_MAP + b"item { id: 3 name: 'dog' }"},
        ["class 'dog' is not among the labels", "Labels of the task: bird, cat."],
    ),
    "no class": (
        one_shard(record("b.jpg", "cat"), record("a.jpg", "")),
        ["an object has neither a class text nor an id", SECOND, "image/object/class/text"],
    ),
    "no name": (
        one_shard(record("", "cat")),
        [
            "the record has no file name (image/filename). Nothing was changed. "
            "Write the name of the frame to image/filename."
        ],
    ),
    "an id that the label map lacks": (
        one_shard(record("a.jpg", ids=[7])) | {"label_map.pbtxt": LABEL_MAP},
        [
            "label_map.pbtxt has no id 7. Nothing was changed. Add the class to it, or name the "
            "classes in the shard."
        ],
    ),
    # CVAT would attach the boxes of 000001.jpg to frame 1, which is another image.
    "a number for a name": (
        one_shard(record("000001.jpg", "cat"), record("b.jpg", "cat")),
        ["name is read as a frame number", "000001.jpg"],
    ),
    "a number that is no frame": (one_shard(record("000007.jpg", "cat")), ["000007.jpg"]),
    "nan": (boxed(float("nan"), 0.1, 0.5, 0.5), [f"box 0 has xmin nan {SECOND}", "(b.jpg)"]),
    "x inverted": (
        boxed(0.5, 0.1, 0.25, 0.5),
        [f"box is inverted {SECOND}", "xmin is larger than xmax", "(b.jpg)"],
    ),
    "pixels": (boxed(10, 12, 40, 30), ["pixel"]),
    "more boxes than classes": (
        one_shard(encode(image("a.jpg", HEIGHT, WIDTH) | objects([FULL, FULL], ["cat"]))),
        ["t.tfrecord", "2", "1"],
    ),
    # CVAT's own words are 'annotation has no label'.
    "ids without a label map": (
        one_shard(record("a.jpg", ids=[5])),
        ["objects have only ids (#5) and no label map"],
    ),
    "no size to scale by": (
        one_shard(encode({"image/filename": "a.jpg"} | objects([FULL], ["cat"]))),
        [
            "the image size is unknown, and the image has 1 box (t.tfrecord, record 0). Nothing "
            "was changed. t.tfrecord, record 0 (the first), byte 0 (a.jpg). Ask the author of the "
            "script that wrote the record of a.jpg to write image/height and image/width into "
            "every record."
        ],
    ),
    "an early end": ({"t.tfrecord": TWO[:-9]}, ["record 1", "t.tfrecord"]),
    "no example": (one_shard(record("a.jpg", "cat"), b"\xff\xff\xff not protobuf"), ["record 1"]),
    # What is wrong is the kind of shard, and not the name of an image that it does not have.
    "something else": (
        one_shard(encode({"speech/samples": [1, 2, 3]})),
        [
            "t.tfrecord has no image/filename and no boxes. Nothing was changed. The records "
            "match no profile; their features are speech/samples; export an object detection "
            "dataset."
        ],
    ),
    "a broken label map": (
        one_shard(record("a.jpg", ids=[1])) | {"label_map.pbtxt": b"item { id: 1 name: 'cat' "},
        ["label_map.pbtxt"],
    ),
    "a bare shard": (GOOD, ["zip"]),
    "nothing": (b"", ["zip"]),
    "the head of a zip": (b"PK\3\4", ["zip"]),
    "rar": (b"Rar!\x1a\7\0" + bytes(60), ["zip"]),
    "xml": (b"<annotations></annotations>", ["zip"]),
    "a truncated zip": (real_zip([("t.tfrecord", GOOD)])[:-30], ["zip"]),
    "an empty zip": (
        {},
        [
            "the zip contains no files. Nothing was changed. "
            "Add the shards, named *.tfrecord, *.record or *-00000-of-00010."
        ],
    ),
    # Of cvat#4074: the wrong zip must not look like bad data.
    "a zip of CVAT's own format": (
        {"annotations.xml": b"<annotations/>", "images/a.jpg": b"\xff\xd8\xff"},
        ["CVAT for images annotations, not TFRecord. ", "choose CVAT 1.1 in its menu. "],
    ),
    "a zip of another format": (
        {"annotations/instances_default.json": b'{"images": []}', "images/a.jpg": b"x"},
        ["COCO annotations, not TFRecord. Nothing was changed. ", "choose COCO 1.0 in its menu. "],
    ),
    "a zip in the zip": ({"x/inner.zip": real_zip([("t.tfrecord", GOOD)])}, ["Unpack x/inner.zip"]),
    "an empty shard": (
        {"t.tfrecord": b"", "label_map.pbtxt": LABEL_MAP},
        ["t.tfrecord is empty (0 bytes). Nothing was changed. ", "export or download it again"],
    ),
    **{
        f"a zip of {kind}": (files, [f"choose {choice} in its menu"])
        for kind, files, choice in (
            ("VOC", {"Annotations/a.xml": b"<annotation/>"}, "PASCAL VOC 1.1"),
            (
                "YOLO",
                {"obj.data": b"x", "obj.names": b"cat", "obj_train_data/a.txt": b"0 1 1 1 1"},
                "Ultralytics YOLO Detection 1.0 or YOLO 1.1",
            ),
        )
    },
    # A length that promises more than there is must not be believed.
    "a bomb that is a record": (
        {"t.tfrecord": struct.pack("<Q", 1 << 60) + bytes(300)},
        ["t.tfrecord"],
    ),
    "several defects": (
        one_shard(record("a.jpg", "dog"), record("zzz.jpg", "cat")),
        ["'dog'", "zzz.jpg"],
    ),
    "many defects": (
        one_shard(*(record(f"no{number}.jpg", f"class{number}") for number in range(400))),
        ["400 of 400 images match no frame"],
    ),
}
"""Zips, or the bytes of none, and what a user must read: all of it, where it ends in a stop."""


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusals(refuse, kind: str) -> None:
    files, (first, *others) = REFUSALS[kind]
    text = refuse(files)
    assert text == first if first.endswith(".") else first in text
    assert all(one in text for one in others)
    assert "annotation has no label" not in text
    assert len(text) < 2000  # CVAT shows all of it in a box on the page


def test_a_name_with_line_breaks_and_controls(refuse) -> None:
    text = refuse(one_shard(record("a\nb\r\x1b[31m.jpg", "do\ng")))
    assert "\x1b" not in text
    assert "\r" not in text


def test_an_import_that_cvat_itself_ends(refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels that are deleted while the worker is at it: CVAT's own message, the same class."""
    from cvat.apps.dataset_manager.bindings import TaskData

    task = make_task()

    def gone(self: TaskData, name: str) -> None:
        raise ValueError(f"Label {name!r} is not registered for this task")

    monkeypatch.setattr(TaskData, "_label", gone)
    text = refuse(one_shard(record("a.jpg", "cat")), task, by_cvat=True)
    assert (
        "Image frame 0 a.jpg: can't import annotation #0 (bbox): Label 'cat' is not registered"
        in text
    )


LOST = [
    shape("skeleton", 0, "cat", (), elements=[shape("points", 0, "cat", (1, 1))]),
    shape("points", 1, "cat", (1, 1, 5, 5)),
    shape("points", 2, "cat", (1, 1, 5, 5)),
    box(1, "cat"),
]
LOST_TRACKS = [track("cat", *(shape("polyline", number, "cat", (1, 1, 5, 5)) for number in (0, 1)))]


def test_shapes_that_no_shard_can_bring_back(refuse) -> None:
    """CVAT has no place where an import that succeeds could say that it has deleted them."""
    task = make_task(*LOST, tracks=LOST_TRACKS)
    text = refuse(one_shard(*(record(f"{one}.jpg", "cat") for one in "abc")), task)
    assert text == (
        "import deletes 2 points, 1 skeleton, 1 polyline tracks, which shards cannot store. "
        "Nothing was changed. To keep them, import with import_mode=append (CVAT 2.65 or "
        "later); tfod cvat import has --mode append. To delete them, do so in the task first; "
        "tfod cvat import has --force."
    )


def test_of_a_job_only_its_own_shapes_count(refuse, tmp_path: Path) -> None:
    task = make_task(*LOST)
    text = refuse({"t.tfrecord": shard(record("b.jpg", "cat"))}, Job(task, 1, 1))
    assert text.startswith("import deletes 1 points, which shards cannot store. ")
    task.annotations.shapes.pop(1)
    path = upload(tmp_path, {"t.tfrecord": shard(record("b.jpg", "cat"))})
    assert len(import_into(Job(task, 1, 1), path)) == 3


def test_an_import_that_appends_deletes_nothing(tmp_path: Path) -> None:
    task = make_task(*LOST)
    path = upload(tmp_path, {"t.tfrecord": GOOD})
    assert len(import_into(task, path, import_mode="append")) == len(LOST) + 1


def test_a_zip_of_some_frames_does_not_empty_the_others(refuse, tmp_path: Path) -> None:
    """As a job's zip does that is imported into its task. A job takes it, and so does who adds."""
    moving = track("cat", box(1, "cat"), box(3, "cat", outside=True))
    frames = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
    task = make_task(box(0, "bird"), tracks=[moving], frames=frames, deleted_frames=[1])
    of_a_job = one_shard(record("a.jpg", "cat"))
    text = refuse(of_a_job, task)
    assert text.startswith(
        "import deletes the annotations of 1 frame without a record. Nothing was "
        "changed. c.jpg. Import the shards into their job, or export the whole task again. "
    )
    path = upload(tmp_path, of_a_job)
    assert len(import_into(Job(task, 0, 1), path)) == 1
    assert len(import_into(task, path, import_mode="append")) == 2
    # A record without a box says that its frame is empty.
    assert (
        len(import_into(task, upload(tmp_path, one_shard(record("a.jpg"), record("c.jpg"))))) == 0
    )


@pytest.mark.skipif(not cvat.IS_NEW, reason="old servers have no placeholders")
def test_what_is_on_validation_frames_is_replaced_as_well(refuse) -> None:
    """In a task whose jobs have placeholders of them, CVAT's import deletes the ground truth."""
    task = make_task(
        box(2, "cat"),
        shape("points", 2, "cat", (1, 1)),
        frames=["v.jpg", "b.jpg", "v.jpg"],
        placeholders=[0],
    )
    text = refuse(one_shard(record("b.jpg", "cat")), task)
    assert text.startswith("import deletes 1 points, which shards cannot store. ")
    assert "the annotations of 1 frame without a record. v.jpg. " in text


def test_a_tag_alone_is_an_annotation_as_well(refuse) -> None:
    task = make_task(box(0, "bird"), tags=[tag(2, "cat")])
    assert "1 frame without a record. Nothing was changed. c.jpg" in refuse(
        one_shard(record("a.jpg", "cat")), task
    )
