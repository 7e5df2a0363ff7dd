"""``tfod create open_images``. What is expected was written by create_oid_tf_record.py itself.

(With pandas 2.3; ``as_matrix`` spelt ``to_numpy``.)
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tfod.check.check import check_sources
from tfod.detection.detection import ImageLabel
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.stream import read_detections
from tfod.shards.create.open_images import rows_by_image
from tfod.shards.create.problems import Policy, Problems

from tests.commands import Run
from tests.shards.create.conftest import OPEN_IMAGES, by_filename

BOXES = "annotations/oidv6-train-annotations-bbox.csv"
LABELS = "annotations/oidv6-train-annotations-human-imagelabels.csv"
FIRST, SECOND, THIRD = "02a9f1c3d5e70b48", "5b1c08e4a7d92f63", "c7d3e95f1a2b4860"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OPEN_IMAGES, tmp_path / "oid"))


def arguments(data: Path, out: Path, labels: bool = True) -> list[object]:
    found: list[object] = ["open_images", "--input_box_annotations_csv", data / BOXES]
    if labels:
        found += ["--input_image_label_annotations_csv", data / LABELS]
    found += ["--input_images_directory", data / "images" / "train"]
    return [*found, "--output_tf_record_path_prefix", out / "train.tfrecord"]


def created(run: Run, data: Path, out: Path, *options: object, labels: bool = True) -> str:
    label_map = ("--input_label_map", data / "label_map.pbtxt")
    return run(*arguments(data, out, labels), *label_map, *options).succeeded()


def refused(run: Run, data: Path, *options: object) -> str:
    label_map = ("--input_label_map", data / "label_map.pbtxt")
    line = run(*arguments(data, data / "out"), *label_map, *options).refused()
    assert not (data / "out").exists()
    return line


def shuffle(path: Path) -> None:
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[::-1]]) + "\n")


def test_records_are_the_scripts(run: Run, tmp_path: Path) -> None:
    assert created(run, OPEN_IMAGES, tmp_path, "--num_shards", 2) == ""
    found = by_filename(tmp_path)
    one = found[f"{SECOND}.jpg"]
    assert one.boxes.tolist() == [
        [0.6128000020980835, 0.2642259895801544, 0.9042900204658508, 0.6619390249252319],
        [0.5655879974365234, 0.692874014377594, 0.6630060076713562, 0.8227649927139282],
        [0.43168801069259644, 0.7070509791374207, 0.6364129781723022, 0.9800180196762085],
    ]
    assert one.class_text == ["/m/06ngk", "/m/0j3gb", "/m/01vkl"]
    assert one.class_label == [4, 2, 1]
    assert one.attributes == {
        "group_of": [0, 1, 0],
        "occluded": [0, 1, 0],
        "truncated": [0, 0, 0],
        "depiction": [0, 1, 0],
        "is_inside": [0, 0, 0],  # not by the script
    }
    # The confidence is not by the script: 0 says that the class was looked for and is absent.
    assert one.image_labels == [
        ImageLabel("/m/0j3gb", 2, 1.0),
        ImageLabel("/m/07p_7", 3, 0.0),
        ImageLabel("/m/06ngk", 4, 1.0),
    ]
    assert (one.source_id, one.format, one.height, one.width) == (SECOND, "jpeg", 240, 320)
    assert len(found[f"{THIRD}.jpg"].boxes) == 0 and len(found[f"{THIRD}.jpg"].image_labels) == 3


def test_the_id_says_the_shard(run: Run, tmp_path: Path) -> None:
    created(run, OPEN_IMAGES, tmp_path, "--num_shards", 2)
    names = [
        [
            one.source_id
            for one in read_detections(tmp_path / f"train.tfrecord-0000{number}-of-00002")
        ]
        for number in range(2)
    ]
    assert names == [[FIRST, THIRD], [SECOND]]  # the last digits are 8, 0 and 3


def test_no_shard_is_left_without_a_image(run: Run, tmp_path: Path) -> None:
    created(run, OPEN_IMAGES, tmp_path)  # 100 shards by default
    shards = sorted(path.name for path in tmp_path.glob("train*"))
    # Not three either: all three ids are multiples of 3.
    assert shards == ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"]
    assert len(list(read_detections(tmp_path))) == 3


def test_a_csv_in_any_order_gives_the_same(run: Run, data: Path) -> None:
    created(run, data, data / "a", "--num_shards=1")
    header, *rows = (data / BOXES).read_text().splitlines()
    (data / BOXES).write_text("\n".join([header, *rows[1:], rows[0]]) + "\n")
    shuffle(data / LABELS)
    output = created(run, data, data / "b", "--num_shards=1")
    assert "2 CSVs that are not sorted by ImageID, held in memory" in output
    a, b = (by_filename(data / one) for one in "ab")
    assert list(a) == list(b) == [f"{one}.jpg" for one in (FIRST, SECOND, THIRD)]
    for name, one in a.items():
        assert np.array_equal(one.boxes, b[name].boxes) and one.attributes == b[name].attributes
        assert one.image_labels == b[name].image_labels[::-1]


@pytest.mark.parametrize("in_order", [True, False])
def test_images_that_are_not_there(run: Run, data: Path, in_order: bool) -> None:
    for one in (FIRST, THIRD):
        (data / "images" / "train" / f"{one}.jpg").unlink()
    if not in_order:
        shuffle(data / BOXES)
        shuffle(data / LABELS)
    what, first = "rows of images that are not in the folder", f"{data / BOXES}, line "
    output = refused(run, data)
    assert f"nothing is written: {what}: 7 ({first}" in output
    assert f": {FIRST}; " in output and "leave them out with --skip_missing_images" in output
    output = created(run, data, data / "out", "--skip_missing_images")
    assert f"7 {what}, left out (the first: {first}" in output
    (one,) = read_detections(data / "out")
    assert len(one.boxes) == 3 and len(one.image_labels) == 3


def test_classes_that_the_map_lacks(run: Run, data: Path) -> None:
    path = data / "label_map.pbtxt"
    path.write_text(path.read_text().replace("/m/0j3gb", "/m/other"))
    output = created(run, data, data / "out", "--num_shards=1")
    (_, one, _) = read_detections(data / "out")
    assert one.class_label == [4, 1] and [label.label for label in one.image_labels] == [3, 4]
    assert "1 boxes that the label map lacks the class of, left out" in output
    assert "bbox.csv, line 4: /m/0j3gb" in output
    assert "3 classes of images that the label map lacks the class of, left out" in output


def test_a_label_map_that_lacks_every_class(run: Run, data: Path) -> None:
    output = refused(run, data, "--input_label_map", "coco")
    assert "nothing is written: none of 4 annotated objects is left; " in output
    assert "4 boxes that the label map lacks the class of, left out (the first: " in output


def test_without_a_label_map_that_of_open_images(run: Run, data: Path) -> None:
    (data / BOXES).write_text((data / BOXES).read_text().replace("/m/0j3gb", "/m/01yrx"))
    ran = run(*arguments(data, data / "out"))
    assert ran.code == 0
    assert len(read_label_map(data / "out" / "label_map.pbtxt")[0].items) > 500
    assert by_filename(data / "out")[f"{SECOND}.jpg"].class_text == ["/m/01yrx"]


def test_columns_that_are_not_there(run: Run, data: Path) -> None:
    """As in the older releases: no attributes, and no classes of images."""
    rows = [line.split(",")[:8] for line in (data / BOXES).read_text().splitlines()]
    (data / BOXES).write_text("".join(",".join(row) + "\n" for row in rows))
    created(run, data, data / "out", "--num_shards=1", labels=False)
    (_, one, _) = read_detections(data / "out")
    assert len(one.boxes) == 3 and one.attributes == {} and not one.image_labels


def test_ids_that_are_no_numbers(run: Run, data: Path) -> None:
    (data / BOXES).write_text((data / BOXES).read_text().replace(FIRST, "cat"))
    (data / "images" / "train" / f"{FIRST}.jpg").rename(data / "images" / "train" / "cat.jpg")
    shuffle(data / BOXES)
    created(run, data, data / "out", "--num_shards=2", labels=False)
    assert len(by_filename(data / "out")["cat.jpg"].boxes) == 1


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("0.296119", "left", "line 2: 'left' where a number is expected"),
        ("0.296119,", "", "line 2: 12 fields, the header has 13"),
        ("LabelName", "Label", "its first line has no LabelName"),
        ("ImageID", "Image", "its first line has no ImageID"),
        ("xclick", '"' + "x" * (1 << 18), "not a CSV (field larger than"),
    ],
)
def test_csv(run: Run, data: Path, before: str, after: str, says: str) -> None:
    (data / BOXES).write_text((data / BOXES).read_text().replace(before, after, 1))
    output = refused(run, data)
    assert says in output and (BOXES.rpartition("/")[2] in output or FIRST in output)


def test_images_of_other_names_are_counted(run: Run, data: Path) -> None:
    images = data / "images" / "train"
    for name in ("x.JPG", "y.png", "z.txt"):
        shutil.copy(images / f"{FIRST}.jpg", images / name)
    output = created(run, data, data / "out", "--num_shards=1", labels=False)
    assert "2 images whose names do not end in .jpg, left out (the first: " in output
    assert "x.JPG)" in output and len(by_filename(data / "out")) == 3


def test_the_csv_is_never_replaced(run: Run, data: Path) -> None:
    before = (data / BOXES).read_bytes()
    ran = run(*arguments(data, data), "--output_tf_record_path_prefix", data / BOXES,
              "--num_shards=1", "--overwrite")  # fmt: skip
    assert ran.code == 2 and "bbox.csv is read, and would be replaced" in ran.err
    assert (data / BOXES).read_bytes() == before


def test_a_name_that_is_no_text(run: Run, data: Path) -> None:
    image = data / "images" / "train" / f"{FIRST}.jpg"
    shutil.copy(image, os.fsdecode(os.fsencode(image.parent) + b"/\xff.jpg"))
    assert "'\\udcff.jpg' is not Unicode text" in refused(run, data)


def test_folders(run: Run, data: Path) -> None:
    assert "holds no *.jpg" in refused(run, data, "--input_images_directory", data)
    assert "No such file" in refused(run, data, "--input_images_directory", data / "x")
    assert "cannot be read" in refused(run, data, "--input_box_annotations_csv", data / "x.csv")


def test_a_sorted_csv_is_streamed(tmp_path: Path) -> None:
    """Rows are read when their image is asked for, not before."""
    path = tmp_path / "b.csv"
    head = "ImageID,LabelName,XMin,XMax,YMin,YMax\n"
    path.write_text(head + "".join(f"{n:04},/m/x,0,1,0,1\n" for n in range(100)))
    problems = Problems(Policy(skip_missing_images=True))
    rows = rows_by_image(str(path), (), lambda _, row: row, ["0010", "0050"], problems)
    assert problems.sentences() == []
    assert len(next(rows)) == 1
    (absent,) = problems.sentences()
    assert absent.startswith("10 rows of images") and absent.endswith("line 2: 0000)")
    assert len(next(rows)) == 1
    assert problems.sentences()[0].startswith("98 rows of images")


def test_the_checker_agrees(run: Run, tmp_path: Path) -> None:
    created(run, OPEN_IMAGES, tmp_path, "--num_shards", 2)
    report = check_sources([str(tmp_path)])
    assert report.valid and set(report.flatten("code")) == {
        ("LAB013",),  # no triangle
        ("NAM010",),  # its ids are hexadecimal
    }
