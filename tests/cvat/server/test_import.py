"""Import of annotations into a task or a job: zips as others make them.

Shown: ``.record`` files, shards, Roboflow's folders, label maps in odd but legal syntax or none at
all; what becomes of attributes, masks, odd boxes, and of the annotations of other jobs.
"""

from __future__ import annotations

import gzip
import io
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfod
from cvat.apps.engine.models import Annotations, AttributeSpec, AttributeType, Job, JobType, Task
from PIL import Image

from tests.cvat.server.tasks import (
    FULL,
    HEIGHT,
    IN_PIXELS,
    LABEL_MAP,
    MASKS,
    WIDTH,
    box,
    export,
    import_into,
    make_task,
    record,
    stored,
    tag,
    upload,
)
from tests.records import encode, image, objects
from tests.records import frame as shard


def rows(task: Task) -> list[tuple[Any, ...]]:
    """Name of the frame, label and corners."""
    return [(name, label, points) for name, _, label, points, *_ in stored(task)]


def test_a_mask_without_a_pixel_is_its_box(tmp_path: Path) -> None:
    """Of cvat#6767: CVAT says 'zero-size array to reduction operation minimum' and stops."""
    out = io.BytesIO()
    Image.new("L", (WIDTH, HEIGHT)).save(out, "PNG")
    payload = record("a.jpg", "cat", **{"image/object/mask": [out.getvalue()]})
    task = make_task()
    found = import_into(
        task, upload(tmp_path, {"a.tfrecord": shard(payload)}), MASKS, conv_mask_to_poly=False
    )
    assert [(row[1], row[3]) for row in found] == [("rectangle", IN_PIXELS)]


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
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_zips_of_others(tmp_path: Path, temp_root: Path, layout: str) -> None:
    task = make_task(box(2, "bird"))
    import_into(task, upload(tmp_path, LAYOUTS[layout]), temp_root=str(temp_root))
    assert rows(task) == [("a.jpg", "cat", IN_PIXELS), ("b.jpg", "bird", IN_PIXELS)]
    assert list(temp_root.iterdir()) == []


