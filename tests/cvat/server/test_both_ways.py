"""Both ways out of CVAT: its own format, and the bridge by "CVAT for images 1.1".

Shown for any shapes, inside their frame and reaching out of it: the exports are equal byte for
byte, the checker calls them valid for CVAT, and CVAT takes them back.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tfod
from cvat.apps.engine.models import Annotations, AttributeSpec, AttributeType, Frame, Label, Task
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Severity
from tfod.checker.receivers import CVAT
from tfod.cvat.client.exporting import convert_export
from tfod.cvat.frame_shards import ExportOptions

from tests.commands import Run
from tests.conftest import examples
from tests.cvat.server.images_format import cvat_for_images
from tests.cvat.server.tasks import (
    BOXES,
    HEIGHT,
    MASKS,
    WIDTH,
    Exported,
    box,
    export,
    frame,
    import_into,
    make_task,
    shape,
    tag,
    track,
    upload,
)
from tests.image_kinds import file_of
from tests.records import frame as shard

FORMATS = (BOXES, MASKS)
ROOT = Path(__file__).parents[3]


def bridge_export(
    task: Task, folder: Path, name: str = BOXES, save_images: bool = False
) -> Exported:
    """What ``tfod cvat export task 1`` writes, with the server's answer as CVAT makes it."""
    source, out = folder / "cvat.zip", folder / "bridge.zip"
    cvat_for_images(task, source, save_images)
    options = ExportOptions(with_images=save_images, save_masks=name == MASKS)
    convert_export(str(source), str(out), options)
    return Exported(out)


def hundredths(least: int, most: int) -> st.SearchStrategy[float]:
    return st.integers(least * 100, most * 100).map(lambda value: value / 100)


xs, ys = hundredths(-2 * WIDTH, 4 * WIDTH), hundredths(-2 * HEIGHT, 4 * HEIGHT)
degrees = st.one_of(st.just(0.0), hundredths(0, 360))
groups = st.integers(0, 3)
attributes = st.fixed_dictionaries(
    {}, optional={"count": st.sampled_from(["1", "2.5"]), "difficult": st.just("true")}
)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["rectangle", "ellipse", "polygon", "mask"]))
    common = {
        "occluded": draw(st.booleans()),
        "group": draw(groups),
        "attributes": draw(attributes),
    }
    number, label = draw(st.integers(0, 2)), draw(st.sampled_from(["bird", "cat"]))
    if kind == "mask":  # which the editor keeps inside
        left, top = draw(st.integers(0, WIDTH - 4)), draw(st.integers(0, HEIGHT - 4))
        pixels = draw(st.lists(st.booleans(), min_size=16, max_size=16))
        points = [*runs_of([True, *pixels[1:]]), left, top, left + 3, top + 3]
        return shape(kind, number, label, points, **common)
    if kind == "polygon":
        points = draw(st.lists(st.tuples(xs, ys), min_size=3, max_size=6))
        return shape(kind, number, label, [one for pair in points for one in pair], **common)
    (left, right), (top, bottom) = sorted((draw(xs), draw(xs))), sorted((draw(ys), draw(ys)))
    rotation = draw(degrees)
    if kind == "ellipse":
        points = [(left + right) / 2, (top + bottom) / 2, right, top]
        return shape(kind, number, label, points, rotation=rotation, **common)
    return shape(kind, number, label, (left, top, right, bottom), rotation=rotation, **common)


def runs_of(bits: list[bool]) -> list[int]:
    """Run lengths, of pixels outside first."""
    changes = np.flatnonzero(np.diff(np.array(bits).astype(int))) + 1
    lengths: list[int] = np.diff([0, *changes, len(bits)]).tolist()
    return [0, *lengths] if bits[0] else lengths


@pytest.mark.parametrize("name", FORMATS)
@examples(30)
@given(drawn=st.lists(shapes(), max_size=6))
def test_what_is_exported_is_valid_for_cvat_and_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, drawn: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("task")
    task = make_task(*drawn)
    found = export(task, folder, name)
    assert bridge_export(task, folder, name).files == found.files
    boxes = np.concatenate([one.boxes for one in found.records])
    assert ((boxes >= 0) & (boxes <= 1)).all()
    assert (boxes[:, 2:] >= boxes[:, :2]).all()
    report = check_sources([str(found.path)], Options(receiver=CVAT))
    assert [one for one in report.findings if one.severity is Severity.ERROR] == []
    assert not [one for one in report.findings if one.code.startswith("ZIP")]  # of the notes
    assert report.valid
    task.annotations = Annotations()
    back = import_into(task, found.path, name, conv_mask_to_poly=False)
    assert len(back) == len(boxes)


