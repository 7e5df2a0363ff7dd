"""Conversions without a server: XML to a Detection and back, runs, and the table of changes."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.cvat.client.live_task import Changes, ServerAnnotations
from tfod.cvat.client.project_dataset import compress_runs
from tfod.cvat.records import AttributeSpec, ShapeBuilder, ZipRecord
from tfod.detection.box_geometry import clip_outline
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import fill_box, fill_polygon, run_lengths
from tfod.detection.labels.label_map import LabelMap
from tfod.errors import TfodError
from tfod.example.example import Example
from tfod.formats.cvat.document import (
    END,
    format_head,
    format_image,
    read_cvat_stream,
    read_cvat_xml,
)
from tfod.formats.cvat.frame_detections import DetectionBuilder
from tfod.formats.cvat.shapes import (
    BOX,
    MASK,
    CvatImage,
    CvatShape,
    CvatTag,
    decode_runs,
    draw_shape,
    encode_runs,
)
from tfod.sources.reading import decode_detection

pytest.importorskip("lxml")
coco_mask = pytest.importorskip("pycocotools.mask")

SIZE = 60, 80
TYPES = {"truncated": "checkbox", "colour": "select", "age": "number", "note": "text"}
INPUT_TYPES = {("car", name): kind for name, kind in TYPES.items()}
LABELS = {"car": {name: AttributeSpec(kind) for name, kind in TYPES.items()}, "a & <b>": {}}

masks = st.binary(min_size=600, max_size=600)
hundredths = st.integers(0, 8000).map(lambda value: value / 100)
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
ages = st.integers(-5, 10**6).map(str)
small_masks = st.tuples(
    st.integers(1, 6), st.integers(1, 6), st.integers(0, 50), st.integers(0, 50), st.randoms()
)
drawn_tags = st.builds(
    lambda note, age: CvatTag("car", (("note", note), ("age", str(age)))), texts, st.integers(0, 9)
)


@st.composite
def shapes(draw: st.DrawFn) -> CvatShape:
    label = draw(st.sampled_from(sorted(LABELS)))
    marks: dict[str, Any] = {
        "label": label,
        "occluded": draw(st.booleans()),
        "group": draw(st.integers(0, 3)),
        "z_order": draw(st.integers(-2, 2)),
    }
    if label == "car":
        values = draw(st.sampled_from(["true", "false"])), draw(texts), draw(ages), draw(texts)
        marks["attributes"] = tuple(zip(TYPES, values, strict=True))
    if draw(st.booleans()):
        left, right = sorted((draw(hundredths), draw(hundredths)))
        top, bottom = sorted((min(draw(hundredths), 60.0), min(draw(hundredths), 60.0)))
        marks["rotation"] = draw(st.sampled_from([0.0, 33.25, 90.0, 359.99]))
        return CvatShape(BOX, extent=(left, top, right, bottom), **marks)
    height, width, top, left, random = draw(small_masks)
    mask, full = np.zeros(SIZE, bool), draw(st.booleans())
    for row, column in np.ndindex(height, width):
        mask[top + row, left + column] = full or random.random() < 0.5
    mask[top, left] = True
    runs, extent = encode_runs(mask) or ((), (0, 0, 0, 0))
    return CvatShape(MASK, extent=extent, runs=tuple(runs), **marks)


def read_document(text: str, task: str = "a task") -> CvatImage:
    _, image = read_cvat_stream(io.BytesIO((format_head(task, {}) + text + END).encode()), "text")
    assert isinstance(image, CvatImage)
    return image


def sort_attributes(shape: CvatShape) -> CvatShape:
    return replace(shape, attributes=tuple(sorted(shape.attributes)))


def is_seen(shape: CvatShape) -> bool:
    """Whether a rotated shape has an area, and a pixel in the frame; others are counted."""
    if not shape.rotation:
        return True
    left, top, right, bottom = shape.extent
    has_area = left < right and top < bottom and bool(clip_outline(shape.outline, SIZE))
    return has_area and bool(draw_shape(shape, SIZE).any())


@given(st.lists(shapes().filter(is_seen), max_size=5), st.lists(drawn_tags, max_size=2))
def test_round_trip(drawn: list[CvatShape], tags: list[CvatTag]) -> None:
    """All shapes return, also rotated and partly outside, but not groups of one shape."""
    image = CvatImage(3, "a/b.jpg", "", *SIZE, tuple(drawn), tuple(tags))
    builder = DetectionBuilder(LabelMap.from_names(LABELS), INPUT_TYPES, True)
    payload = encode_detection(builder.complete(builder.build(image), None))
    back = ShapeBuilder(LABELS)
    record = ZipRecord("", "here", decode_detection(Example.from_bytes(payload)), None)
    found, found_tags = back.make_shapes(record, SIZE), back.make_tags(record)
    assert builder.losses.sentences() == back.losses.sentences() == []
    groups = Counter(one.group for one in drawn)
    alone = {group for group, count in groups.items() if count == 1}
    kept = [replace(one, group=0) if one.group in alone else one for one in drawn]
    assert list(map(sort_attributes, found)) == list(map(sort_attributes, kept))
    assert found_tags == tags
    # And through the text of the document.
    read = read_document(format_image({"id": 3, "name": image.name}, SIZE, found, found_tags))
    assert (read.number, read.name, read.height, read.width) == (3, "a/b.jpg", *SIZE)
    assert (list(read.shapes), list(read.tags)) == (found, found_tags)


@given(masks)
def test_runs(bits: bytes) -> None:
    mask = np.unpackbits(np.frombuffer(bits, np.uint8)).astype(bool).reshape(SIZE)
    encoded = encode_runs(mask)
    if encoded is None:
        assert not mask.any()
        return
    runs, extent = encoded
    left, top, right, bottom = extent
    assert sum(runs) == (right - left) * (bottom - top)
    assert all(run > 0 for run in runs[1:])
    assert np.array_equal(decode_runs(runs, extent, SIZE), mask)
    assert CvatShape(MASK, "", extent, runs=tuple(runs)).corners == extent


def test_runs_are_clipped_to_the_image() -> None:
    clipped = [[True, True, False], [True, True, False], [False, False, False]]
    assert decode_runs([0, 16], (-2, -2, 2, 2), (3, 3)).tolist() == clipped
    for outside in (5, 5, 7, 7), (-5, -5, -3, -3):
        assert not decode_runs([0, 4], outside, (3, 3)).any()


@given(st.lists(st.booleans(), min_size=1, max_size=400))
def test_compressed_runs(bits: list[bool]) -> None:
    text = compress_runs(run_lengths(np.array(bits)))
    found = coco_mask.decode({"size": [len(bits), 1], "counts": text.encode()})
    assert found.ravel().tolist() == bits


def test_a_thin_polygon() -> None:
    assert np.argwhere(fill_polygon([4.1, 5.1, 4.2, 5.1, 4.2, 5.2], SIZE)).tolist() == [[5, 4]]


COORDINATES = st.floats(-5, 45, allow_nan=False, width=32)


@given(st.tuples(COORDINATES, COORDINATES), st.floats(0, 50), st.floats(0, 50))
def test_boxes_are_filled_like_polygons(
    corner: tuple[float, float], width: float, height: float
) -> None:
    left, top = corner
    right, bottom = left + width, top + height
    outline = [left, top, right, top, right, bottom, left, bottom]
    filled = fill_box((left, top, right, bottom), SIZE)
    assert np.array_equal(filled, fill_polygon(outline, SIZE))


XML = """<annotations><version>1.1</version><meta><task><subset>val</subset><labels>
<label><name>car</name><attributes><attribute><name>age</name><input_type>number</input_type>
</attribute></attributes></label></labels></task></meta>
<image id="5" name="a.jpg" width="80" height="60">{}</image></annotations>"""


def test_shapes_of_xml() -> None:
    text = XML.format(
        '<box label="car" occluded="1" xtl="1.50" ytl="2.00" xbr="3.00" ybr="4.00" z_order="0"'
        ' group_id="7"><attribute name="age">3</attribute></box>'
        '<polygon label="car" occluded="0" points="1.00,2.00;5.00,2.00;5.00,9.00"/>'
        '<ellipse label="car" cx="10" cy="20" rx="5" ry="3" rotation="90.00"/>'
        '<mask label="car" rle="1, 2, 3" left="10" top="20" width="3" height="2"/>'
        '<polyline label="car" points="1,1;2,2"/><cuboid label="car"/>'
        '<skeleton label="s"><points label="1" points="1,1"/></skeleton>'
        '<tag label="car"><attribute name="x">y</attribute></tag>'
    )
    meta, image = read_cvat_stream(io.BytesIO(text.encode()), "a.xml")
    assert isinstance(image, CvatImage)
    assert (meta.subset, meta.input_types) == ("val", {("car", "age"): "number"})
    box, polygon, ellipse, mask = image.shapes
    assert box == CvatShape(
        BOX, "car", (1.5, 2.0, 3.0, 4.0), occluded=True, group=7, attributes=(("age", "3"),)
    )
    assert polygon.corners == (1, 2, 5, 9)
    assert ellipse.extent == (5, 17, 15, 23)
    assert np.allclose(ellipse.corners, (7, 15, 13, 25))
    assert (mask.runs, mask.extent) == ((1, 2, 3), (10, 20, 13, 22))
    assert mask.corners == (11, 20, 13, 21)
    assert image.other_shapes == {"polyline": 1, "cuboid": 1, "skeleton": 1}
    assert image.tags == (CvatTag("car", (("x", "y"),)),)


@pytest.mark.parametrize(
    "shape",
    [
        'polygon label="car" points="1,2;3"',
        'polygon label="car" points=""',
        'polygon label="car" points="1,nan"',
        'mask label="car" rle="1, 2" left="0" top="0" width="3" height="2"',
        'mask label="car" rle="-1, 7" left="0" top="0" width="3" height="2"',
        'mask label="car" rle="x" left="0" top="0" width="3" height="2"',
        'mask label="car" rle="6" top="0" width="3" height="2"',
        'mask label="car" rle="100000000000" left="0" top="0" width="100000" height="1000000"',
        'ellipse label="car" cx="1"',
        'box label="car" xtl="1" ytl="1" xbr="2" ybr="inf"',
    ],
)
def test_invalid_shapes_of_xml(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    path.write_text(XML.format(f"<{shape}/>"))
    with pytest.raises(TfodError, match="line 4") as caught:
        list(read_cvat_xml(str(path)))
    assert "\n" not in str(caught.value)


def test_texts_are_escaped_in_xml() -> None:
    name = 'a"b&c<d>\u00e9\u0001\n.jpg'
    shape = CvatShape(BOX, "a & <b>", (1, 2, 3, 4), attributes=(("n<", "</attribute>\ud800"),))
    image = read_document(format_image({"id": 0, "name": name}, SIZE, [shape]), "</name>&\u0000")
    assert image.name == name.replace("\u0001", "")
    assert image.shapes[0].label == "a & <b>"
    assert image.shapes[0].attributes == (("n<", "</attribute>"),)


@pytest.mark.parametrize("values", ["", [""], []])
def test_a_number_without_limits(values: Any) -> None:
    """CVAT's tables have an empty text, its API a list of one text."""
    assert AttributeSpec.from_cvat({"input_type": "number", "values": values}).values == ()


