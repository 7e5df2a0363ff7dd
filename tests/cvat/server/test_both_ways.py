"""The two exports of CVAT, its own and the bridge's, and the way back.

Shown for any shapes, also partly outside their frame: the exports are equal byte for byte, the
checker calls them valid for CVAT, and CVAT imports them. Rectangles, rotated ones, masks and tags
return unchanged.
"""

from __future__ import annotations

import io
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvat
import numpy as np
import pytest
import tfod
from cvat.apps.dataset_manager.bindings import CvatImportError
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
    put,
    shape,
    stored,
    tag,
    track,
    upload,
)
from tests.image_kinds import file_of

FORMATS = (BOXES, MASKS)
ROOT = Path(__file__).parents[3]


def bridge_export(
    task: Task, folder: Path, name: str = BOXES, save_images: bool = False
) -> Exported:
    """Export like ``tfod cvat export task 1``, from the answer of the double."""
    source, out = folder / "cvat.zip", folder / "bridge.zip"
    cvat_for_images(task, source, save_images)
    options = ExportOptions(with_images=save_images, save_masks=name == MASKS)
    convert_export(str(source), str(out), options)
    return Exported(out)


def again(task: Task, found: Exported, name: str = BOXES, **more: Any) -> list[tuple[Any, ...]]:
    """Delete the annotations, and import an export."""
    task.annotations = Annotations()
    return import_into(task, found.path, name, **more)


def hundredths(least: int, most: int) -> st.SearchStrategy[float]:
    return st.integers(least * 100, most * 100).map(lambda value: value / 100)


xs, ys = hundredths(-2 * WIDTH, 4 * WIDTH), hundredths(-2 * HEIGHT, 4 * HEIGHT)
degrees = st.one_of(st.just(0.0), hundredths(0, 360))
attributes = st.fixed_dictionaries(
    {}, optional={"count": st.sampled_from(["1", "2.5"]), "difficult": st.just("true")}
)


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["rectangle", "ellipse", "polygon", "mask"]))
    common = {"occluded": draw(st.booleans()), "group": draw(st.integers(0, 3))}
    common |= {"attributes": draw(attributes)}
    number, label = draw(st.integers(0, 2)), draw(st.sampled_from(["bird", "cat"]))
    if kind == "mask":  # the editor clips masks to the frame
        left, top = draw(st.integers(0, WIDTH - 4)), draw(st.integers(0, HEIGHT - 4))
        pixels = draw(st.lists(st.booleans(), min_size=16, max_size=16))
        points = [*runs_of([True, *pixels[1:]]), left, top, left + 3, top + 3]
        return shape(kind, number, label, points, **common)
    if kind == "polygon":
        points = draw(st.lists(st.tuples(xs, ys), min_size=3, max_size=6))
        return shape(kind, number, label, np.ravel(points), **common)
    (left, right), (top, bottom) = sorted((draw(xs), draw(xs))), sorted((draw(ys), draw(ys)))
    rotation = draw(degrees)
    if kind == "ellipse":
        points = [(left + right) / 2, (top + bottom) / 2, right, top]
        return shape(kind, number, label, points, rotation=rotation, **common)
    return shape(kind, number, label, (left, top, right, bottom), rotation=rotation, **common)


def runs_of(bits: list[bool]) -> list[int]:
    """Return run lengths, first of 0."""
    changes = np.flatnonzero(np.diff(np.array(bits).astype(int))) + 1
    lengths: list[int] = np.diff([0, *changes, len(bits)]).tolist()
    return [0, *lengths] if bits[0] else lengths


