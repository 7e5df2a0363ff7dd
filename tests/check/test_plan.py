"""How work is divided: shards, and parts of large ones, by their index where they have one."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest
from tfod.check.check import Options, check_sources
from tfod.check.duplicates.row_blocks import RowStore
from tfod.check.engine.inputs import Input, ShardInput, examine, in_parts, number_of, place_of
from tfod.check.profiles.policy import Policy
from tfod.check.profiles.profile import READY
from tfod.check.records.instructions import Instructions
from tfod.check.records.result import Result
from tfod.check.sources.inventory import Location, ShardSource
from tfod.check.sources.search import take_inventory
from tfod.tfrecord.writer import write_records

from tests.check.test_check import training
from tests.records import frame, objects


def instructions(part_bytes: int = 1) -> Instructions:
    return Instructions(READY["cvat"], Policy(), max_findings=10, part_bytes=part_bytes)


def parts_of(path: Path, part_bytes: int) -> list[Input]:
    with take_inventory([str(path)]) as inventory:
        work = ShardInput(number_of(3), inventory.shards[0])
        return list(in_parts(work, instructions(part_bytes)))


def spans(works: list[Input]) -> list[tuple[int, int]]:
    return [
        (one.part.start, one.part.stop)
        for one in works
        if isinstance(one, ShardInput) and one.part is not None
    ]


def test_large_shards_are_cut_where_records_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(*(bytes(84) for _ in range(20))))
    works = parts_of(path, 250)
    assert spans(works) == [(start, min(start + 300, 2000)) for start in range(0, 2000, 300)]
    assert [one.number for one in works] == list(range(number_of(3), number_of(3) + 7))
    assert {place_of(one.number) for one in works} == {3}
    assert len(parts_of(path, 1000)) == 1  # two parts would be no gain


def test_what_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(frame(*(bytes([one]) * 84 for one in range(100))), 0))
    assert len(parts_of(path, 100)) == 1  # packed
    path.write_bytes(frame(*(bytes(84) for _ in range(20))))
    assert len(parts_of(path, 100)) > 1
    remote = ShardSource(Location("a", str(path), True, path.stat().st_size), "a")
    assert len(list(in_parts(ShardInput(0, remote), instructions(100)))) == 1


@pytest.mark.parametrize("profile", ["cvat", "tf_detection_api"])
def test_what_one_record_lacks_is_told_wherever_the_shard_is_cut(
    tmp_path: Path, profile: str
) -> None:
    """An id that is there in the record before hides nothing of the next one."""
    ids = ["s0", " ", "s2", " ", "", "s5"]
    records = [
        training(f"{number}.jpg", **{"image/source_id": one}) for number, one in enumerate(ids)
    ]
    write_records(tmp_path, "train", records)
    reports = [
        check_sources([str(tmp_path)], Options(READY[profile], jobs=jobs, part_bytes=1))
        for jobs in (1, 2)
    ]
    for report in reports:
        assert report.counts.by_code["NAM012"] == 3
    assert reports[0].to_json() == {
        **reports[1].to_json(),
        "duration": reports[0].to_json()["duration"],
    }


def test_a_shard_that_goes_while_its_parts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_records(
        tmp_path, "train", [training(f"{n}.jpg") for n in range(40)], num_shards=2
    )

    def and_gone(work: Input, instructions: Instructions) -> list[Input]:
        found = list(in_parts(work, instructions))
        if place_of(work.number) == 0:
            Path(paths[0]).unlink()
        return found

    monkeypatch.setattr("tfod.check.engine.pool.in_parts", and_gone)
    report = check_sources([str(tmp_path)], Options(jobs=2, part_bytes=1))
    assert report.counts.by_code["TFR013"] == 1
    assert report.counts.records == 20
    assert [one.bytes is None for one in report.sources] == [True, False]


def test_too_many_classes_are_the_same_ones_however_they_are_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfod.check.records.statistics.MOST_KINDS", 50)
    box = (0.1, 0.1, 0.9, 0.9)
    records = []
    for number in range(400):
        names = [f"c{number % 130}", f"c{number * 7 % 200}"]
        lists = objects([box, box], names, [1, 2])
        records.append(training(f"{number}.jpg", [box, box], **lists))
    paths = write_records(tmp_path, "train", records, num_shards=8)
    with take_inventory([str(tmp_path)]) as inventory:
        figures = []
        for part_bytes in (1 << 30, 5000, 1):
            total = Result(10)
            works = [
                part
                for number, shard in enumerate(inventory.shards)
                for part in in_parts(ShardInput(number_of(number), shard), instructions(part_bytes))
            ]
            random.Random(part_bytes).shuffle(works)
            for work in works:
                total += examine(work, instructions(), lambda *_: None, RowStore(None))
            total.close()
            figures.append(total.uses[None])
    assert len(paths) == 8
    assert figures[0] == figures[1] == figures[2]
    assert len(figures[0]) == 50


def test_what_cannot_be_read_says_nothing_of_the_index(tmp_path: Path) -> None:
    """Its other parts count: they are not read again."""
    path = write_records(tmp_path, "train", [training(f"{n}.jpg") for n in range(9)])[0]
    works = parts_of(Path(path), 1)
    Path(path).unlink()
    result = examine(works[4], instructions(), lambda *_: None, RowStore(None))
    assert result.all_findings().once.keys() == {("TFR013", path, None)}
