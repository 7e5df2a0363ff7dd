"""``tfod check`` of whole datasets: what is in several splits, and several datasets at once."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tfod.writer import write_records
from tfod_validator.cli import main

from tests.conftest import encode, objects, picture

LABEL_MAP = "item { id: 1 name: 'cat' }\n"
Check = Callable[..., "tuple[int, dict[str, Any]]"]


def image_of(number: int, form: str = "JPEG") -> bytes:
    """Noise, so that the files are 20 to 40 kB and of any length."""
    pixels = random.Random(number).randbytes(3 * 120 * (80 + number))
    stream = io.BytesIO()
    Image.frombytes("RGB", (120, 80 + number), pixels).save(stream, form)
    return stream.getvalue()


def record(number: int, form: str = "JPEG", **more: Any) -> bytes:
    """A sound record with one cat; each number has another image."""
    features = {
        **picture(f"{number:03}.{form.lower()}", 80 + number, 120),
        "image/encoded": image_of(number, form),
        "image/format": form.lower(),
        "image/source_id": f"{number:03}",
        **objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [1]),
        **more,
    }
    return encode(features)


def write(folder: Path, subset: str, *records: bytes, label_map: str | None = LABEL_MAP) -> str:
    """A shard, with a label map beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    if label_map is not None:
        (folder / "label_map.pbtxt").write_text(label_map)
    return write_records(folder, subset, records)[0]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run ``tfod check --format json``; its exit status and its report."""

    def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["check", "--format", "json", *map(str, arguments)])
        return code, json.loads(capsys.readouterr().out)

    return run


class TestLeaks:
    @pytest.mark.parametrize("form", ["JPEG", "PNG"])
    def test_every_image_that_two_subsets_have_is_found(
        self, tmp_path: Path, check: Check, form: str
    ) -> None:
        ours = [record(number, form) for number in range(32)]
        assert len({len(image_of(number, form)) % 16 for number in range(32)}) > 8
        write(tmp_path, "train", *ours, record(40, form))
        write(tmp_path, "val", *ours, record(41, form))
        code, report = check(tmp_path)
        assert report["counts"]["by_code"] == {"IMG011": 32} and code == 0
        assert report["severities"] == {"IMG011": "warning"}

    def test_all_of_val_in_train_is_an_error(self, tmp_path: Path, check: Check) -> None:
        write(tmp_path, "train", *map(record, range(8)))
        write(tmp_path, "val", *map(record, range(3)), record(0))
        code, report = check(tmp_path, "--max-findings", 1)
        assert report["counts"]["by_code"] == {"IMG010": 1, "IMG011": 3, "NAM002": 1, "NAM008": 1}
        assert report["severities"]["IMG011"] == "error" and code == 1
        (finding,) = report["findings"]
        assert finding["message"].endswith("; all 3 images of val are in other subsets")
        assert finding["message"].startswith("the image is in val and in train: record 0 of ")
        assert check(tmp_path, "--severity", "IMG011=info")[1]["severities"]["IMG011"] == "info"

    def test_it_does_not_matter_which_is_read_first(self, tmp_path: Path, check: Check) -> None:
        write(tmp_path, "dev", *map(record, range(3)))
        write(tmp_path, "train", *map(record, range(8)))
        code, report = check(tmp_path)
        assert report["severities"] == {"IMG011": "error"} and code == 1

    def test_a_part_of_the_training_images_is_no_error(self, tmp_path: Path, check: Check) -> None:
        write(tmp_path, "train", *map(record, range(8)))
        write(tmp_path, "train_small", *map(record, range(3)))
        assert check(tmp_path)[1]["severities"] == {"IMG011": "warning"}


def test_spellings_of_one_class_that_create_has_put_into_the_label_map(
    tmp_path: Path, check: Check
) -> None:
    rows = [("Cat", 5), ("cat ", 3), ("c at", 2), ("dog", 1)]
    (tmp_path / "images").mkdir()
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"])
        for number, (name, boxes) in enumerate(rows):
            (tmp_path / "images" / f"{number}.jpg").write_bytes(image_of(number))
            for box in range(boxes):
                size = (f"{number}.jpg", 120, 80 + number)
                writer.writerow([*size, name, 10 + box, 10, 50 + box, 60])
    sources = [f"--csv_input={tmp_path}/labels.csv", f"--image_dir={tmp_path}/images"]
    shard = tmp_path / "shards" / "train.record"
    shard.parent.mkdir()
    assert main(["create", "csv", *sources, f"--output_path={shard}"]) == 0
    code, report = check(shard)
    (finding,) = [one for one in report["findings"] if one["code"] == "LAB016"]
    assert finding["message"].startswith("'Cat' (5 objects) and 'c at' (2 objects) and 'cat ")
    assert "are 3 classes" in finding["message"] and code == 0
