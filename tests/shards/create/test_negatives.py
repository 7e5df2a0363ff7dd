"""Images without objects get a record from every format: a detector learns from them, too.

MediaPipe Model Maker's writers drop them (mediapipe#4423). Of the CSV, whose rows are objects, they
are counted, and written where that is asked for.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.commands import Run
from tests.shards.create.conftest import COCO, IMAGES, KITTI, OPEN_IMAGES, VOC, by_filename

NOTHING = "shapes_06.jpg"


def coco(folder: Path) -> list[object]:
    file = COCO / "instances_train.json"
    assert NOTHING in {one["file_name"] for one in json.loads(file.read_text())["images"]}
    return ["--train_image_dir", IMAGES, "--train_annotations_file", file, "--output_dir", folder]


def model_garden(folder: Path) -> list[object]:
    file = COCO / "instances_train.json"
    options = ["--object_annotations_file", file, "--output_file_prefix", folder / "train"]
    return ["--image_dir", IMAGES, *options]


def pascal(folder: Path) -> list[object]:
    return ["--data_dir", VOC, "--output_path", folder / "train.record"]


def kitti(folder: Path) -> list[object]:
    data = Path(shutil.copytree(KITTI, folder / "kitti"))
    for path in sorted((data / "training" / "label_2").iterdir())[1:]:
        path.write_text("")
    options = ["--classes_to_use", "square,circle,triangle,étoile", "--validation_set_size", 0]
    return ["--data_dir", data, "--output_path", folder / "k", *options]


def open_images(folder: Path) -> list[object]:
    boxes = OPEN_IMAGES / "annotations" / "oidv6-train-annotations-bbox.csv"
    images = Path(shutil.copytree(OPEN_IMAGES / "images" / "train", folder / "images"))
    shutil.copy(min(images.iterdir()), images / "0000000000000abc.jpg")
    label_map = OPEN_IMAGES / "label_map.pbtxt"
    options = ["--input_box_annotations_csv", boxes, "--input_images_directory", images]
    options += ["--input_label_map", label_map]
    return [*options, "--output_tf_record_path_prefix", folder / "train"]


def csv(folder: Path) -> list[object]:
    path = folder / "train.csv"
    path.write_text(
        "filename,width,height,class,xmin,ymin,xmax,ymax\nshapes_02.jpg,240,320,circle,1,2,3,4\n"
    )
    options = ["--csv_input", path, "--image_dir", IMAGES, "--include_unlisted_images"]
    return [*options, "--output_path", folder / "train.record"]


@pytest.mark.parametrize(
    ("name", "options", "negative"),
    [
        ("coco", coco, NOTHING),
        ("coco", model_garden, NOTHING),
        ("pascal", pascal, NOTHING),
        ("kitti", kitti, "000001.png"),
        ("open_images", open_images, "0000000000000abc.jpg"),
        ("csv", csv, NOTHING),
    ],
)
def test_they_get_a_record(run: Run, tmp_path: Path, name: str, options, negative: str) -> None:
    ran = run(name, *options(tmp_path), "--num_shards=1")
    assert ran.code == 0, ran.err
    found: dict[str | None, int] = {}
    for path in tmp_path.glob("*"):
        # Of KITTI's two sets one is empty.
        if path.is_file() and path.suffix not in (".pbtxt", ".csv") and path.stat().st_size:
            found |= {key: len(one.boxes) for key, one in by_filename(path).items()}
    assert found[negative] == 0 and any(found.values())


def test_a_csv_names_those_that_it_leaves_out(run: Run, tmp_path: Path) -> None:
    *options, flag, name, out = csv(tmp_path)
    assert flag == "--include_unlisted_images"
    ran = run("csv", *options, name, out)
    images = sorted(path.name for path in IMAGES.iterdir())
    assert ran.code == 0 and ran.err == (
        f"tfod create: {len(images) - 1} images of {IMAGES} that no row names, left out "
        f"(the first: {images[0]}); --include_unlisted_images writes them without objects\n"
    )
    assert list(by_filename(out)) == ["shapes_02.jpg"]
