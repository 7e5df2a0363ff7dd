"""Real shards: what we count is what TensorFlow counted."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tfod.detection.encoder import encode_detection
from tfod.example.example import Example
from tfod.sources.reading import decode_detection, read_detections
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.record_index import RecordIndex
from tfod.tfrecord.writer import RecordWriter

from tests.conftest import CORPUS

SHARDS = sorted(
    str(path.relative_to(CORPUS))
    for pattern in ("**/*.record", "**/*.tfrecord")
    for path in CORPUS.glob(pattern)
)
# Tables and labels that are not detections; tests/datumaro/test_round_trips.py imports them.
OTHER = ("titanic-table/test.tfrecord", "viewer-sample/sample_record.record")
DETECTION = [name for name in SHARDS if name not in OTHER]
SIDES = ("xmin", "ymin", "xmax", "ymax")


def test_every_shard_of_the_corpus_has_figures(figures: dict[str, Any]) -> None:
    assert set(SHARDS) == set(figures)


@pytest.mark.parametrize("name", DETECTION)
def test_detections(corpus: Path, figures: dict[str, Any], name: str) -> None:
    encoded = 0
    texts: Counter[str] = Counter()
    for record in read_records(corpus / name):
        detection = decode_detection(Example.of(record, name))
        assert not detection.unread_keys and not detection.warnings
        encoded += len(detection.encoded or b"")
        texts.update(detection.class_text or ())
        if detection.sha256:
            assert hashlib.sha256(detection.encoded or b"").hexdigest() == detection.sha256
        # Writing what was read gives the same features.
        assert decode_detection(Example.from_bytes(encode_detection(detection))) == detection
    assert encoded == figures[name]["encoded_bytes"]
    assert texts == figures[name]["class_text"]


@pytest.mark.parametrize("subset", ["train", "test"])
def test_hyphal_tips_are_what_their_csv_says(corpus: Path, subset: str) -> None:
    folder = corpus / "hyphal-tips"
    with (folder / f"{subset}_labels.csv").open() as file:
        lines = [
            (one["filename"], one["class"], *(int(one[side]) for side in SIDES))
            for one in csv.DictReader(file)
        ]
    found = []
    for one in read_detections(folder / f"{subset}.record"):
        pixels = one.boxes * np.array([one.width, one.height] * 2)
        for text, box in zip(one.class_text or (), pixels.round().astype(int), strict=True):
            found.append((one.filename, text, *box.tolist()))
    assert Counter(found) == Counter(lines)


@pytest.mark.parametrize("name", SHARDS)
def test_framing_is_written_as_it_was_read(corpus: Path, tmp_path: Path, name: str) -> None:
    payloads = [bytes(record.payload) for record in read_records(corpus / name)]
    with (tmp_path / "copy").open("wb") as stream:
        writer = RecordWriter(stream)
        for one in payloads:
            writer.write(one)
    assert (tmp_path / "copy").read_bytes() == (corpus / name).read_bytes()
    assert list(RecordIndex(corpus / name)) == payloads
