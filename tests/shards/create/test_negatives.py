"""Images without objects get a record from every format: a detector learns from them, too.

MediaPipe Model Maker's writers drop them (mediapipe#4423). Of the CSV, whose rows are objects, they
are counted, and written where that is asked for.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import Run
from tests.shards.create.conftest import COCO, IMAGES, VOC, by_filename

NOTHING = "shapes_06.jpg"


def coco(folder: Path) -> list[object]:
    file = COCO / "instances_train.json"
    assert NOTHING in {one["file_name"] for one in json.loads(file.read_text())["images"]}
    return ["--train-image-dir", IMAGES, "--train-annotations-file", file, "--output-dir", folder]


def pascal(folder: Path) -> list[object]:
    return ["--data-dir", VOC, "--output-path", folder / "train.record"]


def csv(folder: Path) -> list[object]:
    path = folder / "train.csv"
    path.write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\nshapes_02.jpg,240,320,circle,1,2,3,4\n"
        f"{NOTHING},,,,,,,\n"
    )
    options = ["--csv-input", path, "--image-dir", IMAGES]
    return [*options, "--output-path", folder / "train.record"]


@pytest.mark.parametrize(
    ("name", "options", "negative"),
    [
        ("coco", coco, NOTHING),
        ("pascal", pascal, NOTHING),
        ("csv", csv, NOTHING),
    ],
)
def test_they_get_a_record(run: Run, tmp_path: Path, name: str, options, negative: str) -> None:
    ran = run(name, *options(tmp_path), "--num-shards=1")
    assert ran.code == 0, ran.err
    found: dict[str | None, int] = {}
    for path in tmp_path.glob("*"):
        if path.is_file() and path.suffix not in (".pbtxt", ".csv"):
            found |= {key: len(one.boxes) for key, one in by_filename(path).items()}
    assert found[negative] == 0 and any(found.values())


def test_a_csv_names_those_that_it_leaves_out(run: Run, tmp_path: Path) -> None:
    options = csv(tmp_path)
    ran = run("csv", *options)
    named = {NOTHING, "shapes_02.jpg"}
    others = sorted({path.name for path in IMAGES.iterdir()} - named)
    assert ran.code == 0 and ran.err == (
        f"tfod create: {len(others)} images of {IMAGES} that no row names, left out "
        f"(the first: {others[0]}); a row of the name alone writes one without objects\n"
    )
    assert set(by_filename(options[-1])) == named