def changes_of(held: dict[str, Any], file: list[CvatShape]) -> list[str]:
    """Return the table of an import into the first frame."""
    whole = {"shapes": [], "tracks": [], "tags": [], **held}
    changes = Changes(ServerAnnotations.from_api(whole, {1: "car"}, range(1)), append=False)
    changes.compare(0, file)
    return [" ".join(line.split()) for line in changes.text().splitlines()[1:]]


@pytest.mark.parametrize(
    ("frames", "shown"),
    # The second task has only the frames that are not deleted.
    [(range(10), {1, 2, 3, 4, 5, 8, 9}), (range(0, 6, 2), {2, 4})],
)
def test_tracks_are_shown_until_they_end(frames: range, shown: set[int]) -> None:
    shapes = [
        {"type": "rectangle", "frame": frame, "outside": frame == 6} for frame in (1, 5, 6, 8)
    ]
    tracks = [{"label_id": 1, "shapes": shapes}]
    held = ServerAnnotations.from_api({"shapes": [], "tags": [], "tracks": tracks}, {}, frames)
    assert (held.tracks, held.frames) == (1, shown)


def test_changes_by_kind_of_shape() -> None:
    kinds: dict[str, list[float]] = {
        "rectangle": [10, 10, 30, 20],
        "ellipse": [20, 20, 25, 17],
        "polygon": [1, 2, 5, 2, 5, 9],
        "mask": [1, 2, 3, 10, 20, 12, 21],
        "points": [1, 2],
    }
    shapes = [
        {"type": kind, "frame": 0, "label_id": 1, "points": points, "rotation": 0}
        for kind, points in kinds.items()
    ]
    shapes[0]["rotation"] = 90.0
    file = [CvatShape(BOX, "car", (10, 10, 30, 20), rotation=90.0)]
    assert changes_of({"shapes": shapes, "intervals": [{}]}, file) == [
        "car (ellipse) 1 0 0 1",
        "car (mask) 1 0 0 1",
        "car (polygon) 1 0 0 1",
        "car (rotated box) 1 1 0 0",
        "also removed: 1 points, 1 intervals",
    ]


def test_two_equal_boxes_are_two() -> None:
    box = {"type": "rectangle", "frame": 0, "label_id": 1, "points": [1, 2, 3, 4]}
    file = [CvatShape(BOX, "car", (1.2, 2, 3, 4))]
    assert changes_of({"shapes": [box, box]}, file) == ["car (box) 2 1 0 1"]
