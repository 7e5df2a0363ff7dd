"""Boxes that do not fit their image: one policy for all formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import OD_API

from tests.commands import Run
from tests.formats.conftest import by_filename, float32
from tests.formats.one_image import FORMATS, NAME, WITH_CVAT, Box

SIZE = 200, 100
GOOD = (20, 10, 100, 50)
ODD = {
    "boxes whose maximum is below their minimum": (100, 10, 20, 50),
    "boxes that extend beyond their image": (150, 10, 210, 50),
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
    """What was written, which is valid."""
    report = check_sources([str(folder / "out")], Options(receiver=OD_API))
    assert report.valid
    one = by_filename(folder / "out")[NAME]
    found: list[list[float]] = one.boxes.tolist()
    assert len(one.class_text or ()) == len(one.class_label or ()) == len(found)
    assert all(len(values) == len(found) for values in one.attributes.values())
    return found


@pytest.mark.parametrize(
    ("kind", "what"),
    [(x, what) for x in WITH_CVAT for what in ODD if x != "cvat_xml" or "finite" not in what],
)
class TestOneBox:
    def test_is_refused_with_its_place(
        self, convert: Run, tmp_path: Path, kind: str, what: str
    ) -> None:
        ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, [GOOD, ODD[what], GOOD]))
        assert ran.code == 2 and ran.err.count("\n") == 1 and not (tmp_path / "out").exists()
        assert f"nothing is written: {what}: 1 (" in ran.err and PLACES[kind] in ran.err
        assert "correct them, or choose --odd-boxes clip or --odd-boxes drop\n" in ran.err

    @pytest.mark.parametrize("choice", ["clip", "drop"])
    def test_is_clipped_or_left_out_and_counted(
        self, convert: Run, tmp_path: Path, kind: str, what: str, choice: str
    ) -> None:
        dataset = WITH_CVAT[kind](tmp_path, SIZE, [GOOD, ODD[what], GOOD])
        ran = convert(*dataset, f"--odd-boxes={choice}")
        assert ran.code == 0, ran.err
        clipped = choice == "clip" and "beyond" in what
        done = "clipped to it" if clipped else "left out"
        assert f"1 {what}, {done} (the first: " in ran.err and PLACES[kind] in ran.err
        good = float32([0.1, 0.1, 0.5, 0.5])
        middle = [float32([0.75, 0.1, 1, 0.5])] if clipped else []
        assert boxes_in(tmp_path) == [good, *middle, good]


@pytest.mark.parametrize("kind", WITH_CVAT)
def test_what_lies_wholly_outside_cannot_be_clipped(
    convert: Run, tmp_path: Path, kind: str
) -> None:
    dataset = WITH_CVAT[kind](tmp_path, SIZE, [GOOD, (210, 10, 250, 50)])
    ran = convert(*dataset, "--odd-boxes=clip")
    assert "1 boxes that extend beyond their image, left out" in ran.err
    assert boxes_in(tmp_path) == [float32([0.1, 0.1, 0.5, 0.5])]


@pytest.mark.parametrize("kind", WITH_CVAT)
def test_rounding_is_clipped_without_a_word(convert: Run, tmp_path: Path, kind: str) -> None:
    dataset = WITH_CVAT[kind](tmp_path, SIZE, [(-1e-5, 10, 200 * (1 + 1e-7), 100.00001)])
    ran = convert(*dataset)
    assert ran.code == 0 and ran.err == ""
    assert boxes_in(tmp_path) == [float32([0, 0.1, 1, 1])]


@pytest.mark.parametrize(("right", "code"), [(200.01, 0), (200.02, 2)])
@pytest.mark.parametrize("kind", FORMATS)
def test_so_are_two_decimals(
    convert: Run, tmp_path: Path, kind: str, right: float, code: int
) -> None:
    ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, [(20, 10, right, 50)]))
    assert ran.code == code and (ran.err == "") is (code == 0)


def test_all_that_are_odd_are_counted_and_ten_are_named(convert: Run, tmp_path: Path) -> None:
    flat, inverted = (20, 10, 20, 50), (100, 10, 20, 50)
    ran = convert(*FORMATS["csv"](tmp_path, SIZE, [flat] * 12 + [inverted]))
    assert "boxes without width or height: 12 (" in ran.err and "; 2 more); correct" in ran.err
    assert "row 11: xmin 20" in ran.err and "row 12: xmin 20" not in ran.err
    assert "boxes whose maximum is below their minimum: 1 (" in ran.err
    assert "row 14: xmin 100, ymin 10, xmax 20, ymax 50 in 200x100)" in ran.err


@pytest.mark.parametrize("kind", WITH_CVAT)
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ((0.1, 0.2, 0.5, 1), "2 of 2 boxes are within 0 to 1"),
        ((0.1, 0.2, 0.5, 1.014), "2 of 2 boxes are within 0 to 1"),
        ((0, 0, 90, 80), "1 of 2 boxes are within 0 to 1"),
        (GOOD, ""),
    ],
)
def test_most_boxes_tell_pixels_from_normalized_numbers(
    convert: Run, tmp_path: Path, kind: str, other: Box, said: str
) -> None:
    boxes = [other, (0.25, 0, 0.75, 0.5), *[GOOD] * (not said)]
    ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, boxes))
    assert ran.code == 2 * bool(said) and (tmp_path / "out").exists() is (not said)
    assert said in ran.err and ("they are normalized" in ran.err) is bool(said)


@pytest.mark.parametrize("kind", WITH_CVAT)
def test_one_object_at_least_is_left(convert: Run, tmp_path: Path, kind: str) -> None:
    ran = convert(*WITH_CVAT[kind](tmp_path, SIZE, [(210, 10, 250, 50)] * 2), "--odd-boxes=drop")
    assert ran.code == 2 and not (tmp_path / "out").exists() and ran.err.count("\n") == 1
    assert "tfod: nothing is written: all 2 annotated objects were left out; 2 boxes" in ran.err
    assert "left out (the first: " in ran.err and PLACES[kind].split(", ")[0] in ran.err


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
    assert ("enclosing box: 1 rotated" in said or "1 rotated boxes" in said) is bool(output)
    np.testing.assert_allclose(
        boxes_in(tmp_path)[1], np.array(output or box) / np.tile(SIZE, 2), atol=1e-6
    )
