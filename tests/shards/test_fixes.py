"""Repairs of records beyond what the mutants show: rounding, ids, sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.detection import keys
from tfod.detection.detection import Detection
from tfod.detection.detections import Detections
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap, LabelMapItem
from tfod.example.example import Example
from tfod.shards.fixes import EditedRecord
from tfod.shards.repair import Options, Outcome, repair
from tfod.sources.reading import decode_detection
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.writer import write_records

from tests.image_kinds import exif_block, with_segment
from tests.mutants.sound import CAT_BOX, HEIGHT, LABEL_MAP, WIDTH, jpeg, record, with_boxes

TF = READY["tf_detection_api"]
MAP = LabelMap.from_names(["cat", "dog"])
PIXEL = 1 / WIDTH


def fixed(payload: bytes, label_map: LabelMap | None = MAP) -> tuple[bytes, list[str]]:
    """A record after its repair, and the codes of what was done."""
    numbers = SourceIdNumbers(None, lambda: 0)
    edited = EditedRecord(
        Detections(Example.from_bytes(payload).batch, TF.field_mapping),
        0,
        TF,
        label_map,
        lambda: True,
        numbers,
    )
    changes = edited.fix(all_rules().keys())
    return edited.payload(), [one.code for one in changes]


def detected(payload: bytes) -> Detection:
    """What a record says now."""
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
        ((1.0, 0.25, 1 + PIXEL, 0.5), None),  # nothing of it would be left
        ((10.0, 5.0, 20.0, 15.0), None),
        ((0.0, 0.0, float(np.nextafter(np.float32(1), np.float32(2))), 1.0), None),  # float32's own
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


def test_of_an_image_of_unknown_size_no_pixel_is_known() -> None:
    box = [(0.25, 0.25, 1 + PIXEL, 0.5)]
    unknown = with_boxes(box, encoded=None, height=None, width=None)
    assert fixed(unknown) == (unknown, [])
    assert fixed(with_boxes(box, encoded=None))[1] == ["BOX004"]  # height and width say it


TURNED = with_segment(jpeg(), 0xE1, b"Exif\0\0" + exif_block(6))
FLOATS = {keys.MASK: [0.0] * ((HEIGHT + 1) * WIDTH)}


@pytest.mark.parametrize(
    ("before", "codes"),
    [
        (with_boxes([CAT_BOX], width=WIDTH + 1), ["IMG006"]),
        # Boxes may have been divided by another size: it stays for the next who looks at them.
        (with_boxes([(0.25, 0.25, 0.5, 1.5)], width=WIDTH + 1), []),
        (record(height=WIDTH, width=HEIGHT), ["IMG006", "IMG006"]),
        # That of the image turned by EXIF.
        (record(encoded=TURNED, height=WIDTH, width=HEIGHT), []),
        # Masks of numbers are shaped by it, unless they fit the image alone.
        (with_boxes([CAT_BOX], height=HEIGHT + 1, **FLOATS), []),
        (with_boxes([CAT_BOX], height=HEIGHT + 1, **{keys.MASK: [0.0] * (HEIGHT * WIDTH)}),
         ["IMG006"]),
        # Nobody knows it without an image.
        (record(encoded=None, height=0, width=None, sha256="x", format="raw"), []),
    ],
)  # fmt: skip
def test_the_size_is_that_of_the_image(before: bytes, codes: list[str]) -> None:
    payload, done = fixed(before)
    assert done == codes
    if codes:
        assert (detected(payload).height, detected(payload).width) == (HEIGHT, WIDTH)
    else:
        assert payload == before


@pytest.mark.parametrize(
    ("text", "label", "new_label", "codes"),
    [
        (["cat", "dog"], [1, 9], [1, 2], ["LAB008"]),
        (["cat", "dog"], [2, -1], [1, 2], ["LAB008"]),
        (["", "dog"], [1, 1], [1, 2], ["LAB008"]),  # an empty text is not a class
        (["cat", "dog"], None, [1, 2], ["LAB020"]),
        (["Cat", "dog"], [1, 1], [1, 2], ["LAB008"]),
        (["cat"], [2, 2], [2, 2], []),  # lists that do not go together
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


@pytest.fixture
def repaired(tmp_path: Path) -> Callable[..., tuple[Outcome, list[bytes]]]:
    """Repair a shard of these payloads: the outcome, and the payloads of the result."""

    def run(*payloads: bytes, **options: Any) -> tuple[Outcome, list[bytes]]:
        write_records(tmp_path / "in", "train", payloads)
        (tmp_path / "in" / "label_map.pbtxt").write_bytes(LABEL_MAP)
        outcome = repair(str(tmp_path / "in"), str(tmp_path / "out"), Options(TF, **options))
        written = read_records(tmp_path / "out" / "train.tfrecord")
        return outcome, [bytes(one.payload) for one in written]

    return run


def test_select_and_ignore(repaired: Any) -> None:
    odd = record(height=HEIGHT + 1, format="png", text=["cat", "dog"], label=[1, 1])
    assert set(repaired(odd)[0].by_code) == {"IMG006", "IMG004", "LAB008"}
    outcome, left = repaired(
        odd, select=frozenset({"IMG", "LAB008"}), ignore=frozenset({"IMG004"}), overwrite=True
    )
    assert set(outcome.by_code) == {"IMG006", "LAB008"}
    assert outcome.remaining.counts.by_code == {"IMG004": 1}
    assert left == [record(format="png")]


def test_a_label_map_that_misses_a_class_renumbers_nothing(tmp_path: Path) -> None:
    """The map of another data set, one folder up; it knows some of the classes by other ids."""
    (tmp_path / "in" / "birds").mkdir(parents=True)
    (tmp_path / "in" / "label_map.pbtxt").write_bytes(LABEL_MAP)  # cat 1, dog 2
    folder = tmp_path / "in" / "birds"
    write_records(folder, "train", [record(text=["dog", "bird"], label=[1, 2])])
    # Also the ids of a shard whose own classes are all in the map: they are the data set's.
    write_records(folder, "val", [record("b.jpg", text=["dog", "dog"], label=[1, 1])])
    write_records(folder, "test", [record("c.jpg", text=["dog", "dog"], label=None)])
    outcome = repair(str(folder), str(tmp_path / "out"), Options(TF))
    assert not outcome.by_code and not (tmp_path / "out").exists()
    left = outcome.remaining.counts.by_code
    assert left["LAB006"] == 1 and left["LAB008"] == 3