def test_a_rotated_box_that_reaches_far_outside(tmp_path: Path) -> None:
    """The box around it reaches past 2 in parts of the frame."""
    task = make_task(box(0, "cat", -60, 20, 190, 24, rotation=30.0), box(1, "bird"))
    found = export(task, tmp_path)
    ((_, *corners),) = found.boxes()["a.jpg"]
    # From where its lower edge enters at the top to where it leaves at the right.
    assert corners == pytest.approx([22.9, 0.0, 64.0, 23.73], abs=0.01)
    task.annotations = Annotations()
    assert [row[:2] for row in import_into(task, found.path)] == [
        ("a.jpg", "rectangle"),
        ("b.jpg", "rectangle"),
    ]


def test_of_a_shape_in_a_corner_only_what_is_seen(tmp_path: Path) -> None:
    """An ellipse about a corner of the frame: a quarter of it is in the frame."""
    task = make_task(shape("ellipse", 0, "cat", (WIDTH, HEIGHT, WIDTH + 20, HEIGHT - 10)))
    found = export(task, tmp_path, MASKS)
    assert found.boxes()["a.jpg"] == [("cat", WIDTH - 20.0, HEIGHT - 10.0, WIDTH, HEIGHT)]
    (mask,) = found.records[0].masks or ()
    assert mask is not None
    pixels = np.asarray(Image.open(io.BytesIO(bytes(mask.data)))) > 0
    assert abs(pixels.sum() - np.pi * 20 * 10 / 4) < 4


def test_the_box_around_a_turned_box_is_inside_and_the_box_is_not(tmp_path: Path) -> None:
    """Turned by 45 degrees, its corner passes the corner of the frame."""
    task = make_task(box(0, "cat", -30, -30, 0, 0, rotation=45.0))
    found = export(task, tmp_path)
    assert found.boxes()["a.jpg"] == []
    notes = found.files["EXPORT_NOTES.txt"].decode()
    assert "- not written, because they are completely outside their frame: 1 shape\n" in notes


EVERYTHING = {
    "shapes": (
        box(0, "cat", 1.123, 2.987, 30.555, 20.005, attributes={"count": "3"}, occluded=True),
        box(0, "bird", -5, -5, 20, 20, rotation=33.333, group=2),
        shape("polygon", 0, "cat", (3.3, 4.4, 50.5, 7.7, 40.1, 33.3, 20, 44, 5, 20), group=2),
        shape("ellipse", 1, "bird", (30.25, 20.75, 41.5, 12.125), rotation=20.0),
        shape("mask", 1, "cat", (1, 2, 3, 6, 5, 6, 8, 8)),
        shape("polyline", 1, "cat", (1, 1, 5, 5)),
        shape("cuboid", 2, "cat", range(16)),
        shape("skeleton", 2, "cat", ()),
    ),
    "tags": (tag(2, "bird"),),
}


@pytest.mark.parametrize("save_images", [False, True], ids=["annotations", "with images"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "kind",
    [
        {"frames": ["in/A.v2.JPG", "b.webp", "c.PNG"]},
        {"is_video": True, "step": 3, "subset": "val"},
    ],
    ids=["images", "a video"],
)
def test_both_ways_are_one(
    tmp_path: Path, name: str, kind: dict[str, Any], save_images: bool
) -> None:
    task = make_task(*EVERYTHING["shapes"], tags=EVERYTHING["tags"], **kind)
    ours, theirs = (way(task, tmp_path, name, save_images) for way in (export, bridge_export))
    if not (kind.get("is_video") and save_images):  # encoders of PNG differ
        assert theirs.files == ours.files
    assert theirs.files.keys() == ours.files.keys()
    assert theirs.files["EXPORT_NOTES.txt"] == ours.files["EXPORT_NOTES.txt"]
    for one, other in zip(ours.records, theirs.records, strict=True):
        assert (one.filename, one.format) == (other.filename, other.format)
        assert one.boxes.tolist() == other.boxes.tolist()
        assert one.attributes == other.attributes
        assert bool(one.encoded) is save_images
    assert [len(one.boxes) for one in ours.records] == [3, 2, 0]


def test_a_track_is_the_same_but_for_its_number(tmp_path: Path) -> None:
    """CVAT's XML has boxes where the format's own export knows which track they are of."""
    moving = track("cat", box(0, "cat", 0, 0, 10, 10), box(2, "cat", 20, 10, 30, 20))
    task = make_task(tracks=[moving])
    ours, theirs = (way(task, tmp_path) for way in (export, bridge_export))
    assert theirs.boxes() == ours.boxes()
    notes = ours.files["EXPORT_NOTES.txt"].decode()
    assert "- tracks split into single shapes, one per frame: 1\n" in notes
    assert [list(one.attributes["track_id"]) for one in ours.records] == [[0]] * 3
    assert [one.attributes.get("track_id") for one in theirs.records] == [None] * 3


def test_the_walk_through_of_the_page_ends_equal(run: Run, tmp_path: Path) -> None:
    """With the attributes that it gives to the labels."""
    shards = tmp_path / "pascal.tfrecord"
    run("convert", ROOT / "examples/shapes_voc", shards, "--set", "train").succeeded()
    (step,) = re.findall(r"Give each label ([^.]*)", (ROOT / "docs/cvat.md").read_text())
    kinds = defaultdict(lambda: AttributeType.CHECKBOX, view=AttributeType.TEXT)
    specs = [AttributeSpec(name, kinds[name]) for name in re.findall(r"`(\w+)`", step)]
    label_map, _ = tfod.parse_label_map((tmp_path / "label_map.pbtxt").read_text())
    frames = [
        Frame(one.filename or "", one.width or 0, one.height or 0, bytes(one.encoded or b""))
        for one in tfod.read_detections(str(shards))
    ]
    task = Task(frames, [Label(one.class_name, list(specs)) for one in label_map.items])
    files = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    import_into(task, upload(tmp_path, files))
    ran = run("diff", shards, export(task, tmp_path, save_images=True).path)
    assert ran.out.startswith("EQUAL")


def test_images_that_tensorflow_does_not_read_become_png(tmp_path: Path) -> None:
    """With the same pixels, under the frame's own name."""
    pixels = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    data = file_of(Image.fromarray(pixels), "WEBP", lossless=True)
    image = type(frame("a.jpg"))("a.webp", WIDTH, HEIGHT, data)
    found = export(make_task(box(0, "cat"), frames=[image]), tmp_path, save_images=True)
    (record,) = found.records
    assert (record.filename, record.format) == ("a.webp", "png")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(bytes(record.encoded)))), pixels)
    notes = found.files["EXPORT_NOTES.txt"].decode()
    assert "- images converted to PNG for TensorFlow: 1 webp\n" in notes
    assert "encoded again" not in notes
    report = check_sources([str(found.path)], Options(receiver=CVAT))
    assert [one.code for one in report.findings if one.code.startswith("NAM")] == []


