"""The images of a report."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tfod.checker.check import Options, check
from tfod.checker.reporters.samples import Sample, choose_samples
from tfod.sources.resolver import resolve

from tests.mutants.sound import CAT_BOX, LABEL_MAP, features, jpeg, record, shard, with_boxes
from tests.records import encode
from tests.zip_forge import real_zip

NUMBERED = [record(f"{number}.jpg", encoded=jpeg(quality=90 - number)) for number in range(9)]
LISTS = features("empty.jpg", encoded=jpeg(quality=60))
EMPTY = encode({key: value for key, value in LISTS.items() if "/object/" not in key})
MAP = ("label_map.pbtxt", LABEL_MAP)


@pytest.fixture
def chosen(tmp_path: Path) -> Callable[..., list[Sample]]:
    """The images of a report about a file."""

    def choose(data: bytes, name: str = "a.tfrecord", most: int = 12) -> list[Sample]:
        (tmp_path / name).write_bytes(data)
        (tmp_path / MAP[0]).write_bytes(LABEL_MAP)
        with resolve([str(tmp_path / name)]) as found:
            return choose_samples(check(found, Options()), found.shards, None, most)

    return choose


@pytest.mark.parametrize("kind", ["plain", "zip", "gzip"])
def test_a_valid_report_shows_images_with_boxes(kind: str, chosen) -> None:
    data, name = shard(EMPTY, *NUMBERED), "a.tfrecord"
    if kind == "zip":
        data, name = real_zip([(name, data), MAP]), "a.zip"
    elif kind == "gzip":
        data = gzip.compress(data)
    samples = chosen(data, name)
    assert [one.item for one in samples] == [f"{number}.jpg" for number in range(4)]
    assert samples[0].classes == ("cat", "dog") and len(chosen(data, name, most=2)) == 2


def test_warnings_come_first(chosen) -> None:
    twice = with_boxes([CAT_BOX, CAT_BOX], name="twice.jpg")
    samples = chosen(shard(*NUMBERED[:2], twice))
    assert [one.item for one in samples] == ["twice.jpg", "0.jpg", "1.jpg"]
    assert samples[0].offending and not samples[1].offending


def test_an_invalid_report_shows_only_wrong_images(chosen) -> None:
    bad = with_boxes([(0.7, 0.1, 0.2, 0.5)], name="bad.jpg")
    assert [one.item for one in chosen(shard(*NUMBERED[:2], bad))] == ["bad.jpg"]
    (sample,) = chosen(shard(record("other.jpg", text=["cat", "dgo"])))
    assert sample.offending == {1}, "the box with the wrong class"
