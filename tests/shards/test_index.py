"""Index files: a place and a size for each record, as DALI and vahidk/tfrecord have them."""

from __future__ import annotations

import gzip
import itertools
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.shards.index import write_indexes
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.framing import ShardPart
from tfod.tfrecord.output_folder import OutputExistsError
from tfod.tfrecord.reader import read_records
from tfod.tfrecord.shard_sets.names import parse_shard_name
from tfod.tfrecord.shard_sets.parts import split_by_index, split_shard
from tfod.tfrecord.shard_sets.search import find_shards, looks_like_shard
from tfod.tfrecord.writer import write_records

from tests.files import files_in, payloads
from tests.records import frame
from tests.tfrecord.remote.servers import Web, web_server


def test_lines_cut_the_shard_into_its_records(corpus: Path, tmp_path: Path) -> None:
    for source in (corpus / "hyphal-tips" / "train.record", corpus / "titanic-table"):
        written = write_indexes(source, tmp_path)
        assert len(written) == 1
        for path, count in written.items():
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


Records = list[tuple[int, int, bytes]]


def records(path: Path, part: ShardPart | None = None) -> Records:
    return [(one.number, one.offset, bytes(one.payload)) for one in read_records(path, part=part)]


def indexed(folder: Path, *payloads: bytes) -> Path:
    """A shard with its index beside it."""
    path = folder / "x.tfrecord"
    path.write_bytes(frame(*payloads))
    write_indexes(path, overwrite=True)
    return path


@given(
    sizes=st.lists(st.integers(0, 300) | st.just(70_000), min_size=1, max_size=60),
    part_bytes=st.integers(-1, 3000) | st.just(1 << 40),
)
def test_parts_by_the_index_are_the_parts_by_the_headers(
    sizes: list[int], part_bytes: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = indexed(
        tmp_path_factory.getbasetemp(),
        *(bytes([number]) * size for number, size in enumerate(sizes)),
    )
    parts = split_by_index(str(path), part_bytes)
    assert parts == list(split_shard(path, max(part_bytes, 1)))
    assert parts[0].start == 0 and parts[-1].stop == path.stat().st_size
    assert all(one.stop == after.start for one, after in itertools.pairwise(parts))
    found = [records(path, part) for part in parts]
    assert [one.records for one in parts] == [len(one) for one in found]
    assert [*itertools.chain(*found)] == records(path)


def test_an_index_of_several_blocks_is_read(tmp_path: Path) -> None:
    count = 60_000  # 600 kB of text, of which a line lies across each of its blocks
    path = indexed(tmp_path, *[b"abc"] * count)
    parts = split_by_index(str(path), 100_000)
    assert parts == list(split_shard(path, 100_000))
    assert sum(one.records or 0 for one in parts) == count


def test_the_headers_tell_how_many_records_a_sound_part_has(tmp_path: Path) -> None:
    path = indexed(tmp_path, b"1", b"22", b"333")
    assert [one.records for one in split_shard(path, 30)] == [2, 1]
    whole = path.read_bytes()
    for broken in (whole[:-1], whole + b"more", whole + bytes(12)):
        path.write_bytes(broken)
        first, *_, last = split_shard(path, 30)
        assert (first.records, last.records) == (2, None)


def test_the_index_of_windows_is_read(tmp_path: Path) -> None:
    path = indexed(tmp_path, b"1", b"22", b"333")
    index = Path(f"{path}.idx")
    index.write_bytes(index.read_bytes().replace(b"\n", b"\r\n"))
    assert split_by_index(str(path), 30) == list(split_shard(path, 30))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n",
        b"0 17\n17 18",  # the last line was cut
        b"0 17\n17 18\n\n",
        b"0 17\n17 18\n35",
        b"0 17\n",
        b"0 17\n17 18\n35 16\n",
        b"17 18\n0 17\n",
        b"0 35\n0 35\n",
        b"0 18\n18 17\n",  # adds up, and is another shard's
        b"0 35\n",
        b"0 17\n18 17\n",
        b"0 17\n17 -18\n",
        b"+0 17\n17 18\n",
        b"0  17\n17 18\n",
        b"0 17 17 18\n",
        b"0\n17\n17\n18\n",
        b"0 17\r17 18\r",
        b"0\t17\n17\t18\n",
        b"0 17.0\n17 18\n",
        b"0x0 17\n17 18\n",
        b"\xef\xbb\xbf0 17\n17 18\n",
        "0 17\n17 1٨\n".encode(),
        b"0 17\n17 0000000000000000018\n",
        b"0 17\n17 18446744073709551634\n",  # 18 in 64 bits
        b"0 17\n17 " + b"0" * 500_000 + b"18\n",
        b"0 9223372036854775807\n",
        b"7" * 3_000_000,
        b"\0" * 1000,
        bytes(range(256)) * 2000,
        frame(b"1", b"22"),
        b"\x1f\x8b" + b"0 17\n17 18\n",
    ],
    ids=lambda text: repr(text[:24]),
)
def test_what_is_no_index_of_the_shard_is_left_alone(tmp_path: Path, text: bytes) -> None:
    path = indexed(tmp_path, b"1", b"22")
    assert Path(f"{path}.idx").read_bytes() == b"0 17\n17 18\n"
    assert split_by_index(str(path), 1) == list(split_shard(path, 1))
    Path(f"{path}.idx").write_bytes(text)
    assert split_by_index(str(path), 1) is None


@pytest.mark.parametrize("text", ["17 17\n", "0 17\n17 17\n17 17\n", "0 17\n17 0\n17 17\n"])
def test_an_index_is_checked_where_no_part_begins(tmp_path: Path, text: str) -> None:
    path = indexed(tmp_path, b"1", b"2")
    Path(f"{path}.idx").write_text(text)
    assert split_by_index(str(path), 100) is None