@pytest.mark.parametrize("name", FORMATS)
@examples(30)
@given(drawn=st.lists(shapes(), max_size=6))
def test_exports_are_equal_valid_and_importable(
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
    assert len(again(task, found, name, conv_mask_to_poly=False)) == len(boxes)


FULL = (0, 12, 5, 6, 8, 8)
MASK = (1, 2, 3, 6, 5, 6, 8, 8)
POLYGON = (10, 10, 30, 10, 30, 26, 20, 18, 10, 26)
EXACT = [
    box(0, "cat", 1.25, 2.5, 30, 20, attributes={"colour": "red"}, occluded=True, group=7),
    box(0, "bird", 20, 10, 44, 20, rotation=33.25, z_order=2, group=5),
    box(0, "bird", 22, 12, 40, 22, rotation=359.5, z_order=-1, group=7),
    box(0, "cat", 56, 10, 70, 18, rotation=45.0, group=7),  # partly outside
    box(0, "cat", 3, 3, 9, 9, group=5, z_order=3),
    box(1, "cat", 0, 0, WIDTH, HEIGHT),
]
MASKED = [shape("mask", 1, "cat", FULL, z_order=1), shape("mask", 1, "cat", MASK)]
TAG = {**tag(1, "bird"), "attributes": {"colour": "rain", "difficult": "true"}}


def exactly(task: Task) -> list[Any]:
    """Return all shapes, the groups as a division of a frame's shapes, and all tags."""
    members: dict[tuple[int, int], list[int]] = {}
    shapes = sorted(task.annotations.shapes, key=lambda one: (one["frame"], one["points"]))
    for number, one in enumerate(shapes):
        members.setdefault((one["frame"], one["group"]), []).append(number)
    names = ("type", "frame", "label", "points", "occluded", "z_order", "rotation")
    attributes = {"count": "1", "difficult": "false", "colour": ""}
    return [
        [([one.get(name) for name in names], attributes | one["attributes"]) for one in drawn]
        for drawn in (shapes, task.annotations.tags)
    ] + [[own for (_, group), own in members.items() if group]]


KINDS: dict[str, dict[str, Any]] = {
    "flat": {},
    "in folders": {"frames": ["one/a.jpg", "one/b.jpg", "two/a.jpg"]},
    "deep, with one frame above": {"frames": ["top.jpg", "x/y/a.jpg", "x/y/b.jpg"]},
    "of one folder": {"frames": ["set/a.jpg", "set/b.jpg", "set/c.jpg"]},
    "names of numbers": {"frames": ["000001.jpg", "000000.jpg", "000002.jpg"]},
    "dots, spaces, capitals": {"frames": ["in/A.v2.JPG", "b c.PNG", "кадр.jpeg"]},
    "an image that becomes PNG": {"frames": ["a.jpg", "b.webp", "c.png"]},
    "of Windows": {"frames": ["day\\a.jpg", "a.jpg", "day/b.jpg"]},
    "extensions that differ": {"frames": ["a.jpg", "b.png", "c.bmp"]},
    "a video": {"is_video": True},
    "a video with start and step": {
        "is_video": True,
        "start_frame": 10,
        "step": 5,
        "subset": "val",
    },
    "images with start and step": {"start_frame": 4, "step": 3, "subset": "val"},
    "with a deleted frame": {"deleted_frames": [2]},
}


LOSSY = (
    box(0, "cat", 1.123, 2.987, 30.555, 20.005, attributes={"count": "3"}, occluded=True),
    box(0, "bird", -5, -5, 20, 20, rotation=33.333, group=2),
    shape("polygon", 0, "cat", (3.3, 4.4, 50.5, 7.7, 40.1, 33.3, 20, 44, 5, 20), group=2),
    shape("ellipse", 1, "bird", (30.25, 20.75, 41.5, 12.125), rotation=20.0),
    shape("mask", 1, "cat", MASK),
    shape("polyline", 1, "cat", (1, 1, 5, 5)),
    shape("cuboid", 2, "cat", range(16)),
    shape("skeleton", 2, "cat", ()),
)


@pytest.mark.parametrize("save_images", [False, True], ids=["annotations", "with images"])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "kind", ["dots, spaces, capitals", "an image that becomes PNG", "a video with start and step"]
)
def test_exports_are_equal(tmp_path: Path, name: str, kind: str, save_images: bool) -> None:
    task = make_task(*LOSSY, tags=[tag(2, "bird")], **KINDS[kind])
    ours, theirs = (way(task, tmp_path, name, save_images) for way in (export, bridge_export))
    if not (task.is_video and save_images):  # encoders of PNG differ
        assert theirs.files == ours.files
    assert theirs.files.keys() == ours.files.keys()
    assert theirs.notes == ours.notes
    for one, other in zip(ours.records, theirs.records, strict=True):
        assert (one.filename, one.format) == (other.filename, other.format)
        assert one.boxes.tolist() == other.boxes.tolist()
        assert one.attributes == other.attributes
        assert bool(one.encoded) is save_images
    assert [len(one.boxes) for one in ours.records] == [3, 2, 0]


