"""How work is divided: shards, and parts of large ones, by their index where they have one."""

from __future__ import annotations

import gzip
from pathlib import Path

from tfod.headers import split_shard
from tfod.rearrange.index_file import write_indexes
from tfod_validator.check import Options, check_sources
from tfod_validator.plan import in_parts
from tfod_validator.sources import take_inventory
from tfod_validator.work import ShardWork, Work, number_of, place_of

from tests.conftest import frame


def parts_of(path: Path, part_bytes: int, *, with_sha256: bool = False) -> list[Work]:
    with take_inventory([str(path)]) as inventory:
        work = ShardWork(number_of(3), inventory.shards[0], None, with_sha256=with_sha256)
        return list(in_parts(work, part_bytes))


def spans(works: list[Work]) -> list[tuple[int, int]]:
    return [
        (one.part.start, one.part.stop)
        for one in works
        if isinstance(one, ShardWork) and one.part is not None
    ]


def test_large_shards_are_cut_where_records_end(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(*(bytes(84) for _ in range(20))))
    works = parts_of(path, 250)
    assert spans(works) == [(start, min(start + 300, 2000)) for start in range(0, 2000, 300)]
    assert [one.number for one in works] == list(range(number_of(3), number_of(3) + 7))
    assert {place_of(one.number) for one in works} == {3}
    assert len(parts_of(path, 1000)) == 1  # two parts would be no gain


def test_the_index_says_where_without_a_walk(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frame(*(bytes(84) for _ in range(20))))
    write_indexes(path, tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 1  # a header which a walk stops at, and no part starts with
    path.write_bytes(damaged)
    assert len(list(split_shard(path, 250))) == 1
    assert len(spans(parts_of(path, 250))) == 7
    Path(f"{path}.idx").unlink()
    assert len(parts_of(path, 250)) == 1


def test_what_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(frame(*(bytes([one]) * 84 for one in range(100))), 0))
    assert len(parts_of(path, 100)) == 1  # packed
    path.write_bytes(frame(*(bytes(84) for _ in range(20))))
    assert len(parts_of(path, 100, with_sha256=True)) == 1  # hashed while it is read


def test_one_report_with_and_without_an_index(corpus: Path, tmp_path: Path) -> None:
    shard = tmp_path / "train.record"
    shard.write_bytes((corpus / "hyphal-tips" / "train.record").read_bytes())
    reports = [check_sources([str(shard)], Options(jobs=2, part_bytes=100_000)).to_json()]
    write_indexes(shard, tmp_path)
    for jobs in (1, 2):
        options = Options(jobs=jobs, part_bytes=100_000)
        reports.append(check_sources([str(shard)], options).to_json())
    assert all({**one, "duration": 0} == {**reports[0], "duration": 0} for one in reports)
