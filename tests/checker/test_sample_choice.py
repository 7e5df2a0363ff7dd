"""Which images a report shows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tfod.checker.check import Options, check
from tfod.checker.reporters.samples import Sample, choose_samples
from tfod.sources.resolver import resolve

from tests.mutants.sound import CAT_BOX, LABEL_MAP, features, jpeg, record, shard, with_boxes
from tests.records import encode
from tests.zip_forge import real_zip

SOUND = [record(f"{number}.jpg", encoded=jpeg(quality=90 - number)) for number in range(9)]
LISTS = features("empty.jpg", encoded=jpeg(quality=60))
EMPTY = encode({key: value for key, value in LISTS.items() if "/object/" not in key})


def chosen(source: Path, most: int = 12) -> list[Sample]:
    with resolve([str(source)]) as found:
        return choose_samples(check(found, Options()), found.shards, None, most)


def lying(folder: Path, data: bytes, name: str = "a.tfrecord") -> Path:
    (folder / name).write_bytes(data)
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    return folder / name


def zipped(folder: Path, data: bytes) -> Path:
    (folder / "a.zip").write_bytes(real_zip([("a.tfrecord", data), ("label_map.pbtxt", LABEL_MAP)]))
    return folder / "a.zip"


@pytest.mark.parametrize(
    "make", [lying, zipped, lambda folder, data: lying(folder, gzip.compress(data))]
)
def test_a_valid_report_shows_images_with_boxes(make, tmp_path: Path) -> None:
    samples = chosen(make(tmp_path, shard(EMPTY, *SOUND)))
    assert [one.item for one in samples] == [f"{number}.jpg" for number in range(4)]
    assert samples[0].classes == ("cat", "dog")
    assert len(chosen(make(tmp_path, shard(EMPTY, *SOUND)), most=2)) == 2


def test_warnings_come_first(tmp_path: Path) -> None:
    twice = with_boxes([CAT_BOX, CAT_BOX], name="twice.jpg")
    samples = chosen(lying(tmp_path, shard(*SOUND[:2], twice)))
    assert [one.item for one in samples] == ["twice.jpg", "0.jpg", "1.jpg"]
    assert samples[0].offending and not samples[1].offending


def test_boxes_of_a_class_that_is_wrong_are_marked(tmp_path: Path) -> None:
    other = record("other.jpg", text=["cat", "dgo"])
    (sample,) = chosen(lying(tmp_path, shard(other)))
    assert sample.offending == {1}


def test_an_invalid_report_shows_only_what_is_wrong(tmp_path: Path) -> None:
    bad = with_boxes([(0.7, 0.1, 0.2, 0.5)], name="bad.jpg")
    samples = chosen(lying(tmp_path, shard(*SOUND[:2], bad)))
    assert [one.item for one in samples] == ["bad.jpg"]
