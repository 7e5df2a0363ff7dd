"""Shards with boxes in pixels, and shards of other layouts."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
import tfod
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError
from tfod.errors import TfodError
from tfod.example.example import Example

from tests.commands import Run
from tests.files import payloads
from tests.image_kinds import HEIGHT, WIDTH, plain_image, saved
from tests.records import encode, image, objects, write_shard

BOX, PIXELS = (0.25, 0.5, 0.5, 1.0), (3.0, 2.0, 20.0, 12.0)
TAKEN = {
    "all in pixels": ([PIXELS, PIXELS], 0),
    "some records in pixels": ([BOX, PIXELS, BOX], 1),
    "from the first pixel": ([(0.0, 0.0, 34.0, 21.0)], 0),
    "one that hangs over": ([(-0.5, 0.25, 3.0, 0.5), BOX], None),
    "out by a bit": ([(0.5, 0.5, 1.2, 1.1)], None),
    "a corner of a tiny image": ([(0.0, 0.0, 1.0, 1.0)], None),
}


def write(folder: Path, boxes: Sequence[Sequence[float]], **size: int) -> Path:
    made = [
        encode(
            image(f"{number}.png", **(size or {"height": HEIGHT, "width": WIDTH}))
            | {"image/encoded": saved("RGB", "PNG"), "image/source_id": str(number + 7)}
            | objects([box], ["cat"], [1])
        )
        for number, box in enumerate(boxes)
    ]
    return Path(write_shard(folder, "train", *made)).parent


@pytest.mark.parametrize("case", TAKEN)
def test_boxes_that_look_like_pixels_are_refused(run: Run, tmp_path: Path, case: str) -> None:
    boxes, record = TAKEN[case]
    shards = write(tmp_path / "s", boxes)
    messages = [run("convert", shards, tmp_path / "out", "--to", "coco").err]
    for reader in (
        lambda: list(tfod.read_detections(shards)),
        lambda: Dataset.import_from(str(shards), "tf_detection_api"),
    ):
        try:
            reader()
        except (TfodError, DatasetImportError) as error:
            messages.append(str(error.__cause__ or error))
    codes = run("check", shards, "--for", "datumaro").out
    if record is None:
        assert messages == [""] and "BOX005" not in codes
        return
    assert len(messages) == 3 and "BOX005" in codes
    for message in messages:
        assert "looks like pixels" in message and f"record {record}" in message
        (command,) = re.findall(r"type: tfod (.+)", message)
        (name, source, target, *options) = shlex.split(command)
        assert name == ("repair" if case.startswith("some") else "convert")
        assert source == str(shards / "train.tfrecord")
        assert run(name, source, tmp_path / target, *options, "--overwrite").code < 2
        assert len(list(tfod.read_detections(tmp_path / target))) == len(boxes)


@pytest.mark.parametrize("size", [{}, {"height": 0, "width": 0}])
def test_boxes_read_as_pixels(run: Run, tmp_path: Path, size: dict[str, int]) -> None:
    """The size is in the record, or else in the image."""
    shards = write(tmp_path / "s", [PIXELS, (0.0, 0.0, 1.5, 1.0)], **size)
    run("convert", shards, tmp_path / "o", "--to", "shards", "--boxes", "pixels").succeeded()
    found = [
        (one.boxes[0] * (WIDTH, HEIGHT, WIDTH, HEIGHT)).round(4).tolist()
        for one in tfod.read_detections(tmp_path / "o")
    ]
    assert found == [list(PIXELS), [0.0, 0.0, 1.5, 1.0]]
    for number, other in enumerate((BOX, (100.0, 200.0, 900.0, 800.0))):
        mixed = write(tmp_path / f"m{number}", [PIXELS, other])
        line = run("convert", mixed, tmp_path / "p", "--to", "coco", "--boxes", "pixels").refused()
        assert "record 1" in line and "does not look like pixels" in line
    voc = tmp_path / "voc"
    run("convert", tmp_path / "o", voc, "--to", "voc").succeeded()
    line = run("convert", voc, voc / "x", "--boxes", "pixels").refused()
    assert "--boxes only applies to shards" in line


@pytest.mark.parametrize(
    ("name", "file", "exporter", "options"),
    [
        ("keras_coco", "train_00-2.tfrec", "tf_keras_coco", {}),
        ("roboflow", "train/Objects.tfrecord", "tf_detection_api", {"layout": "roboflow"}),
    ],
)
def test_records_are_those_of_datumaros_exporter(
    run: Run, tmp_path: Path, name: str, file: str, exporter: str, options: dict[str, str]
) -> None:
    boxes = [tuple(side / size for side, size in zip(one, (WIDTH, HEIGHT) * 2, strict=True))
             for one in ((1, 2, 30, 20), (3, 4, 7, 9))]  # fmt: skip
    coco, ours, theirs = tmp_path / "coco", tmp_path / "ours", tmp_path / "theirs"
    run("convert", write(tmp_path / "s", boxes), coco, "--to", "coco").succeeded()
    run("convert", coco, ours, "--to", name).succeeded()
    dataset = Dataset.import_from(str(coco), "coco")
    dataset.export(str(theirs), exporter, save_media=True, **options)
    found, wanted = payloads(ours / file), payloads(theirs / file)
    assert sorted(found) == sorted(wanted) and len(found) == 2  # Datumaro has another order
    assert run("check", ours).out.startswith("VALID")
    assert Example.from_bytes(found[0]).value_count("image_id") == (name == "keras_coco")
    (line,) = run("convert", ours, tmp_path / "again", "--to", "coco").out.splitlines()[:1]
    assert "2 images, 2 objects" in line and run("diff", ours, coco, "--without", "area").code == 0


@pytest.mark.parametrize(("subset", "folder"), [("val", "valid"), ("valid", "valid"), ("a", "a")])
def test_roboflow_coco_is_what_rf_detr_reads(
    run: Run, tmp_path: Path, subset: str, folder: str
) -> None:
    """RF-DETR 1.11.2, rfdetr/datasets/coco.py: the paths in line 1578; images next to the JSON.

    Line 149 leaves out a class that is the supercategory of another one. RF-DETR 1.4.1 requires a
    supercategory other than "none" (rfdetr/detr.py, line 144).
    """
    for number, name in enumerate(("train", subset)):
        record = image(f"{name}.png") | {"image/encoded": plain_image((9, 9), (99 * number, 0, 0))}
        write_shard(tmp_path / "s", name, encode(record | objects([BOX, BOX], ["a", "b"], [1, 2])))
    out = tmp_path / "out"
    says = run("convert", tmp_path / "s", out, "--to", "roboflow_coco").succeeded()
    assert ("RF-DETR requires and that do not exist: 1 valid" in says) == (folder != "valid")
    for part, name in (("train", "train.png"), (folder, f"{subset}.png")):
        found = json.loads((out / part / "_annotations.coco.json").read_text())
        assert [entry["file_name"] for entry in found["images"]] == [name]
        assert (out / part / name).is_file()
        assert [one["supercategory"] for one in found["categories"]] == ["cat", "a", "b"]
    run("convert", out, tmp_path / "back").succeeded()
    assert [len(one.boxes) for one in tfod.read_detections(tmp_path / "back")] == [2, 2]


def test_what_keras_coco_cannot_hold(run: Run, tmp_path: Path) -> None:
    shards = write(tmp_path / "s", [BOX])
    write_shard(shards, "val", encode(image("b.png") | {"image/encoded": saved("RGB", "PNG")}))
    done = run("convert", shards, tmp_path / "k", "--to", "keras_coco")
    assert "images not written, because each record needs an object: 1" in done.succeeded()
    assert [one.name for one in (tmp_path / "k").glob("*.tfrec")] == ["train_00-1.tfrec"]
    for more in (["--set", "val"], ["--no-images"]):
        assert run("convert", shards, tmp_path / "n", "--to", "keras_coco", *more).refused()