@pytest.mark.parametrize(("name", "save_images"), [(BOXES, True), (MASKS, False)])
@pytest.mark.parametrize("kind", KINDS)
def test_round_trips(tmp_path: Path, kind: str, name: str, save_images: bool) -> None:
    task = make_task(*EXACT, *(MASKED if name == MASKS else ()), tags=[TAG], **KINDS[kind])
    before = exactly(task)
    for way in (export, bridge_export):
        again(task, way(task, tmp_path, name, save_images), name, conv_mask_to_poly=False)
        assert exactly(task) == before


def test_tracks_become_boxes(tmp_path: Path) -> None:
    """CVAT's XML does not name the track of a box, so the bridge does not know it."""
    moving = track(
        "cat",
        box(0, "cat", 0, 0, 10, 10),
        box(2, "cat", 20, 10, 30, 20, occluded=True),
        box(3, "cat", 20, 10, 30, 20, outside=True),
        box(4, "cat", 5, 5, 9, 9),
    )
    task = make_task(frames=[f"{name}.jpg" for name in "abcdef"], tracks=[moving])
    ours, theirs = (way(task, tmp_path) for way in (export, bridge_export))
    assert theirs.boxes() == ours.boxes()
    visible = [(0, 0, 10, 10), (10, 5, 20, 15), (20, 10, 30, 20), (), (5, 5, 9, 9), (5, 5, 9, 9)]
    assert list(ours.boxes().values()) == [
        [("cat", *corners)] * bool(corners) for corners in visible
    ]
    assert "- tracks split into single shapes, one per frame: 1\n" in ours.notes
    assert list(ours.records[2].attributes["occluded"]) == [1]
    assert [list(one.attributes.get("track_id", ())) for one in ours.records] == [
        [0] * bool(corners) for corners in visible
    ]
    assert not any("track_id" in one.attributes for one in theirs.records)
    # An importer would take an attribute `frame` as the frame of the image.
    for record in ours.records:
        assert "frame" not in record.image_extra
        assert not set(record.attributes) & {"keyframe", "outside", "rotation"}
    assert [row[3] for row in again(task, ours)] == list(filter(None, visible))
    assert not task.annotations.tracks


def test_clipped_shapes(tmp_path: Path) -> None:
    """Only the visible part of a shape is exported."""
    # The box around this one reaches past 2 in parts of the frame.
    task = make_task(box(0, "cat", -60, 20, 190, 24, rotation=30.0), box(1, "bird"))
    found = export(task, tmp_path)
    ((_, *corners),) = found.boxes()["a.jpg"]
    assert corners == pytest.approx([22.9, 0.0, 64.0, 23.73], abs=0.01)
    assert [row[:2] for row in again(task, found)] == [
        ("a.jpg", "rectangle"),
        ("b.jpg", "rectangle"),
    ]
    # The corner of this one is outside, and the box around it is inside.
    found = export(make_task(box(0, "cat", -30, -30, 0, 0, rotation=45.0)), tmp_path)
    assert found.boxes()["a.jpg"] == []
    assert "because they are completely outside their frame: 1 shape\n" in found.notes
    # A quarter of this ellipse is inside.
    ellipse = shape("ellipse", 0, "cat", (WIDTH, HEIGHT, WIDTH + 20, HEIGHT - 10))
    found = export(make_task(ellipse), tmp_path, MASKS)
    assert found.boxes()["a.jpg"] == [("cat", WIDTH - 20.0, HEIGHT - 10.0, WIDTH, HEIGHT)]
    (mask,) = found.records[0].masks or ()
    assert mask is not None
    pixels = np.asarray(Image.open(io.BytesIO(bytes(mask.data)))) > 0
    assert abs(pixels.sum() - np.pi * 20 * 10 / 4) < 4


