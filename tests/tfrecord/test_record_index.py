"""Random access: the index, spans read later, files that changed meanwhile."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
from pathlib import Path

import pytest
from tfod.errors import ShardError
from tfod.tfrecord import record_index
from tfod.tfrecord.record_index import RecordIndex, identify
from tfod.tfrecord.writer import write_records

from tests.mutants.sound import flip

PAYLOADS = [b"first", b"", b"x" * 700_000, b"last"]


@pytest.fixture(params=["none", "gzip", "zlib"])
def shard(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return Path(write_records(tmp_path, "s", PAYLOADS, compression=request.param)[0])


def test_records_by_number(shard: Path) -> None:
    index = RecordIndex(shard)
    assert list(index) == PAYLOADS
    assert index[-1] == b"last" and index[1:3] == PAYLOADS[1:3]
    assert index.span(0).offset == 12
    with pytest.raises(IndexError):
        index[4]


def test_damaged_payload_is_found_when_it_is_read(tmp_path: Path) -> None:
    path = Path(write_records(tmp_path, "s", PAYLOADS)[0])
    path.write_bytes(flip(path.read_bytes(), 13))
    index = RecordIndex(path)
    assert index[3] == b"last"
    with pytest.raises(ShardError) as caught:
        index[0]
    assert (caught.value.record, caught.value.offset) == (0, 0)


@pytest.mark.parametrize("cut", [1, 8, 700_005])
def test_damaged_framing_is_found_at_once(tmp_path: Path, cut: int) -> None:
    path = Path(write_records(tmp_path, "s", PAYLOADS)[0])
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ShardError, match="ends inside"):
        RecordIndex(path)


def test_spans_are_values(shard: Path) -> None:
    span = RecordIndex(shard).span(0)
    assert span() == span.read() == b"first"
    for other in (copy.deepcopy(span), pickle.loads(pickle.dumps(span))):
        assert other == span and other.read() == b"first"


def test_a_replaced_file_is_refused_when_it_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(write_records(tmp_path, "s", PAYLOADS)[0])
    span = RecordIndex(path).span(0)
    monkeypatch.setattr(record_index, "_MAX_OPEN_FILES", 1)
    other = write_records(tmp_path, "other", [b"other"])[0]
    identify(other)  # closes the first
    assert span.read() == b"first"  # unchanged, opened again
    identify(other)
    write_records(tmp_path, "s", [b"replaced"])
    with pytest.raises(ShardError, match="was replaced, changed or removed"):
        span.read()
    path.unlink()
    with pytest.raises(ShardError, match="was replaced, changed or removed"):
        span.read()


def test_a_shortened_file_is_refused(tmp_path: Path) -> None:
    path = Path(write_records(tmp_path, "s", PAYLOADS)[0])
    span = RecordIndex(path).span(3)
    with path.open("r+b") as file:
        file.truncate(40)
    with pytest.raises(ShardError):
        span.read()


def test_no_room_for_a_decompressed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(write_records(tmp_path, "s", PAYLOADS, compression="gzip")[0])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record_index.shutil, "copyfileobj", full)
    with pytest.raises(ShardError, match=r"cannot be decompressed into .*No space left"):
        RecordIndex(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process shares an open file there")
def test_forked_processes_unpack_the_same_file_at_once(tmp_path: Path) -> None:
    """As the workers of a DataLoader do."""
    payloads = [os.urandom(1 << 20) for _ in range(8)]
    (path,) = write_records(tmp_path, "a", payloads, compression="gzip")
    span = RecordIndex(path).span(7)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = [pool.apply_async(span.read) for _ in range(4)]
        assert [one.get() == payloads[7] for one in found] == [True] * 4
        # They end by themselves: a SIGTERM, which main() handles, may come just before they wait.
        pool.close()
        pool.join()
