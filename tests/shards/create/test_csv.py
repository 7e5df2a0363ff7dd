"""``tfod create csv``, as generate_tfrecord.py of the raccoon recipe."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.stream import read_detections

from tests.commands import Run
from tests.shards.create.conftest import IMAGES, by_filename, float32

ROWS = """filename,width,height,class,xmin,ymin,xmax,ymax
shapes_02.jpg,240,320,circle,71,188,149,266
shapes_01.jpg,320,240,étoile,196,63,289,158
shapes_02.jpg,240,320,square,0,0,240,320
"""


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "train_labels.csv"
    path.write_text(ROWS)
    (tmp_path / "JPEGImages").mkdir()
    for name in ("shapes_01.jpg", "shapes_02.jpg"):
        shutil.copy(IMAGES / name, tmp_path / "JPEGImages")
    return path


def arguments(csv: Path) -> list[object]:
    out, images = csv.parent / "out" / "train.record", csv.parent / "JPEGImages"
    return ["csv", "--csv-input", csv, "--image-dir", images, "--output-path", out]


def test_records(run: Run, csv: Path) -> None:
    """In the order of the names, each with the boxes of all its rows."""
    ran = run(*arguments(csv))
    assert (ran.code, ran.err) == (0, "")
    one, other = read_detections(csv.parent / "out")
    assert (one.filename, other.filename) == ("shapes_01.jpg", "shapes_02.jpg")
    assert one.boxes.tolist() == float32([[196 / 320, 63 / 240, 289 / 320, 158 / 240]])
    assert other.boxes.tolist() == float32(
        [[71 / 240, 188 / 320, 149 / 240, 266 / 320], [0, 0, 1, 1]]
    )
    assert other.class_text == ["circle", "square"] and other.class_label == [1, 2]
    assert one.class_label == [3] and one.source_id == "1" and one.format == "jpeg"
    assert one.encoded == (IMAGES / "shapes_01.jpg").read_bytes()
    items = read_label_map(csv.parent / "out" / "label_map.pbtxt")[0].items
    assert [item.name for item in items] == ["circle", "square", "étoile"]


def test_boxes_are_of_the_size_that_the_csv_gives(run: Run, csv: Path) -> None:
    """The images were made smaller after they were annotated: boxes are where they were."""
    csv.write_text(ROWS.replace("shapes_01.jpg,320,240,étoile,196,63,289,158",
                                "shapes_01.jpg,640,960,étoile,392,252,578,632"))  # fmt: skip
    ran = run(*arguments(csv))
    assert ran.code == 0 and ran.err == (
        "tfod create: 1 images of another size than their annotation says; their boxes are "
        f"divided by the annotation's (the first: {csv}, shapes_01.jpg: 640x960, the image "
        "320x240)\n"
    )
    found = by_filename(csv.parent / "out")["shapes_01.jpg"]
    assert found.boxes[0].tolist() == float32([196 / 320, 63 / 240, 289 / 320, 158 / 240])
    assert (found.width, found.height) == (320, 240)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("shapes_01", "shapes_99", "images that are missing: 1 ("),
        ("shapes_01", "../../x", "/JPEGImages/x.jpg)"),
        ("196", "left", "train_labels.csv, row 3: xmin is 'left', and should be a number"),
    ],
)
def test_refusals(run: Run, csv: Path, before: str, after: str, says: str) -> None:
    csv.write_text(ROWS.replace(before, after))
    ran = run(*arguments(csv))
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
    assert not (csv.parent / "out").exists()


def test_the_csv_is_never_replaced(run: Run, csv: Path) -> None:
    ran = run("csv", "--csv-input", csv, "--image-dir", IMAGES, "--output-path", csv,
              "--overwrite")  # fmt: skip
    assert ran.code == 2 and f"{csv}: is read and not written to" in ran.err
    assert csv.read_text() == ROWS


def test_what_is_not_read_is_told(run: Run, csv: Path) -> None:
    """The index of pandas, and names that mean one image."""
    first, *rows = ROWS.splitlines()
    rows[2] = "./" + rows[2]
    csv.write_text("\n".join([f",{first},score", *(f"{i},{row},1" for i, row in enumerate(rows))]))
    ran = run(*arguments(csv))
    assert ran.code == 0
    assert "columns that are not read: (without a name), score\n" in ran.err
    assert "1 images that several names in the CSV mean" in ran.err
    assert "(the first: shapes_02.jpg)" in ran.err and "3 images, 3 objects" in ran.out


def test_images_that_no_row_names_are_counted(run: Run, tmp_path: Path) -> None:
    """A row of the name alone writes a record without objects."""
    nothing = "shapes_06.jpg"
    path = tmp_path / "train.csv"
    path.write_text("\n".join([*ROWS.splitlines()[:2], f"{nothing},,,,,,,"]))
    out = tmp_path / "train.record"
    ran = run("csv", "--csv-input", path, "--image-dir", IMAGES, "--output-path", out)
    named = {nothing, "shapes_02.jpg"}
    others = sorted({path.name for path in IMAGES.iterdir()} - named)
    assert ran.code == 0 and ran.err == (
        f"tfod create: {len(others)} images of {IMAGES} that no row names, left out "
        f"(the first: {others[0]}); a row of the name alone writes one without objects\n"
    )
    found = by_filename(out)
    assert set(found) == named and len(found[nothing].boxes) == 0
