"""A batch for the rules: its classes, its sizes, and joined batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker import check
from tfod.checker.analysis import examine
from tfod.checker.analysis.batch import Batch
from tfod.checker.analysis.decoding import Decoder, Decoding
from tfod.checker.analysis.encoded_images import EncodedImages
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.detection.detections import Detections
from tfod.example.example_batch import ExampleBatch
from tfod.tfrecord.reader import RecordBatch

from tests.conftest import CORPUS
from tests.records import encode, image, objects

SHARDS = sorted(
    path for path in CORPUS.glob("*/*") if "record" in path.name and path.stat().st_size
)
BOX = (0.1, 0.2, 0.3, 0.4)
IDS = st.sampled_from([-(1 << 63), -1, 0, 1, 2, 300, (1 << 63) - 1])
PAIRS = st.lists(st.tuples(st.sampled_from(["", "cat", "dog"]), IDS), max_size=4)
RECORDS = st.lists(st.tuples(PAIRS, st.booleans(), st.booleans()), max_size=5)


def batch_of(*payloads: bytes) -> Batch:
    lengths = np.array([len(one) for one in payloads], np.int64)
    starts = np.cumsum(lengths) - lengths
    records = RecordBatch("s", 0, 12, bytearray(b"".join(payloads)), starts, lengths)
    found = Detections(ExampleBatch.of(records), READY["cvat"].field_mapping)
    return Batch(found, EncodedImages.of(found, Decoder(Decoding(0), None)), READY["cvat"])


@given(RECORDS)
def test_each_box_has_its_text_and_its_id(records: Any) -> None:
    payloads, expected = [], []
    for pairs, with_texts, with_ids in records:
        texts, ids = [one for one, _ in pairs], [one for _, one in pairs]
        boxes = objects([BOX] * len(pairs), texts if with_texts else (), ids if with_ids else ())
        payloads.append(encode({"image/height": 10, **boxes}))
        expected += [(text if with_texts else None, i if with_ids else None) for text, i in pairs]
    found = batch_of(*payloads)
    codes, uses = found.uses
    assert [uses[code] for code in codes.tolist()] == expected
    assert len(set(uses)) == len(uses) == len(set(codes.tolist()))
    for use in uses:
        boxes = [box for box, pair in enumerate(expected) if pair == use]
        assert found.rows_by_class[use] == found.boxes.rows[boxes].tolist()


@pytest.mark.parametrize("shard", SHARDS, ids=lambda path: path.parent.name)
def test_the_size_of_batches_changes_nothing(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports = []
    for many in (1, 7, 1 << 20):
        monkeypatch.setattr(examine, "_MANY_RECORDS", many)
        report = check.check_sources([str(shard)], check.Options()).to_json()
        reports.append({**report, "duration": 0})
    assert reports[0] == reports[1] == reports[2]


_PARTS = ["a", "B", "é", "0", "7", "/", "\\", ".", "..", " ", "(", "-", "_", "\n", "\0", "\u202e"]


@given(st.lists(st.sampled_from([*_PARTS, ":", "x.jpg", ".png", ".jp2", "~"]), max_size=7))
def test_plain_names_have_no_findings(parts: list[str]) -> None:
    batch = batch_of(encode(image("".join(parts))))
    rules = [one for one in all_rules().values() if one.family == "NAM" and not one.of_dataset]
    first = {one.code for one in rules for _ in one.check(batch)}
    vars(batch)["has_plain_names"] = False
    assert {one.code for one in rules for _ in one.check(batch)} == first
