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
from tests.shards.create.conftest import COCO, IMAGES, KITTI, OPEN_IMAGES, VOC, coco_arguments

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


def test_pascal(run: Run, tmp_path: Path) -> None:
    """Equal; our JSON says only that ``view`` is called ``pose`` in Datumaro.

    Each command numbers images from 1, an export those of all its subsets.
    """
    for name in ("train", "val"):
        arguments = ("--set", name, "--output_path", tmp_path / "ours" / f"{name}.record")
        assert run("pascal", "--data_dir", VOC, *arguments).code == 0
    theirs = through_datumaro(VOC, "voc", tmp_path / "theirs")
    assert differing(records(tmp_path / "ours"), theirs) == {
        "image/source_id",
        "tfod/attributes",
    }


def test_coco(run: Run, tmp_path: Path) -> None:
    """Datumaro reverses the order, numbers classes anew, drops areas, and boxes for outlines."""
    source = tmp_path / "coco"
    shutil.copytree(IMAGES, source / "images" / "train")
    (source / "annotations").mkdir()
    for name in ("instances_train.json", "captions_train.json"):
        shutil.copy(COCO / name, source / "annotations")
    captions = ("--train_caption_annotations_file", COCO / "captions_train.json")
    out = tmp_path / "ours"
    assert run(*coco_arguments(), *captions, "--output_dir", out, "--num-shards=1").code == 0
    label_map = str(out / "label_map.pbtxt")
    theirs = through_datumaro(source, "coco", tmp_path / "theirs", label_map=label_map)
    for one in theirs.values():
        for key, values in one.items():
            if key.startswith("image/object/") or key == "image/caption":
                one[key] = values[::-1]
    ours = records(out)
    # Polygons here are rounded to a tenth of a pixel, and held inside the image.
    crowded = {name: one.pop("shapes_05.jpg") for name, one in (("a", ours), ("b", theirs))}
    assert differing(ours, theirs, pixels=0.02) == {"image/object/area"}
    assert crowded["a"]["image/object/is_crowd"] == crowded["b"]["image/object/is_crowd"]
    assert crowded["a"]["image/source_id"] == crowded["b"]["image/source_id"] == [b"1028"]


def test_kitti(run: Run, tmp_path: Path) -> None:
    """Datumaro has neither the angle nor the box in space, and knows truncated as yes or no."""
    classes = ("--classes_to_use", "square,étoile,triangle", "--validation_set_size", 0)
    out = ("--output_path", tmp_path / "ours" / "k")
    assert run("kitti", "--data_dir", KITTI, *classes, *out).code == 0
    theirs = through_datumaro(KITTI, "kitti", tmp_path / "theirs")
    ours = records(tmp_path / "ours" / "k_train.tfrecord")
    space = {
        f"image/object/3d_bbox/{part}"
        for part in ["x", "y", "z", "height", "width", "length", "rot_y"]
    }
    lost = {"alpha", "truncated", "difficult", "class/text"}
    first = "000000.png"
    assert differing({first: ours[first]}, {first: theirs[first]}) == space | {
        f"image/object/{name}" for name in lost
    }
    assert theirs["000001.png"]["image/object/class/text"][-1] == b"DontCare"


def test_open_images(run: Run, tmp_path: Path) -> None:
    """Datumaro counts boxes in hundredths of a pixel, and has a score of each."""
    prefix = OPEN_IMAGES / "annotations" / "oidv6-train-annotations"
    arguments = (
        "open_images", "--input_box_annotations_csv", f"{prefix}-bbox.csv",
        "--input_image_label_annotations_csv", f"{prefix}-human-imagelabels.csv",
        "--input_images_directory", OPEN_IMAGES / "images" / "train",
        "--input_label_map", OPEN_IMAGES / "label_map.pbtxt",
        "--output_tf_record_path_prefix", tmp_path / "ours" / "t", "--num_shards=1",
    )  # fmt: skip
    assert run(*arguments).code == 0
    theirs = through_datumaro(OPEN_IMAGES, "open_images", tmp_path / "theirs")
    assert differing(records(tmp_path / "ours"), theirs, pixels=0.005 / 240) == {
        "image/source_id",
        "image/object/attribute/score",
        "tfod/attributes",
    }
