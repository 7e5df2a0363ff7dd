"""Repairs of records: rounding, sizes, ids, and ``tfod repair --odd-boxes``."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.checker.check import Options as CheckOptions
from tfod.checker.check import check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.detection.detection import Detection, Keypoints, PngMask, ShapeDetails
from tfod.detection.detections import Detections
from tfod.detection.encoder import encode_detection
from tfod.detection.images.mask_images import encode_mask_png
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.example.example import Example
from tfod.shards.fixes import EditedRecord
from tfod.shards.repair import Options, repair
from tfod.sources.reading import decode_detection, read_detections

from tests.commands import Run
from tests.files import files_in, payloads, write_files
from tests.image_kinds import exif_block, with_segment
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

TF = READY["tf_detection_api"]
MAP = LabelMap.from_names(["cat", "dog"])
PIXEL = 1 / WIDTH


def fixed(payload: bytes, label_map: LabelMap | None = MAP) -> tuple[bytes, list[str]]:
    """A record after its repair, and the codes of the changes."""
    detections = Detections(Example.from_bytes(payload).batch, TF.field_mapping)
    numbers = SourceIdNumbers(None, lambda: 0)
    edited = EditedRecord(detections, 0, TF, label_map, lambda: True, numbers)
    changes = edited.fix(all_rules().keys())
    return edited.payload(), [one.code for one in changes]


def detected(payload: bytes) -> Detection:
    return decode_detection(Example.from_bytes(payload))


@pytest.mark.parametrize(
    ("box", "clipped"),
    [
        ((0.25, 0.25, 1 + PIXEL, 1.0), (0.25, 0.25, 1.0, 1.0)),
        ((-PIXEL, 0.25, 0.5, 1 + 1 / HEIGHT), (0.0, 0.25, 0.5, 1.0)),
        ((0.25, 0.25, 1 + 1.5 * PIXEL, 0.5), None),  # a stroke over the edge
        ((0.25, 0.25, 1 + PIXEL, 1.5), None),
        ((0.5, 0.25, 0.25, 1 + PIXEL), None),  # inverted
        ((0.25, 0.25, math.nan, 1 + PIXEL), None),
        ((1.0, 0.25, 1 + PIXEL, 0.5), None),  # without an area if clipped
        ((10.0, 5.0, 20.0, 15.0), None),
        ((0.0, 0.0, float(np.nextafter(np.float32(1), 2)), 1.0), None),  # rounding of float32
    ],
)
def test_a_box_a_pixel_outside_is_clipped(
    box: tuple[float, ...], clipped: tuple[float, ...] | None
) -> None:
    before = with_boxes([CAT_BOX, box])
    payload, done = fixed(before)
    if clipped is None:
        assert (payload, done) == (before, [])
        return
    assert done == ["BOX004"] and fixed(payload) == (payload, [])
    assert detected(payload).boxes.tolist() == [list(CAT_BOX), list(clipped)]


def test_boxes_are_clipped_only_if_the_size_is_known() -> None:
    box = [(0.25, 0.25, 1 + PIXEL, 0.5)]
    unknown = with_boxes(box, encoded=None, height=None, width=None)
    assert fixed(unknown) == (unknown, [])
    assert fixed(with_boxes(box, encoded=None))[1] == ["BOX004"]  # height and width suffice


TURNED = with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(6))
FLOATS = {keys.MASK: [0.0] * ((HEIGHT + 1) * WIDTH)}


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        (with_boxes([CAT_BOX], width=WIDTH + 1), ["IMG006"]),
        # Boxes may have been divided by another size, so that the size is kept.
        (with_boxes([(0.25, 0.25, 0.5, 1.5)], width=WIDTH + 1), []),
        (record(height=WIDTH, width=HEIGHT), ["IMG006", "IMG006"]),
        # The size of the image after its rotation by EXIF.
        (record(encoded=TURNED, height=WIDTH, width=HEIGHT), []),
        # Masks of numbers have the old size, unless they fit only the image.
        (with_boxes([CAT_BOX], height=HEIGHT + 1, **FLOATS), []),
        (with_boxes([CAT_BOX], height=HEIGHT + 1, **{keys.MASK: [0.0] * (HEIGHT * WIDTH)}),
         ["IMG006"]),
        # The size is unknown without an image.
        (record(encoded=None, height=0, width=None, sha256="x", format="raw"), []),
    ],
)  # fmt: skip
def test_the_size_is_that_of_the_image(before: bytes, codes: list[str]) -> None:
    payload, done = fixed(before)
    assert done == codes and (payload == before) == (not codes)
    if codes:
        assert (detected(payload).height, detected(payload).width) == (HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("text", "label", "new_label", "codes"),
    [
        (["cat", "dog"], [1, 9], [1, 2], ["LAB008"]),
        (["cat", "dog"], [2, -1], [1, 2], ["LAB008"]),
        (["", "dog"], [1, 1], [1, 2], ["LAB008"]),  # an empty text is not a class
        (["cat", "dog"], None, [1, 2], ["LAB020"]),
        (["Cat", "dog"], [1, 1], [1, 2], ["LAB008"]),
        (["cat"], [2, 2], [2, 2], []),  # lists of different lengths
        (["cat", ""], None, None, []),
        (None, [2, 1], [2, 1], []),
    ],
)
def test_ids_by_the_label_map(text: Any, label: Any, new_label: Any, codes: list[str]) -> None:
    before = record(text=text, label=label)
    payload, done = fixed(before)
    assert done == codes and (payload == before) == (not codes)
    found = Example.from_bytes(payload)
    assert found.ints(keys.CLASS_LABEL) == (new_label or [])
    was = Example.from_bytes(before)
    assert found.byte_strings(keys.CLASS_TEXT) == was.byte_strings(keys.CLASS_TEXT)


def test_a_display_name_is_a_name() -> None:
    shown = LabelMap((LabelMapItem(1, "/m/01", "cat"), LabelMapItem(2, "/m/02", "dog")))
    before = record(text=["cat", "dog"], label=[1, 2])
    assert fixed(before, shown) == (before, [])
    payload, _ = fixed(record(text=["cat", "/m/02"], label=[1, 1]), shown)
    assert detected(payload).class_label == [1, 2]


# Shards


def write(folder: Path, *records: bytes) -> Path:
    return write_files(folder, {"a.tfrecord": shard(*records), "label_map.pbtxt": LABEL_MAP})


def read(folder: Path) -> list[Detection]:
    return list(read_detections(str(folder)))


def test_select_and_ignore(tmp_path: Path) -> None:
    odd = record(height=HEIGHT + 1, format="png", text=["cat", "dog"], label=[1, 1])
    source, output = str(write(tmp_path / "in", odd)), str(tmp_path / "out")
    assert set(repair(source, output, Options(TF)).by_code) == {"IMG006", "IMG004", "LAB008"}
    select, ignore = frozenset({"IMG", "LAB008"}), frozenset({"IMG004"})
    options = Options(TF, select=select, ignore=ignore, overwrite=True)
    outcome = repair(source, output, options)
    assert set(outcome.by_code) == {"IMG006", "LAB008"}
    assert outcome.remaining.counts.by_code == {"IMG004": 1}
    assert payloads(tmp_path / "out" / "a.tfrecord") == [record(format="png")]


def test_a_label_map_that_misses_a_class_renumbers_nothing(tmp_path: Path) -> None:
    """The label map of another dataset, in the folder above, has some classes with other ids."""
    records = {
        "train": record(text=["dog", "bird"], label=[1, 2]),
        # The label map has all classes of these shards, but belongs to another dataset.
        "val": record("b.jpg", text=["dog", "dog"], label=[1, 1]),
        "test": record("c.jpg", text=["dog", "dog"], label=None),
    }
    files = {f"birds/{name}.tfrecord": shard(one) for name, one in records.items()}
    write_files(tmp_path, {"label_map.pbtxt": LABEL_MAP, **files})
    outcome = repair(str(tmp_path / "birds"), str(tmp_path / "out"), Options(TF))
    assert not outcome.by_code and not (tmp_path / "out").exists()
    remaining = outcome.remaining.counts.by_code
    assert remaining["LAB006"] == 1 and remaining["LAB008"] == 3


# The option --odd-boxes


OVER, BEYOND, FLAT = (0.5, 0.25, 1.3, 0.75), (1.2, 0.25, 1.5, 0.75), (0.5, 0.25, 0.5, 0.75)
INVERTED, NAN, PIXELS = (0.5, 0.75, 0.75, 0.25), (0.5, math.nan, 1.0, 1.0), (20.0, 5.0, 40.0, 9.0)
ROUNDED = (0.5, 0.25, 1 + 0.5 / WIDTH, 0.75)


@pytest.fixture
def run(run: Run) -> Run:
    """Run ``tfod repair …``."""
    return partial(run, "repair")


def write_and_drop(run: Run, tmp_path: Path, *records: bytes) -> Any:
    source = write(tmp_path / "in", *records)
    return run(source, tmp_path / "out", "--odd-boxes", "drop")


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
    last = (*CAT_BOX[:2], 0.6, 0.8)
    payload = with_boxes([CAT_BOX, box, last])
    source = write(tmp_path / "in", payload, record("b.png", encoded=png(), format="jpeg"))
    done = run(source, tmp_path / "out", "--odd-boxes", choice)
    assert done.code == (expected == box and box != (0.0, 0.0, 1.0, 1.0)), done
    if expected == box:
        assert payloads(tmp_path / "out" / "a.tfrecord")[0] == payload
        return
    (detection, _) = read(tmp_path / "out")
    boxes = np.array([CAT_BOX, *([expected] if expected else []), last], "<f4")
    assert detection.boxes.tolist() == boxes.tolist()
    assert detection.class_text == ["cat"] * len(boxes)


def full_image(boxes: list[Any]) -> Detection:
    """An image with four objects that have every kind of value."""
    pixels = np.arange(HEIGHT * WIDTH).reshape(HEIGHT, WIDTH)
    return replace(
        decode_detection(Example.from_bytes(with_boxes(boxes, ["cat", "dog"] * 2, [1, 2] * 2))),
        masks=[PngMask(encode_mask_png(pixels <= n * WIDTH)) for n in range(4)],
        keypoints=Keypoints(np.arange(16).reshape(4, 2, 2) / 40, np.arange(8).reshape(4, 2)),
        attributes={
            "difficult": [0, 1, 0, 1],
            "track_id": [0, 1, 2, 3],
            "color": [f"color {n}" for n in range(4)],  # with the prefix of Model Garden
            "size": [None, 1, 2, 3],  # the first object has none
            "parts": [{"n": n} for n in range(4)],  # only in tfod/attributes
        },
        shape_details={n: ShapeDetails(z_order=n) for n in range(1, 4)},
        image_extra={"place": "here"},
    )


@pytest.mark.parametrize("dropped", [[0], [3], [1, 2], [0, 1, 2, 3]])
@pytest.mark.parametrize("numerical", [False, True])
def test_all_values_of_an_object_are_dropped(
    run: Run, tmp_path: Path, dropped: list[int], numerical: bool
) -> None:
    boxes = [NAN if number in dropped else CAT_BOX for number in range(4)]
    image = full_image(boxes)
    if numerical:
        masks = np.arange(4 * HEIGHT * WIDTH, dtype="<f4").reshape(4, HEIGHT, WIDTH)
        image = replace(image, masks=None, numerical_masks=masks)
    write_and_drop(run, tmp_path, encode_detection(image), other())
    kept = [number for number in range(4) if number not in dropped]
    (found, _) = read(tmp_path / "out")
    assert found.class_text == [["cat", "dog"][number % 2] for number in kept]
    assert found.image_extra == {"place": "here"}
    if not kept:
        assert not found.attributes and not found.masks and found.keypoints is None
        return
    attributes = {name: [values[n] for n in kept] for name, values in image.attributes.items()}
    assert {name: list(values) for name, values in found.attributes.items()} == attributes
    details = {new: image.shape_details[old] for new, old in enumerate(kept) if old}
    assert found.shape_details == details
    assert image.keypoints is not None and found.keypoints is not None
    assert found.keypoints.visibility.tolist() == image.keypoints.visibility[kept].tolist()
    if numerical:
        assert found.numerical_masks is not None and image.numerical_masks is not None
        assert found.numerical_masks.tolist() == image.numerical_masks[kept].tolist()
    else:
        assert image.masks is not None
        assert found.masks == [image.masks[number] for number in kept]


def test_other_lists_of_objects(run: Run, tmp_path: Path) -> None:
    lists = {
        "image/object/mood": ["good", "bad"],
        "image/object/polygon": [1, 2, 3],
        "tags": [4, 5],
    }
    payload = with_boxes([INVERTED, CAT_BOX], ["cat", "dog"], [1, 1], **lists)
    done = write_and_drop(run, tmp_path, payload)
    assert done.code == 0 and "LAB008 fixed" in done.out and "BOX006 fixed" in done.out
    example = Example.from_bytes(payloads(tmp_path / "out" / "a.tfrecord")[0])
    assert example.byte_strings("image/object/mood") == [b"bad"]
    assert example.ints("image/object/polygon") == [1, 2, 3] and example.ints("tags") == [4, 5]
    assert example.ints(keys.CLASS_LABEL) == [2]


def test_objects_with_unclear_values_are_kept(run: Run, tmp_path: Path) -> None:
    payload = with_boxes([INVERTED, CAT_BOX], **{"image/object/difficult": [1]})
    done = write_and_drop(run, tmp_path, payload)
    assert done.code == 1 and "BOX001" in done.out and not (tmp_path / "out").exists()


def keras(number: int, *box: float) -> bytes:
    found = {"image": jpeg(), "path": "a.jpg", "area": 1.0, "category_id": 1, "image_id": 1}
    return encode({**found, "id": number, "bbox": list(box)})


def test_one_record_per_object(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", keras(1, 30.0, 5.0, 20.0, 10.0), keras(2, 30.0, 5.0, -9.0, 1.0))
    assert run(source, tmp_path / "clip", "--odd-boxes", "clip").code == 1
    first, second = payloads(tmp_path / "clip" / "a.tfrecord")
    assert Example.from_bytes(first).floats("bbox").tolist() == [30, 5, 10, 10]
    assert second == keras(2, 30.0, 5.0, -9.0, 1.0)
    done = run(tmp_path / "clip", tmp_path / "drop", "--odd-boxes", "drop")
    assert done.code == 0 and "0 records changed, 1 dropped" in done.out
    assert len(payloads(tmp_path / "drop" / "a.tfrecord")) == 1


ROTATED = [(n / 16 + 0.25, (7 - n) / 16, n / 16, (7 - n) / 16 + 0.5) for n in range(8)]


@pytest.mark.parametrize(
    ("boxes", "choice", "error"),
    [
        ([PIXELS, PIXELS, CAT_BOX], "clip", "(BOX005)"),
        ([PIXELS, PIXELS, CAT_BOX], "drop", "--to shards --boxes pixels"),
        ([INVERTED, BEYOND], "drop", "would drop all 2 objects"),
        (ROTATED, "drop", "(BOX013)"),
        ([CAT_BOX] * 5 + [FLAT] * 5, "drop", "(BOX012)"),
    ],
)
def test_boxes_with_another_cause(
    run: Run, tmp_path: Path, boxes: Any, choice: str, error: str
) -> None:
    source = write(tmp_path / "in", with_boxes(boxes))
    assert error in run(source, tmp_path / "out", "--odd-boxes", choice).refused()
    assert not (tmp_path / "out").exists()


def test_selected_rules_and_the_report(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "in", with_boxes([OVER, NAN, CAT_BOX]))
    drop = (source, tmp_path / "out", "--odd-boxes", "drop")
    run(*drop, "--ignore", "BOX003")
    assert len(read(tmp_path / "out")[0].boxes) == 2
    run(*drop, "--overwrite", "--output", tmp_path / "r.json")
    changes = json.loads((tmp_path / "r.json").read_text())["changes"]
    assert [one["code"] for one in changes] == ["BOX003", "BOX002"]
    assert changes[1]["before"] == {"object": 1, "box": [0.5, "nan", 1, 1]}
    assert changes[1]["after"] is None and changes[1]["record_dropped"] is False


def test_nothing_to_repair(run: Run, tmp_path: Path) -> None:
    """A copy with the same errors is not written; a copy without errors is."""
    source = write(tmp_path / "in", with_boxes([INVERTED, CAT_BOX]))
    report = tmp_path / "r.json"
    for arguments in ([tmp_path / "out"], ["--dry-run"]):
        done = run(source, *arguments, "--output", report)
        assert done.code == 1 and done.out.startswith("Nothing can be repaired.")
        assert f"{source}/a.tfrecord, record 0" in done.out
        summary = json.loads(report.read_text())
        assert summary["output"] is None and summary["counts"]["records_written"] == 0
        assert sorted(files_in(tmp_path)) == ["in/a.tfrecord", "in/label_map.pbtxt", "r.json"]
    # Neither CVAT nor any receiver stops at a box without an area.
    for name, payload, code in (("flat", with_boxes([FLAT, CAT_BOX]), 1), ("valid", record(), 0)):
        source = write(tmp_path / name, payload)
        assert run(source, tmp_path / f"{name}-copy").code == code
        assert files_in(tmp_path / f"{name}-copy") == files_in(source)


_CODES = ("BOX002", "BOX003", "BOX004", "BOX006", "BOX007")


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name) for one in all_mutants() if one.fires and one.code in _CODES],
)
def test_the_fix_of_a_finding_removes_the_finding(
    run: Run, mutant: Mutant, mutants: Path, tmp_path: Path
) -> None:
    """Its command works, or leads to another command that does, without a cycle."""
    source = Path(mutant.path(mutants))
    choices: list[str] = []
    while True:
        findings = check_sources([str(source)], CheckOptions(decode=0)).findings
        fixes = {finding.code: finding.fix for finding in findings}
        if mutant.code not in fixes:
            break
        command, path, _, *options = shlex.split(fixes[mutant.code].partition(": tfod ")[2])
        assert command == "repair" and path.startswith(str(source))
        assert options[-1] not in choices
        choices.append(options[-1])
        output = tmp_path / str(len(choices))
        run(source, output, *options)
        source = output if output.exists() else source
    assert choices
