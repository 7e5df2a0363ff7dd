"""``tfod repair --odd-boxes``, and a repair that repairs nothing."""

from __future__ import annotations

import json
import math
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check_sources
from tfod.detection.detection import Detection, Keypoints, PngMask, ShapeDetails
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import encode_mask_png
from tfod.example.example import Example
from tfod.sources.reading import read_detections
from tfod.tfrecord.reader import read_records

from tests.commands import Run
from tests.files import files_in, write_files
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.sound import (
    CAT_BOX,
    HEIGHT,
    LABEL_MAP,
    WIDTH,
    jpeg,
    other,
    png,
    record,
    shard,
    with_boxes,
)
from tests.records import encode

OVER, BEYOND, FLAT = (0.5, 0.25, 1.3, 0.75), (1.2, 0.25, 1.5, 0.75), (0.5, 0.25, 0.5, 0.75)
INVERTED, NAN, PIXELS = (0.5, 0.75, 0.75, 0.25), (0.5, math.nan, 1.0, 1.0), (20.0, 5.0, 40.0, 9.0)
ROUNDED = (0.5, 0.25, 1 + 0.5 / WIDTH, 0.75)


@pytest.fixture
def run(run: Run) -> Run:
    """Run ``tfod repair …``."""
    return partial(run, "repair")


def write(folder: Path, *payloads: bytes) -> Path:
    return write_files(folder, {"a.tfrecord": shard(*payloads), "label_map.pbtxt": LABEL_MAP})


def read(folder: Path) -> list[Detection]:
    return list(read_detections(str(folder)))


@pytest.mark.parametrize(
    ("box", "choice", "expected"),
    [
        (OVER, "clip", (0.5, 0.25, 1, 0.75)),
        ((-0.5, 0.25, 1.5, 2.25), "clip", (0, 0.25, 1, 1)),  # far, but not in pixels
        (ROUNDED, "clip", (0.5, 0.25, 1, 0.75)),
        (ROUNDED, "drop", (0.5, 0.25, 1, 0.75)),  # repaired without the option, too
        *((odd, "clip", odd) for odd in (BEYOND, FLAT, INVERTED, NAN, PIXELS)),
        *((odd, "drop", None) for odd in (OVER, BEYOND, FLAT, INVERTED, NAN, PIXELS)),
        ((0.0, 0.0, 1.0, 1.0), "drop", (0.0, 0.0, 1.0, 1.0)),
    ],
)
def test_each_kind_of_box(run: Run, tmp_path: Path, box: Any, choice: str, expected: Any) -> None:
    payload = with_boxes([CAT_BOX, box, (*CAT_BOX[:2], 0.6, 0.8)])
    source = write(tmp_path / "in", payload, record("b.png", encoded=png(), format="jpeg"))
    done = run(source, tmp_path / "out", "--odd-boxes", choice)
    assert done.code == (expected == box and box != (0.0, 0.0, 1.0, 1.0)), done
    (example, _) = read_records(tmp_path / "out" / "a.tfrecord")
    if expected == box:
        assert bytes(example.payload) == payload  # and the check names what is left
        return
    (detection, _) = read(tmp_path / "out")
    middle = [expected] if expected else []
    boxes = np.array([CAT_BOX, *middle, (*CAT_BOX[:2], 0.6, 0.8)], "<f4")
    assert detection.boxes.tolist() == boxes.tolist()
    assert detection.class_text == ["cat"] * len(boxes)