FULL = (0, 12, 5, 6, 8, 8)
EXACT = {
    "shapes": [
        box(0, "cat", 1.25, 2.5, 30, 20, attributes={"colour": "red"}, occluded=True, group=7),
        box(0, "bird", 20, 10, 44, 20, rotation=33.25, z_order=2, group=5),
        box(0, "bird", 22, 12, 40, 22, rotation=359.5, z_order=-1, group=7),
        box(0, "cat", 56, 10, 70, 18, rotation=45.0, group=7),  # partly outside
        box(0, "cat", 3, 3, 9, 9, group=5, z_order=3),
        box(1, "cat", 3, 3, 9, 9),
    ],
    "tags": [{**tag(1, "bird"), "attributes": {"colour": "rain", "difficult": "true"}}],
}
MASKED = [
    shape("mask", 2, "cat", FULL, z_order=1),
    shape("mask", 2, "cat", (1, 2, 3, 6, 5, 6, 8, 8)),
]


def exactly(task: Task) -> list[Any]:
    """Shape by shape and tag by tag; groups as a division of a frame's shapes."""
    members: dict[tuple[int, int], list[int]] = {}
    shapes = sorted(task.annotations.shapes, key=lambda one: (one["frame"], one["points"]))
    for number, one in enumerate(shapes):
        members.setdefault((one["frame"], one["group"]), []).append(number)
    names = ("type", "frame", "label", "points", "occluded", "z_order", "rotation")
    defaults = {"count": "1", "difficult": "false", "colour": ""}
    found: list[Any] = [
        ([one[name] for name in names], {**defaults, **one["attributes"]}) for one in shapes
    ]
    tags = [
        (one["frame"], one["label"], {**defaults, **one["attributes"]})
        for one in task.annotations.tags
    ]
    return [found, tags, [own for (_, group), own in members.items() if group]]


@pytest.mark.parametrize("out", [export, bridge_export], ids=["server", "bridge"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_round_trip_is_equal(tmp_path: Path, name: str, out: Any) -> None:
    """Of rectangles, turned ones, tags; of masks in the format that has them, full ones too."""
    task = make_task(*EXACT["shapes"], *(MASKED if name == MASKS else ()), tags=EXACT["tags"])
    before = exactly(task)
    found = out(task, tmp_path, name)
    task.annotations = Annotations()
    import_into(task, found.path, name, conv_mask_to_poly=False)
    assert exactly(task) == before


def test_what_was_drawn_counts_for_the_box_that_it_was_noted_of(tmp_path: Path) -> None:
    """Who moves the box of a record, and knows nothing of the note, has moved the shape."""
    task = make_task(box(0, "cat", 20, 10, 44, 20, rotation=30.0))
    (record, *others) = export(task, tmp_path).records
    moved = replace(record, boxes=record.boxes + np.float32(0.1))
    payloads = [tfod.encode_detection(one) for one in (moved, *others)]
    path = upload(tmp_path, {"t.tfrecord": shard(*payloads)})
    task.annotations = Annotations()
    import_into(task, path)
    (found,) = task.annotations.shapes
    assert found["rotation"] == 0
    assert found["points"] == pytest.approx(
        [side * full for side, full in zip(moved.boxes[0], (WIDTH, HEIGHT) * 2, strict=True)],
        abs=0.01,
    )
