"""The other way, through Datumaro's importers: the same records but for what docs/recipes says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.stream import read_examples
from tfod.example.wire import Kind

from tests.commands import Run
from tests.formats.conftest import COCO, IMAGES, VOC

pytest.importorskip("datumaro")
from datumaro.components.dataset import Dataset

pytestmark = [
    pytest.mark.datumaro,
    pytest.mark.skipif(not hasattr(Dataset, "export"), reason="no Datumaro 1.x"),
]

BOX = {f"image/object/bbox/{side}" for side in ("xmin", "ymin", "xmax", "ymax")}
Records = dict[str, dict[str, list[Any]]]


def records(source: Path) -> Records:
    """Values by key, by file name."""
    found: Records = {}
    for example in read_examples(source):
        values: dict[str, list[Any]] = {}
        for key in example:
            kind = example.kind(key)
            if kind is Kind.FLOAT:
                values[key] = example.floats(key).tolist()
            elif kind is Kind.INT64:
                values[key] = list(example.ints(key))
            else:
                values[key] = [bytes(one) for one in example.byte_strings(key)]
        found[values["image/filename"][0].decode()] = values
    return found


def differing(ours: Records, theirs: Records, pixels: float = 0.0) -> set[str]:
    """Keys that differ in some record; boxes by more than so much of the image."""
    assert ours.keys() == theirs.keys()
    keys = set()
    for name, one in ours.items():
        other = theirs[name]
        for key in one.keys() | other.keys():
            mine, its = one.get(key), other.get(key)
            close = (
                key in BOX
                and mine is not None
                and its is not None
                and len(mine) == len(its)
                and np.allclose(mine, its, rtol=0, atol=max(pixels, 1e-7))
            )
            if mine != its and not close:
                keys.add(key)
    return keys


def through_datumaro(source: Path, fmt: str, out: Path, **options: Any) -> Records:
    Dataset.import_from(str(source), fmt).export(
        str(out), "tf_detection_api", save_media=True, **options
    )
    return records(out)


def test_voc(convert: Run, tmp_path: Path) -> None:
    """Equal; our JSON says only that ``view`` is called ``pose`` in Datumaro."""
    convert(VOC, tmp_path / "ours").succeeded()
    theirs = through_datumaro(VOC, "voc", tmp_path / "theirs")
    assert differing(records(tmp_path / "ours"), theirs) == {"tfod/attributes"}


def test_coco(convert: Run, tmp_path: Path) -> None:
    """Datumaro reverses the order, numbers classes anew, drops areas, and boxes for outlines."""
    source = tmp_path / "coco"
    shutil.copytree(IMAGES, source / "images" / "train")
    (source / "annotations").mkdir()
    shutil.copy(COCO / "instances_train.json", source / "annotations")
    out = tmp_path / "ours"
    convert(source, out).succeeded()
    label_map = str(out / "label_map.pbtxt")
    theirs = through_datumaro(source, "coco", tmp_path / "theirs", label_map=label_map)
    for one in theirs.values():
        for key, values in one.items():
            if key.startswith("image/object/"):
                one[key] = values[::-1]
    ours = records(out)
    # Polygons here are rounded to a tenth of a pixel, and held inside the image.
    crowded = {name: one.pop("shapes_05.jpg") for name, one in (("a", ours), ("b", theirs))}
    assert differing(ours, theirs, pixels=0.02) == {"image/object/area"}
    assert crowded["a"]["image/object/is_crowd"] == crowded["b"]["image/object/is_crowd"]
    assert crowded["a"]["image/source_id"] == crowded["b"]["image/source_id"] == [b"1028"]
