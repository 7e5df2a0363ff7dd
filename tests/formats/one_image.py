"""A dataset of one image in each of the formats that ``tfod convert`` reads."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tfod.detection.detection import PngMask

Box = Sequence[Any]
"""xmin, ymin, xmax, ymax in pixels; numbers, or texts where the format has texts."""

NAME = "000001.jpg"


def coco(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """Write the dataset; return SOURCE, DEST and options of ``tfod convert``."""
    output = dict(zip(("width", "height"), size, strict=True)) if size else {}
    annotations = [
        {
            "id": number,
            "image_id": 1,
            "category_id": 1,
            "iscrowd": 0,
            "bbox": [left, top, right - left, bottom - top],
            "segmentation": [[left, top, right, top, right, bottom]] if right == right else [],
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
    return [folder / "a.json", folder / "out" / "x.record", "--masks"]


def voc(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """Like :func:`coco`."""
    output = f"<size><width>{size[0]}</width><height>{size[1]}</height></size>" if size else ""
    sides = ("xmin", "ymin", "xmax", "ymax")
    corners = (
        "".join(f"<{side}>{value}</{side}>" for side, value in zip(sides, box, strict=True))
        for box in boxes
    )
    objects = "".join(f"\n<object><name>cat</name><bndbox>{x}</bndbox></object>" for x in corners)
    text = f"<annotation><filename>{NAME}</filename>{output}{objects}</annotation>"
    (folder / "Annotations").mkdir(exist_ok=True)
    (folder / "Annotations" / "000001.xml").write_text(text)
    return [folder / "Annotations", folder / "out" / "x.record", "--images", folder]


def csv(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """Like :func:`coco`."""
    width, height = size or ("", "")
    rows = [[NAME, width, height, "cat", *box] for box in boxes]
    rows = rows or [[NAME, width, height, *[""] * 5]]
    header = ["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"]
    text = "".join(",".join(map(str, row)) + "\n" for row in [header, *rows])
    (folder / "a.csv").write_text(text)
    return [folder / "a.csv", folder / "out" / "x.record"]


def cvat_xml(folder: Path, size: tuple[int, int] | None, boxes: Sequence[Box]) -> list[object]:
    """Like :func:`coco`; CVAT always writes a size."""
    width, height = size or (0, 0)
    sides = ("xtl", "ytl", "xbr", "ybr")
    shapes = "".join(
        "<box label='cat' " + " ".join(f"{x}='{y}'" for x, y in zip(sides, box, strict=True)) + "/>"
        for box in boxes
    )
    meta = "<meta><task><labels><label><name>cat</name></label></labels></task></meta>"
    image = f"<image id='0' name='{NAME}' width='{width}' height='{height}'>{shapes}</image>"
    (folder / "a.xml").write_text(f"<annotations>{meta}{image}</annotations>")
    return [folder / "a.xml", folder / "out" / "x.record"]


def assert_turned(mask: PngMask | None) -> None:
    """Check the mask of `coco` on the stored pixels (200 x 100) of an image with orientation 6.

    The right angle of the triangle is at the upper right of the rotated image.
    """
    assert mask is not None
    with Image.open(io.BytesIO(mask.data)) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (100, 200)
    rows, columns = np.nonzero(pixels)
    box = [columns.min() / 200, rows.min() / 100, (columns.max() + 1) / 200, (rows.max() + 1) / 100]
    assert box == pytest.approx([0.1, 0.6, 0.6, 0.9], abs=0.011)
    assert pixels[rows.min() + 1, columns.min() + 1]
    assert not pixels[rows.max() - 1, columns.max() - 9]


FORMATS: dict[str, Callable[[Path, tuple[int, int] | None, Sequence[Box]], list[object]]] = {
    "coco": coco,
    "voc": voc,
    "csv": csv,
}
WITH_CVAT = {**FORMATS, "cvat_xml": cvat_xml}
"""In CVAT's format, numbers must be finite and images have a size."""
