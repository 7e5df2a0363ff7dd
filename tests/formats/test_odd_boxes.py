"""Boxes that do not fit their image: one policy for all formats."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import OD_API
from tfod.detection.images.mask_images import encode_mask_png

from tests.commands import Run
from tests.formats.conftest import by_filename, float32
from tests.formats.one_image import FORMATS, NAME, WITH_CVAT, Box
from tests.mutants.sound import LABEL_MAP, other, with_boxes
from tests.records import write_shard

MASKS = [encode_mask_png(np.eye(20, 40, number) > 0) for number in range(3)]
MORE: dict[str, Any] = {
    "image/object/difficult": [0, 1, 2],
    "image/object/attribute/color": [0, 1, 2],
    "image/object/mask": MASKS,
    **{f"image/object/keypoint/{side}": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6] for side in "xy"},
    "image/object/keypoint/visibility": [0, 0, 1, 1, 2, 2],
}
SIZE = 200, 100
GOOD = (20, 10, 100, 50)
ODD = {
    "boxes whose maximum is below their minimum": (100, 10, 20, 50),
    "boxes that extend beyond their image": (150, 10, 210, 50),
    "boxes wholly outside their image": (210, 10, 250, 50),
    "boxes without width or height": (20, 10, 20, 50),
    "boxes with a coordinate that is not a finite number": (20, 10, float("nan"), 50),
}
PLACES = {
    "coco": "a.json, annotation 2: ",
    "voc": "000001.xml, line 3: ",
    "csv": "a.csv, row 3: ",
    "cvat_xml": f"a.xml: {NAME}, box 2: ",
}


@pytest.fixture(autouse=True)
def image(tmp_path: Path) -> None:
    Image.new("RGB", SIZE, "teal").save(tmp_path / NAME)


def boxes_in(folder: Path) -> list[list[float]]:
    """Return the boxes of the written shard, which has to be valid."""
    assert check_sources([str(folder / "out")], Options(receiver=OD_API)).valid
    one = by_filename(folder / "out")[NAME]
    found: list[list[float]] = one.boxes.tolist()
    lists = [one.class_text or (), one.class_label or (), *one.attributes.values()]
    assert {len(values) for values in lists} == {len(found)}
    return found


@pytest.mark.parametrize("choice", ["refuse", "clip", "drop"])
@pytest.mark.parametrize(
    ("kind", "what"),
    [(x, what) for x in WITH_CVAT for what in ODD if x != "cvat_xml" or "finite" not in what],
)
def test_one_box(convert: Run, tmp_path: Path, kind: str, what: str, choice: str) -> None:
    dataset = WITH_CVAT[kind](tmp_path, SIZE, [GOOD, ODD[what], GOOD])
    ran = convert(*dataset, *[f"--odd-boxes={choice}"] * (choice != "refuse"))
    assert ran.err.count("\n") == 1
    is_clipped = choice == "clip" and "beyond" in what
    if choice != "drop" and not is_clipped:
        assert ran.code == 2 and not (tmp_path / "out").exists()
        assert f"nothing is written: {what}: 1 (" in ran.err and PLACES[kind] in ran.err
        assert f"--odd-boxes drop{' instead of clip' * (choice == 'clip')}\n" in ran.err
        assert ("--odd-boxes clip" in ran.err) is ("beyond" in what)
        return
    assert ran.code == 0, ran.err
    done = "clipped to it" if is_clipped else "left out"
    assert f"{what}, {done}: 1 (the first: " in ran.err and PLACES[kind] in ran.err
    good = float32([0.1, 0.1, 0.5, 0.5])
    middle = [float32([0.75, 0.1, 1, 0.5])] if is_clipped else []
    assert boxes_in(tmp_path) == [good, *middle, good]


INSIDE, OVER, BEYOND = (0.1, 0.1, 0.5, 0.5), (0.75, 0.1, 1.2, 0.5), (1.2, 0.1, 1.5, 0.5)
FLAT, INVERTED, NAN = (0.1, 0.1, 0.1, 0.5), (0.5, 0.1, 0.1, 0.5), (0.1, 0.1, math.nan, 0.5)
PIXELS = (20.0, 10.0, 100.0, 50.0)


@pytest.mark.parametrize("target", ["out/x.record", "out.json"])
@pytest.mark.parametrize(
    ("odd", "choice", "expected"),
    [
        (OVER, "clip", (0.75, 0.1, 1, 0.5)),
        (OVER, "drop", None),
        (FLAT, "clip", "without width or height: 1 ("),
        (INVERTED, "clip", "whose maximum is below their minimum: 1 ("),
        (NAN, "clip", "not a finite number: 1 ("),
        (BEYOND, "clip", "wholly outside their image: 1 ("),
        (PIXELS, "clip", "looks like pixels"),
        *((odd, "drop", None) for odd in (FLAT, INVERTED, NAN, BEYOND, PIXELS)),
        *((odd, "refuse", "correct it, or leave its object out with") for odd in (INVERTED, NAN)),
        (FLAT, "refuse", FLAT),  # which is a warning in shards
    ],
)
def test_shards(
    convert: Run, tmp_path: Path, target: str, odd: Box, choice: str, expected: str | Box | None
) -> None:
    boxes = [INSIDE, odd, (*INSIDE[:2], 0.6, 0.6)]
    payload = with_boxes(boxes, ["cat", "dog", "dog"], [1, 2, 2], **MORE)
    write_shard(tmp_path / "in", "train", payload, other())
    (tmp_path / "in" / "label_map.pbtxt").write_bytes(LABEL_MAP)
    ran = convert(tmp_path / "in", tmp_path / target, "--odd-boxes", choice)
    if isinstance(expected, str):
        assert expected in ran.refused() and not (tmp_path / target).exists()
        return
    assert ran.code == 0, ran.err
    assert ("box 1: xmin" in ran.err and ": 1 (the first: " in ran.err) is (choice != "refuse")
    if target.endswith("json"):
        assert len(json.loads((tmp_path / target).read_text())["annotations"]) == 4 + bool(expected)
        return
    image = by_filename(tmp_path / target)["a.jpg"]
    kept = [0, 1, 2] if expected else [0, 2]
    boxes[1] = expected or odd
    assert image.boxes.tolist() == float32([boxes[row] for row in kept])
    assert image.class_text == [["cat", "dog", "dog"][row] for row in kept]
    assert image.attributes["difficult"] == kept and image.attributes["color"] == kept
    assert image.masks is not None and image.keypoints is not None
    assert image.keypoints.visibility[:, 0].tolist() == [[0, 1, 2][row] for row in kept]
    assert [bytes(mask.data) for mask in image.masks if mask] == [MASKS[row] for row in kept]


def test_shards_in_pixels_are_not_left_out(convert: Run, tmp_path: Path) -> None:
    write_shard(tmp_path / "in", "train", with_boxes([INSIDE, PIXELS, PIXELS]))
    ran = convert(tmp_path / "in", tmp_path / "out.json", "--odd-boxes=drop")
    assert "2 of 3 boxes look like pixels; normalize them with --boxes pixels" in ran.refused()


@pytest.mark.parametrize("kind", WITH_CVAT)
def test_rounding_is_clipped_without_a_message(convert: Run, tmp_path: Path, kind: str) -> None:
    """A hundredth of a pixel is the error of two decimals."""
    boxes = [(-1e-5, 10, 200 * (1 + 1e-7), 100.00001), (20, 10, 200.01, 50)]
    assert convert(*WITH_CVAT[kind](tmp_path, SIZE, boxes)).succeeded() == ""
    assert boxes_in(tmp_path) == [float32([0, 0.1, 1, 1]), float32([0.1, 0.1, 1, 0.5])]
    convert(*WITH_CVAT[kind](tmp_path, SIZE, [(20, 10, 200.02, 50)]), "--overwrite").refused()


def test_all_are_counted_and_ten_are_named(convert: Run, tmp_path: Path) -> None:
    flat, inverted = (20, 10, 20, 50), (100, 10, 20, 50)
    ran = convert(*FORMATS["csv"](tmp_path, SIZE, [flat] * 12 + [inverted]))
    assert "boxes without width or height: 12 (" in ran.err and "; 2 more); correct" in ran.err
    assert "row 11: xmin 20" in ran.err and "row 12: xmin 20" not in ran.err
    assert "boxes whose maximum is below their minimum: 1 (" in ran.err
    assert "row 14: xmin 100, ymin 10, xmax 20, ymax 50 in 200x100)" in ran.err


@pytest.mark.parametrize("kind", WITH_CVAT)
@pytest.mark.parametrize(
    ("other", "count"),
    [((0.1, 0.2, 0.5, 1), 2), ((0.1, 0.2, 0.5, 1.014), 2), ((0, 0, 90, 80), 1), (GOOD, 0)],
)
def test_most_boxes_tell_pixels_from_normalized_numbers(
    convert: Run, tmp_path: Path, kind: str, other: Box, count: int
) -> None:
    boxes = [other, (0.25, 0, 0.75, 0.5), *[GOOD] * (not count)]
    ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, boxes))
    assert ran.code == 2 * bool(count) and (tmp_path / "out").exists() is (not count)
    assert (f"{count} of 2 boxes are within 0 to 1" in ran.err) is bool(count)
    assert ("they are normalized" in ran.err) is bool(count)


@pytest.mark.parametrize("kind", WITH_CVAT)
def test_at_least_one_object_is_written(convert: Run, tmp_path: Path, kind: str) -> None:
    ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, [(210, 10, 250, 50)] * 2), "--odd-boxes=drop")
    assert ran.code == 2 and not (tmp_path / "out").exists() and ran.err.count("\n") == 1
    assert "tfod: nothing is written: all 2 annotated objects were left out; boxes" in ran.err
    assert "left out: 2 (the first: " in ran.err and PLACES[kind].split(", ")[0] in ran.err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("kind", WITH_CVAT)
def test_documents_in_other_encodings(
    convert: Run, tmp_path: Path, kind: str, encoding: str
) -> None:
    source, *others = WITH_CVAT[kind](tmp_path, SIZE, [GOOD])
    for path in (x for x in tmp_path.rglob("*.*") if x.suffix in (".json", ".xml", ".csv")):
        mark = '<?xml version="1.0" encoding="UTF-16"?>' * (encoding[:6] == "utf-16")
        path.write_bytes((mark * (kind in ("voc", "cvat_xml")) + path.read_text()).encode(encoding))
    assert convert(source, *others, "--from", kind).succeeded() == ""
    assert boxes_in(tmp_path) == [float32([0.1, 0.1, 0.5, 0.5])]


_ROTATION = {
    "cvat_xml": ("/>", " rotation='{}'/>"),
    "coco": ('"area": 1', '"area": 1, "attributes": {{"rotation": {}}}'),
    "voc": ("</bndbox>", "</bndbox><rotation>{}</rotation>"),
    "cvat": (
        "</bndbox>",
        "</bndbox><attributes><attribute><name>rotation</name><value>{}</value></attribute>"
        "</attributes>",
    ),
}


@pytest.mark.parametrize(
    ("box", "degrees", "output"),
    [
        ((80, 30, 120, 50), 90, [90, 20, 110, 60]),
        ((80, 30, 120, 50), -90.0, [90, 20, 110, 60]),
        ((170, 30, 210, 50), 90, [180, 20, 200, 60]),
        ((180, 30, 200, 50), 45, [190 - 200**0.5, 40 - 200**0.5, 200, 40 + 200**0.5]),  # clipped
        ((80, 30, 120, 50), 0, None),
        ((80, 30, 120, 50), 360.0, None),
    ],
)
@pytest.mark.parametrize("kind", _ROTATION)
def test_rotated_boxes(
    convert: Run, tmp_path: Path, kind: str, box: Box, degrees: float, output: list[float] | None
) -> None:
    write = WITH_CVAT["voc" if kind == "cvat" else kind]
    source, *others = write(tmp_path, SIZE, [GOOD, box])
    before, after = _ROTATION[kind]
    for path in (x for x in tmp_path.rglob("*.*") if x.suffix in (".json", ".xml")):
        parts = path.read_text().rpartition(before)
        path.write_text(parts[0] + after.format(degrees) + parts[2])
    said = convert(source, *others).succeeded()
    assert (
        "enclosing box: 1 rotated" in said
        or "rotated boxes, replaced by their enclosing boxes: 1" in said
    ) is bool(output)
    np.testing.assert_allclose(
        boxes_in(tmp_path)[1], np.array(output or box) / np.tile(SIZE, 2), atol=1e-6
    )