def full_image(boxes: list[Any], **changes: Any) -> Detection:
    """An image with every kind of list of objects."""
    count = len(boxes)
    pixels = [np.zeros((HEIGHT, WIDTH), bool) for _ in boxes]
    for number, mask in enumerate(pixels):
        mask[: number + 1] = True
    values: dict[str, Any] = {
        "filename": "a.jpg",
        "source_id": "1",
        "format": "jpeg",
        "height": HEIGHT,
        "width": WIDTH,
        "encoded": jpeg(),
        "boxes": np.array(boxes, "<f4"),
        "class_text": ["cat", "dog"] * (count // 2),
        "class_label": [1, 2] * (count // 2),
        "masks": [PngMask(encode_mask_png(mask)) for mask in pixels],
        "keypoints": Keypoints(
            np.arange(count * 4).reshape(count, 2, 2) / 40, np.arange(count * 2).reshape(count, 2)
        ),
        "attributes": {
            "difficult": [number % 2 for number in range(count)],
            "track_id": list(range(count)),
            "color": [f"color {number}" for number in range(count)],  # Model Garden's prefix
            "size": [None, *range(1, count)],  # "absent" of the first
            "parts": [{"n": number} for number in range(count)],  # only in tfod/attributes
        },
        "shape_details": {number: ShapeDetails(z_order=number) for number in range(1, count)},
        "image_extra": {"place": "here"},
    }
    return Detection(**{**values, **changes})


@pytest.mark.parametrize("dropped", [[0], [3], [1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("numerical", [False, True])
def test_all_values_of_a_dropped_object_go(
    run: Run, tmp_path: Path, dropped: list[int], numerical: bool
) -> None:
    boxes = [NAN if number in dropped else CAT_BOX for number in range(4)]
    image = full_image(boxes)
    if numerical:
        masks = np.arange(4 * HEIGHT * WIDTH, dtype="<f4").reshape(4, HEIGHT, WIDTH)
        image = full_image(boxes, masks=None, numerical_masks=masks)
    source = write(tmp_path / "in", encode_detection(image), other())
    run(source, tmp_path / "out", "--odd-boxes", "drop")
    kept = [number for number in range(4) if number not in dropped]
    (found, _) = read(tmp_path / "out")
    assert found.class_text == [["cat", "dog"][number % 2] for number in kept]
    assert found.image_extra == {"place": "here"}
    if not kept:
        assert not found.attributes and not found.masks and found.keypoints is None
        return
    assert {name: list(values) for name, values in found.attributes.items()} == {
        name: [values[number] for number in kept] for name, values in image.attributes.items()
    }
    assert found.shape_details == {
        new: image.shape_details[old] for new, old in enumerate(kept) if old
    }
    assert image.keypoints is not None and found.keypoints is not None
    assert found.keypoints.visibility.tolist() == image.keypoints.visibility[kept].tolist()
    if numerical:
        assert found.numerical_masks is not None and image.numerical_masks is not None
        assert found.numerical_masks.tolist() == image.numerical_masks[kept].tolist()
    else:
        assert image.masks is not None
        assert found.masks == [image.masks[number] for number in kept]


def test_lists_that_tfod_does_not_know(run: Run, tmp_path: Path) -> None:
    lists = {
        "image/object/mood": ["good", "bad"],
        "image/object/polygon": [1, 2, 3],
        "tags": [4, 5],
    }
    payload = with_boxes([INVERTED, CAT_BOX], **lists)
    run(write(tmp_path / "in", payload), tmp_path / "out", "--odd-boxes", "drop")
    (found,) = read_records(tmp_path / "out" / "a.tfrecord")
    example = Example.from_bytes(bytes(found.payload))
    assert example.byte_strings("image/object/mood") == [b"bad"]
    assert example.ints("image/object/polygon") == [1, 2, 3] and example.ints("tags") == [4, 5]


def test_objects_whose_values_are_unclear_stay(run: Run, tmp_path: Path) -> None:
    payload = with_boxes([INVERTED, CAT_BOX], **{"image/object/difficult": [1]})
    done = run(write(tmp_path / "in", payload), tmp_path / "out", "--odd-boxes", "drop")
    assert done.code == 1 and "BOX001" in done.out and not (tmp_path / "out").exists()


def test_ids_and_boxes_of_one_record(run: Run, tmp_path: Path) -> None:
    payload = with_boxes([INVERTED, CAT_BOX], ["cat", "dog"], [1, 1])
    done = run(write(tmp_path / "in", payload), tmp_path / "out", "--odd-boxes", "drop")
    assert done.code == 0 and "LAB008 fixed" in done.out and "BOX006 fixed" in done.out
    assert read(tmp_path / "out")[0].class_label == [2]


def keras(number: int, *box: float) -> bytes:
    found = {"image": jpeg(), "path": "a.jpg", "area": 1.0, "category_id": 1, "image_id": 1}
    return encode({**found, "id": number, "bbox": list(box)})


def test_one_record_per_object(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", keras(1, 30.0, 5.0, 20.0, 10.0), keras(2, 30.0, 5.0, -9.0, 1.0))
    assert run(source, tmp_path / "clip", "--odd-boxes", "clip").code == 1
    first, second = read_records(tmp_path / "clip" / "a.tfrecord")
    assert Example.from_bytes(bytes(first.payload)).floats("bbox").tolist() == [30, 5, 10, 10]
    assert bytes(second.payload) == keras(2, 30.0, 5.0, -9.0, 1.0)
    done = run(tmp_path / "clip", tmp_path / "drop", "--odd-boxes", "drop")
    assert done.code == 0 and "0 records changed, 1 dropped" in done.out
    assert len(list(read_records(tmp_path / "drop" / "a.tfrecord"))) == 1


@pytest.mark.parametrize(
    ("boxes", "choice", "says"),
    [
        ([PIXELS, PIXELS, CAT_BOX], "clip", "(BOX005)"),
        ([PIXELS, PIXELS, CAT_BOX], "drop", "--to shards --boxes pixels"),
        ([INVERTED, BEYOND], "drop", "would drop all 2 objects"),
        (
            [(n / 16 + 0.25, (7 - n) / 16, n / 16, (7 - n) / 16 + 0.5) for n in range(8)],
            "drop",
            "(BOX013)",
        ),
        ([CAT_BOX] * 5 + [FLAT] * 5, "drop", "(BOX012)"),
    ],
)
def test_where_the_cause_is_another(
    run: Run, tmp_path: Path, boxes: Any, choice: str, says: str
) -> None:
    source = write(tmp_path / "in", with_boxes(boxes))
    assert says in run(source, tmp_path / "out", "--odd-boxes", choice).refused()
    assert not (tmp_path / "out").exists()


def test_only_some_rules(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", with_boxes([OVER, INVERTED, CAT_BOX]))
    run(source, tmp_path / "out", "--odd-boxes", "drop", "--ignore", "BOX003")
    assert len(read(tmp_path / "out")[0].boxes) == 2


def test_the_report_has_the_boxes(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", with_boxes([OVER, NAN, CAT_BOX]))
    run(source, tmp_path / "out", "--odd-boxes", "drop", "--output", tmp_path / "r.json")
    changes = json.loads((tmp_path / "r.json").read_text())["changes"]
    assert [one["code"] for one in changes] == ["BOX003", "BOX002"]
    assert changes[1]["before"] == {"object": 1, "box": [0.5, "nan", 1, 1]}
    assert changes[1]["after"] is None and changes[1]["record_dropped"] is False


def test_nothing_to_repair(run: Run, tmp_path: Path) -> None:
    """A copy with the same errors is of no use; one without errors is what the user asked for."""
    source = write(tmp_path / "in", with_boxes([INVERTED, CAT_BOX]))
    report = tmp_path / "r.json"
    for arguments in ([tmp_path / "out"], ["--dry-run"]):
        done = run(source, *arguments, "--output", report)
        assert done.code == 1 and done.out.startswith("Nothing can be repaired.")
        assert f"{source}/a.tfrecord, record 0" in done.out
        summary = json.loads(report.read_text())
        assert summary["output"] is None and summary["counts"]["records_written"] == 0
        assert sorted(files_in(tmp_path)) == ["in/a.tfrecord", "in/label_map.pbtxt", "r.json"]
    # An import into CVAT is not stopped by a box without area, nor is any receiver.
    flat = write(tmp_path / "flat", with_boxes([FLAT, CAT_BOX]))
    assert run(flat, tmp_path / "out").code == 1
    assert files_in(tmp_path / "out") == files_in(flat)
    sound = write(tmp_path / "sound", record())
    assert run(sound, tmp_path / "copy").code == 0
    assert files_in(tmp_path / "copy") == files_in(sound)


_CODES = ("BOX002", "BOX003", "BOX004", "BOX006", "BOX007")


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name) for one in all_mutants() if one.fires and one.code in _CODES],
)
def test_what_a_rule_suggests_removes_the_finding(
    run: Run, mutant: Mutant, mutants: Path, tmp_path: Path
) -> None:
    """The command of the finding works, or leads to another one that does, without a cycle."""
    source = Path(mutant.path(mutants))
    typed: list[str] = []
    while mutant.code in (
        left := {
            one.code: one.fix
            for one in check_sources([str(source)], CheckOptions(decode=0)).findings
        }
    ):
        command = shlex.split(left[mutant.code].partition(": tfod ")[2])
        assert command and command[-1] not in typed
        typed.append(command[-1])
        output = tmp_path / str(len(typed))
        assert command[0] == "repair" and command[1].startswith(str(source))
        run(source, output, *command[3:])
        source = output if output.exists() else source
    assert typed
