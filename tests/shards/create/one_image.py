"""A dataset of one image in each of the formats that ``tfod create`` reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

Box = Sequence[Any]
"""xmin, ymin, xmax, ymax in pixels; numbers, or texts where the format has texts."""

NAME = "000001.jpg"


def coco(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """Arguments of ``tfod create`` for such a dataset, without those for its output."""
    output = dict(zip(("width", "height"), size, strict=True)) if size else {}
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": 1,
            "iscrowd": 0,
            "bbox": [left, top, right - left, bottom - top],
            "segmentation": [[left, top, right, top, right, bottom]],
            "area": 1,
        }
        for number, (left, top, right, bottom) in enumerate(boxes, 1)
    ]
    found = {
        "images": [{"id": 1, "file_name": NAME, **output}],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": annotations,
    }
    (folder / "a.json").write_text(json.dumps(found))
    return [
        *("coco", "--train_image_dir", folder, "--train_annotations_file", folder / "a.json"),
        *("--output_dir", folder / "out", "--num_shards", 1),
    ]


def pascal(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """As :func:`coco`."""
    output = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    objects = "".join(
        "\n<object><name>cat</name><bndbox>"
        + "".join(
            f"<{side}>{value}</{side}>"
            for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        )
        + "</bndbox></object>"
        for box in boxes
    )
    text = f"<annotation><filename>{NAME}</filename>{output}{objects}</annotation>"
    (folder / "000001.xml").write_text(text)
    return ["pascal", "--data_dir", folder, "--output_path", folder / "out" / "x.record"]


def csv(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """As :func:`coco`."""
    width, height = size or ("", "")
    rows = [[NAME, width, height, "cat", *box] for box in boxes]
    rows = rows or [[NAME, width, height, *[""] * 5]]
    header = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    text = "".join(",".join(map(str, row)) + "\n" for row in [header, *rows])
    (folder / "a.csv").write_text(text)
    return [
        *("csv", "--csv_input", folder / "a.csv", "--image_dir", folder),
        *("--output_path", folder / "out" / "x.record"),
    ]


def kitti(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """As :func:`coco`; the size is not written. The validation set is another, empty image."""
    for name in ("image_2", "label_2"):
        (folder / "training" / name).mkdir(parents=True)
    image = folder / "training" / "image_2" / NAME
    image.write_bytes((folder / NAME).read_bytes())
    Image.new("RGB", (9, 9)).save(image.with_name("000000.png"))
    (folder / "training" / "label_2" / "000000.txt").write_text("")
    lines = [f"car 0 0 0 {' '.join(map(str, box))} 1 1 1 1 1 1 1\n" for box in boxes]
    (folder / "training" / "label_2" / "000001.txt").write_text("".join(lines))
    return [
        *("kitti", "--data_dir", folder, "--output_path", folder / "out" / "x"),
        *("--validation_set_size", 1),
    ]


def open_images(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """As :func:`coco`; boxes are divided by the size, which is not written."""
    assert size is not None
    sides = size * 2
    rows = [
        ["000001", "/m/01yrx", *(float(one) / side for one, side in zip(box, sides, strict=True))]
        for box in boxes
    ]
    header = ["ImageID", "LabelName", "XMin", "YMin", "XMax", "YMax"]
    text = "".join(",".join(map(str, row)) + "\n" for row in [header, *rows])
    (folder / "boxes.csv").write_text(text)
    return [
        *("open_images", "--input_images_directory", folder),
        *("--input_box_annotations_csv", folder / "boxes.csv", "--input_label_map"),
        *("open_images_v4", "--output_tf_record_path_prefix", folder / "out" / "x.record"),
    ]


FORMATS: dict[str, Callable[[Path, tuple[int, int] | None, Sequence[Box]], list[object]]] = {
    "coco": coco,
    "pascal": pascal,
    "csv": csv,
    "kitti": kitti,
    "open_images": open_images,
}