@given(st.binary(max_size=60) | st.text("0123456789 \r\n-+", max_size=30).map(str.encode))
def test_anything_beside_a_shard_is_read_without_a_word(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "noise.tfrecord"
    path.write_bytes(frame(b"1", b"22"))
    Path(f"{path}.idx").write_bytes(text)
    right = text.replace(b"\r\n", b"\n") == b"0 17\n17 18\n"
    assert (split_by_index(str(path), 1) is not None) == right


def _shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + frame(b"4"))


def _swapped(path: Path) -> None:
    path.write_bytes(frame(b"22", b"1", b"333"))


def _damaged_at_a_boundary(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[17 + 9] ^= 1
    path.write_bytes(data)


def _emptied(path: Path) -> None:
    path.write_bytes(b"")
    Path(f"{path}.idx").write_bytes(b"")


def _compressed(path: Path) -> None:
    data = gzip.compress(path.read_bytes())
    path.write_bytes(data)
    Path(f"{path}.idx").write_text(f"0 {len(data)}\n")


def _gone(path: Path) -> None:
    path.unlink()


def _a_folder(path: Path) -> None:
    Path(f"{path}.idx").unlink()
    Path(f"{path}.idx").mkdir()


def _a_pipe(path: Path) -> None:
    Path(f"{path}.idx").unlink()
    os.mkfifo(f"{path}.idx")  # opening it would wait for ever


@pytest.mark.parametrize(
    "change",
    [
        _shortened,
        _grown,
        _swapped,
        _damaged_at_a_boundary,
        _emptied,
        _compressed,
        _gone,
        _a_folder,
        _a_pipe,
    ],
)
def test_an_index_that_does_not_fit_any_more_is_left_alone(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = indexed(tmp_path, b"1", b"22", b"333")
    assert split_by_index(str(path), 1) is not None
    change(path)
    assert split_by_index(str(path), 1) is None


def test_a_stale_index_whose_sums_fit_says_a_wrong_number_of_records(tmp_path: Path) -> None:
    path = indexed(tmp_path, b"1", b"22", b"333", b"4")
    path.write_bytes(frame(b"1", b"22" + bytes(16) + b"333", b"4"))
    parts = split_by_index(str(path), 50)
    assert parts is not None and len(parts) == 2
    assert [one.records for one in parts] != [len(records(path, one)) for one in parts]


def test_a_shard_in_a_zip_is_not_split(tmp_path: Path) -> None:
    path = indexed(tmp_path, b"1", b"22")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for one in (path, Path(f"{path}.idx")):
            archive.write(one, one.name)
    assert split_by_index(str(tmp_path / "x.zip" / path.name), 1) is None
    assert split_by_index(str(tmp_path / "absent.tfrecord"), 1) is None


def _can_be_noticed(path: Path, part: ShardPart) -> bool:
    """Whether a reader of the part sees that its records are not those that the index means."""
    damages: list[Damage] = []
    found = list(read_records(path, part=part, on_damage=damages.append))
    return bool(damages) or len(found) != part.records


@given(st.data())
def test_a_wrong_index_is_left_alone_or_can_be_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 40), min_size=2, max_size=12))
    path = indexed(tmp_path_factory.getbasetemp(), *(bytes(one) for one in sizes))
    right = [tuple(map(int, line.split())) for line in Path(f"{path}.idx").read_text().splitlines()]
    # Whatever adds up: some boundaries are missing, others are where no record ends.
    size = path.stat().st_size
    bounds = {start for start, _ in right[1:]}
    bounds ^= data.draw(st.sets(st.sampled_from(sorted(bounds)) | st.integers(1, size - 1)))
    pairs = list(itertools.pairwise([0, *sorted(bounds), size]))
    lines = [f"{start} {stop - start}\n" for start, stop in pairs]
    if data.draw(st.booleans()):  # or it does not add up
        number = data.draw(st.integers(0, len(lines) - 1))
        lines[number : number + 1] = data.draw(
            st.sampled_from(([], 2 * lines[number : number + 1]))
        )
    Path(f"{path}.idx").write_text("".join(lines))
    part_bytes = data.draw(st.integers(1, size))
    parts = split_by_index(str(path), part_bytes)
    is_right = "".join(lines) == "".join(f"{start} {count}\n" for start, count in right)
    assert not is_right or parts == list(split_shard(path, part_bytes))
    if parts is None:
        return
    wrong = [number for number, one in enumerate(parts) if _can_be_noticed(path, one)]
    # What lies in front of the first part that is noticed is as it should be.
    sound = [*itertools.chain(*(records(path, one) for one in parts[: (wrong or [None])[0]]))]
    assert sound == records(path)[: len(sound)]
    assert wrong or len(sound) == len(sizes)


def test_an_index_is_read_from_a_web_server(tmp_path: Path) -> None:
    path = indexed(tmp_path, b"1", b"22", b"333")
    right = split_by_index(str(path), 30)
    assert right is not None and len(right) == 2
    web = Web(_served(tmp_path))
    with web_server(web) as address:
        url = f"{address}/{path.name}"
        assert split_by_index(url, 30) == right
        found = [[bytes(one.payload) for one in read_records(url, part=part)] for part in right]
        assert found == [[b"1", b"22"], [b"333"]]
        web.has_ranges = False  # all that lies in front would come with each part
        assert split_by_index(url, 30) is None
        web.has_ranges = True
        for change in (_shortened, _swapped, _compressed, _gone):
            indexed(tmp_path, b"1", b"22", b"333")
            change(path)
            web.files = _served(tmp_path)
            assert split_by_index(url, 30) is None


def _served(folder: Path) -> dict[str, bytes]:
    return {f"/{path.name}": path.read_bytes() for path in folder.iterdir()}