@pytest.mark.parametrize("as_polygons", [True, False])
def test_masks(tmp_path: Path, as_polygons: bool) -> None:
    """The formats read each other's files. Rectangles return from their masks."""
    task = make_task(box(0, "bird", 10.3, 4.8, 31.5, 26.2), shape("polygon", 1, "bird", POLYGON))
    found = export(task, tmp_path, MASKS)
    for name in FORMATS:
        rectangle, other = again(task, found, name, conv_mask_to_poly=as_polygons)
        assert (rectangle[1], rectangle[3]) == ("rectangle", (10.3, 4.8, 31.5, 26.2))
        assert other[1:3] == ("polygon" if as_polygons else "mask", "bird")
        if as_polygons:
            ends = min(other[3][::2]), max(other[3][::2]), max(other[3][1::2])
            assert ends == pytest.approx((10, 30, 26), abs=1.01)
    again(task, export(make_task(box(0, "cat")), tmp_path), MASKS)
    assert [row[1] for row in stored(task)] == ["rectangle"]


@pytest.mark.skipif(not cvat.IS_NEW, reason="old servers have no placeholders")
def test_a_task_with_placeholders(tmp_path: Path) -> None:
    """A placeholder has the name of a validation frame, which gets the boxes."""
    frames = ["a.jpg", "b.jpg", "a.jpg"]
    task = make_task(box(1, "cat"), box(2, "bird"), frames=frames, placeholders=[0])
    again(task, export(task, tmp_path))
    found = [(one["frame"], one["label"]) for one in task.annotations.shapes]
    assert found == [(1, "cat"), (2, "bird")]


def test_an_empty_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert again(make_task(), export(make_task(), tmp_path)) == []
    monkeypatch.setenv("TFOD_CVAT_EMPTY_FRAMES", "drop")
    # The import of an empty shard would only delete annotations.
    with pytest.raises(CvatImportError, match=r"^default.tfrecord is empty \(0 bytes\)\. "):
        again(make_task(), export(make_task(), tmp_path))


def test_the_walk_through_of_the_page(run: Run, tmp_path: Path) -> None:
    """The labels have the attributes that the page names."""
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


def test_images_that_tensorflow_cannot_read_become_png(tmp_path: Path) -> None:
    """The pixels and the name of the frame stay."""
    pixels = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    data = file_of(Image.fromarray(pixels), "WEBP", lossless=True)
    task = make_task(box(0, "cat"), frames=[replace(frame("a.webp"), data=data)])
    found = export(task, tmp_path, save_images=True)
    (record,) = found.records
    assert (record.filename, record.format) == ("a.webp", "png")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(bytes(record.encoded)))), pixels)
    assert "- images converted to PNG for TensorFlow: 1 webp\n" in found.notes
    assert "encoded again" not in found.notes
    report = check_sources([str(found.path)], Options(receiver=CVAT))
    assert [one.code for one in report.findings if one.code.startswith("NAM")] == []


def test_details_of_a_shape_are_those_of_its_box(tmp_path: Path) -> None:
    """If a program moves the box and ignores the details, the shape becomes this box."""
    task = make_task(box(0, "cat", 20, 10, 44, 20, rotation=30.0))
    (record, *others) = export(task, tmp_path).records
    moved = replace(record, boxes=record.boxes + np.float32(0.1))
    task.annotations = Annotations()
    put(tmp_path, task, *(tfod.encode_detection(one) for one in (moved, *others)))
    (found,) = task.annotations.shapes
    expected = moved.boxes[0] * np.array((WIDTH, HEIGHT) * 2)
    assert (found["rotation"], found["points"]) == (0, pytest.approx(expected, abs=0.01))
