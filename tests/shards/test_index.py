"""Index files: a place and a size for each record, as DALI and vahidk/tfrecord have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tfod.errors import ShardError
from tfod.output_folder import OutputExistsError
from tfod.rearrange.index_file import write_indexes
from tfod.shards import find_shards, looks_like_shard, parse_shard_name
from tfod.writer import write_records

from tests.conftest import frame
from tests.shards.shards import files_in, payloads


def test_lines_cut_the_shard_into_its_records(corpus: Path, tmp_path: Path) -> None:
    for source in (corpus / "hyphal-tips" / "train.record", corpus / "titanic-table"):
        for path, count in write_indexes(source, tmp_path).items():
            shard = next(Path(source.parent).rglob(Path(path).name.removesuffix(".idx")))
            data, place, cut = shard.read_bytes(), 0, []
            lines = Path(path).read_text().splitlines()
            for line in lines:
                offset, size = map(int, line.split(" "))
                assert offset == place
                cut.append(data[offset : offset + size])
                place += size
            assert place == len(data)
            assert cut == [frame(one) for one in payloads(shard)]
            assert count == len(lines) > 100


def test_beside_the_shards_it_is_no_shard_itself(tmp_path: Path) -> None:
    write_records(tmp_path, "a", [b"1", b"22"], num_shards=2)
    (tmp_path / "b.record-00000-of-00001").write_bytes(frame(b"333"))
    before = [one.paths for one in find_shards(tmp_path)]
    made = write_indexes(tmp_path)
    assert sorted(made.values()) == [1, 1, 1]
    assert (tmp_path / "b.record-00000-of-00001.idx").read_text() == "0 19\n"
    assert [one.paths for one in find_shards(tmp_path)] == before
    for path in made:
        assert parse_shard_name(path) is None
        assert not looks_like_shard(path)


def test_what_is_there_stays_unless_it_may_go(tmp_path: Path) -> None:
    write_records(tmp_path, "a", [b"1", b"2"], num_shards=2)
    (tmp_path / "a-00001-of-00002.tfrecord.idx").write_text("mine")
    before = files_in(tmp_path)
    with pytest.raises(OutputExistsError, match="is there already"):
        write_indexes(tmp_path)
    assert files_in(tmp_path) == before
    write_indexes(tmp_path, overwrite=True)
    assert (tmp_path / "a-00001-of-00002.tfrecord.idx").read_text() == "0 17\n"


def test_two_shards_of_one_name_need_two_folders(tmp_path: Path) -> None:
    for folder in ("train", "valid"):
        write_records(tmp_path / "in" / folder, "x", [b"1"])
    with pytest.raises(OutputExistsError, match="index of two shards"):
        write_indexes(tmp_path / "in", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert len(write_indexes(tmp_path / "in")) == 2


def test_no_index_of_a_compressed_or_damaged_shard(tmp_path: Path) -> None:
    write_records(tmp_path / "a", "a", [b"1"])
    (compressed,) = write_records(tmp_path / "a", "z", [b"1"], compression="zlib")
    with pytest.raises(ShardError, match=r"compressed \(zlib\).*--compression none"):
        write_indexes(tmp_path / "a")
    Path(compressed).write_bytes(frame(b"1", b"2")[:-1])
    with pytest.raises(ShardError, match=r"record 1, byte 17.*tfod repair"):
        write_indexes(tmp_path / "a")
    assert sorted(files_in(tmp_path / "a")) == ["a.tfrecord", "z.tfrecord"]


def test_a_shard_of_the_folder_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_records(tmp_path, "a", [b"xyz"])
    monkeypatch.chdir(tmp_path)
    assert write_indexes("a.tfrecord") == {"a.tfrecord.idx": 1}
    assert (tmp_path / "a.tfrecord.idx").read_text() == "0 19\n"
