"""CVAT's XML as a dataset: odd boxes, classes, and a document that has its head twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run
from tests.formats.conftest import by_filename, float32

GOOD = (20, 10, 100, 50)
ODD = {
    "boxes without width or height": (20, 10, 20, 50),
    "boxes whose maximum is below their minimum": (100, 10, 20, 50),
    "boxes that reach outside their image": (150, 10, 250, 50),
}
META = "<meta><task><labels><label><name>cat</name></label></labels></task></meta>"


def write(folder: Path, *boxes: tuple[float, ...], meta: str = META, more: str = "") -> Path:
    """A document of one frame of 200 x 100 pixels."""
    sides = ("xtl", "ytl", "xbr", "ybr")
    texts = (
        " ".join(f'{side}="{value}"' for side, value in zip(sides, box, strict=True))
        for box in boxes
    )
    shapes = "".join(f'<box label="cat" {text}/>' for text in texts)
    image = f'<image id="0" name="a.jpg" width="200" height="100">{shapes}{more}</image>'
    (folder / "a.xml").write_text(f"<annotations>{meta}{image}</annotations>")
    return folder / "a.xml"


def boxes_of(path: Path) -> list[list[float]]:
    found: list[list[float]] = by_filename(path)["a.jpg"].boxes.tolist()
    return found


@pytest.mark.parametrize("what", ODD)
class TestAnOddBox:
    def test_is_refused_and_named(self, convert: Run, tmp_path: Path, what: str) -> None:
        source = write(tmp_path, GOOD, ODD[what])
        line = convert(source, tmp_path / "out", "--no-images").refused()
        assert f"nothing is written: {what}: 1 ({source}: a.jpg, box 2: xmin " in line
        assert "choose --odd-boxes clip or --odd-boxes drop\n" in line

    @pytest.mark.parametrize("choice", ["clip", "drop"])
    def test_is_clipped_or_left_out(
        self, convert: Run, tmp_path: Path, what: str, choice: str
    ) -> None:
        source = write(tmp_path, GOOD, ODD[what], GOOD)
        out = tmp_path / "x.record"
        said = convert(source, out, "--no-images", f"--odd-boxes={choice}").succeeded()
        clipped = choice == "clip" and "outside" in what
        assert f"1 {what}, {'clipped to it' if clipped else 'left out'} (the first: " in said
        good = float32([0.1, 0.1, 0.5, 0.5])
        assert boxes_of(out) == [good, *[float32([0.75, 0.1, 1, 0.5])] * clipped, good]


def test_what_is_turned_reaches_out_as_before(convert: Run, tmp_path: Path) -> None:
    more = '<box label="cat" xtl="150" ytl="10" xbr="250" ybr="50" rotation="180"/>'
    source = write(tmp_path, GOOD, more=more)
    said = convert(source, tmp_path / "x.record", "--no-images").succeeded()
    assert "clipped to their frame" in said and "reach outside" not in said
    assert len(boxes_of(tmp_path / "x.record")) == 2


def test_a_class_that_the_label_map_lacks(convert: Run, tmp_path: Path) -> None:
    source, own = write(tmp_path, GOOD), tmp_path / "own.pbtxt"
    own.write_text("item { id: 1 name: 'dog' }")
    line = convert(source, tmp_path / "out", "--no-images", "--label-map", own).refused()
    assert f"{source}: a.jpg: class 'cat' is not in the label map {own}; correct it, add" in line