def test_only_shards_and_label_maps_are_unpacked(
    tmp_path: Path, temp_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images beside the shards may be large, and nobody reads them."""
    from cvat.apps.dataset_manager import bindings

    seen = []
    real = bindings.import_dm_annotations

    def look(*arguments: Any) -> None:
        seen.extend(one.name for one in temp_root.rglob("*") if one.is_file())
        real(*arguments)

    monkeypatch.setattr(bindings, "import_dm_annotations", look)
    files = {
        "x/t.tfrecord": shard(record("a.jpg", "cat")),
        "x/label_map.pbtxt": LABEL_MAP,
        "x/images/a.jpg": bytes(1000),
        "script.py": b"print()",
    }
    import_into(make_task(), upload(tmp_path, files), temp_root=str(temp_root))
    assert sorted(seen) == ["label_map.pbtxt", "t.tfrecord"]


@pytest.mark.parametrize("name", ["frame_1.png", "frame_00000001.jpg"])
def test_frames_of_a_video_as_others_number_them(tmp_path: Path, name: str) -> None:
    """Where every frame of the video is in the task, its digits are the frame's number."""
    task = make_task(is_video=True)
    import_into(task, upload(tmp_path, {"t.tfrecord": shard(record(name, "cat"))}))
    assert [one["frame"] for one in task.annotations.shapes] == [1]


def test_an_attribute_called_frame_moves_no_image(tmp_path: Path) -> None:
    """CVAT goes by it before it goes by the digits of the name."""
    one = tfod.Detection(
        filename="frame_1.png",
        height=HEIGHT,
        width=WIDTH,
        boxes=np.array([FULL], np.float32),
        class_text=["cat"],
        image_extra={"frame": 0},
    )
    task = make_task(is_video=True)
    import_into(task, upload(tmp_path, {"t.tfrecord": shard(tfod.encode_detection(one))}))
    assert [one["frame"] for one in task.annotations.shapes] == [1]


def test_compressed_shards(tmp_path: Path) -> None:
    data = gzip.compress(shard(record("a.jpg", "cat")))
    task = make_task()
    import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert rows(task) == [("a.jpg", "cat", IN_PIXELS)]


def test_the_text_decides_where_the_id_differs(tmp_path: Path) -> None:
    """As in training with the OD API; ids of the label map need not be the task's."""
    files = {"t.tfrecord": shard(record("a.jpg", "cat", ids=[1])), "label_map.pbtxt": LABEL_MAP}
    task = make_task()
    import_into(task, upload(tmp_path, files))
    assert [label for _, label, _ in rows(task)] == ["cat"]


def test_classes_of_the_label_map_that_no_box_has_do_not_matter(tmp_path: Path) -> None:
    files = {
        "t.tfrecord": shard(record("a.jpg", "cat")),
        "label_map.pbtxt": LABEL_MAP + b"item { id: 3 name: 'dog' }",
    }
    task = make_task()
    import_into(task, upload(tmp_path, files))
    assert len(rows(task)) == 1


def test_boxes_that_hang_over_the_edge_are_cut(tmp_path: Path) -> None:
    own = objects([(-0.1, -0.1, 0.5, 1.05)], ["cat"])
    data = shard(encode(image("a.jpg", HEIGHT, WIDTH) | own))
    task = make_task()
    import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert rows(task) == [("a.jpg", "cat", (0.0, 0.0, 32.0, 48.0))]


def test_attributes_that_the_label_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Numbers become the label's texts; what it lacks is counted in the log."""
    keys = {f"image/object/{name}": [1] for name in ("occluded", "difficult", "truncated")}
    data = shard(record("a.jpg", "cat", **keys))
    task = make_task()
    ((*_, occluded, attributes),) = import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert occluded is True
    assert dict(attributes) == {"difficult": "true"}
    assert any("1 truncated" in line for line in caplog.messages)


def test_attributes_that_the_label_would_refuse(tmp_path: Path) -> None:
    """CVAT ends an import at a checkbox that is neither true nor false."""
    task = make_task()
    for label in task.labels:
        label.attributes = [AttributeSpec("truncated", AttributeType.CHECKBOX, "false")]
    data = shard(record("a.jpg", "cat", **{"image/object/truncated": [0.5]}))
    ((*_, attributes),) = import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert attributes == ()


@pytest.mark.parametrize(
    ("kind", "values", "key", "stored_as"),
    [
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
    data = shard(record("a.jpg", "cat", **key))
    ((*_, attributes),) = import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert dict(attributes).get(name) == stored_as


def test_an_attribute_called_rotation_turns_nothing(tmp_path: Path) -> None:
    one = tfod.Detection(
        filename="b.jpg",
        height=HEIGHT,
        width=WIDTH,
        boxes=np.array([FULL], np.float32),
        class_text=["cat"],
        attributes={"rotation": [30], "outside": [1], "track_id": [5], "keyframe": [1]},
    )
    data = shard(tfod.encode_detection(one))
    task = make_task()
    import_into(task, upload(tmp_path, {"t.tfrecord": data}))
    assert rows(task) == [("b.jpg", "cat", IN_PIXELS)]
    assert task.annotations.shapes[0]["rotation"] == 0
    assert task.annotations.shapes[0]["outside"] is False


def test_what_was_there_is_replaced(tmp_path: Path) -> None:
    task = make_task(box(0, "bird"), box(2, "bird"), tags=[tag(0, "bird")])
    import_into(task, upload(tmp_path, {"t.tfrecord": shard(record("b.jpg", "cat"))}))
    assert rows(task) == [("b.jpg", "cat", IN_PIXELS)]
    assert task.annotations.tags == []


def test_a_job_replaces_its_own_frames(tmp_path: Path) -> None:
    task = make_task(box(0, "bird", 1, 1, 5, 5), box(1, "bird"), box(2, "bird"))
    data = shard(record("b.jpg", "cat"))
    import_into(Job(task, 1, 2), upload(tmp_path, {"t.tfrecord": data}))
    assert rows(task) == [("a.jpg", "bird", (1, 1, 5, 5)), ("b.jpg", "cat", IN_PIXELS)]


def test_more_annotations_than_cvat_holds_at_once(tmp_path: Path) -> None:
    """CVAT stores what was added in portions of 30,000; none is lost or stored twice."""
    data = shard(encode(image("a.jpg", HEIGHT, WIDTH) | objects([FULL] * 30_100, ["cat"] * 30_100)))
    task = make_task()
    assert len(import_into(task, upload(tmp_path, {"t.tfrecord": data}))) == 30_100


def test_the_log_tells_what_was_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    keys = {"image/object/view": ["Frontal"]}
    data = shard(record("a.jpg", "cat", **keys))
    import_into(make_task(), upload(tmp_path, {"t.tfrecord": data}))
    output = [one.getMessage() for one in caplog.records if one.name == "tfod.cvat"]
    assert any("1 view" in line for line in output)


def test_captions_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = shard(record("a.jpg", "cat", **{"image/caption": ["a yard", "with a cat"]}))
    assert len(import_into(make_task(), upload(tmp_path, {"t.tfrecord": data}))) == 1
    assert "captions of images, which CVAT does not have: 2" in caplog.text


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
    assert "1 image of the task's other jobs left out" in caplog.text


def test_a_zip_of_the_task_in_its_job_of_ground_truth(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CVAT describes the whole range of such a job; its page shows the chosen frames alone."""
    task = make_task()
    data = shard(*(record(name, "cat") for name in ("a.jpg", "b.jpg", "c.jpg")))
    job = Job(task, 0, 2, type=JobType.GROUND_TRUTH, chosen=(1,))
    import_into(job, upload(tmp_path, {"t.tfrecord": data}))
    assert rows(task) == [("b.jpg", "cat", IN_PIXELS)]
    assert "2 images of the task's other jobs left out" in caplog.text
