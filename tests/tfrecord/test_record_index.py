"""Random access: the index, spans that are read later, and files that change between reads."""

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


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return Path(write_records(tmp_path, "s", PAYLOADS)[0])


@pytest.mark.parametrize("compression", ["none", "gzip", "zlib"])
def test_records_by_number(tmp_path: Path, compression: str) -> None:
    index = RecordIndex(write_records(tmp_path, "s", PAYLOADS, compression=compression)[0])
    assert list(index) == PAYLOADS
    assert index[-1] == b"last" and index[1:3] == PAYLOADS[1:3]
    with pytest.raises(IndexError):
        index[4]
    span = index.span(0)
    assert span.offset == 12
    for other in (span, copy.deepcopy(span), pickle.loads(pickle.dumps(span))):
        assert other == span and other() == other.read() == b"first"


def test_a_damaged_payload_is_an_error_when_it_is_read(shard: Path) -> None:
    shard.write_bytes(flip(shard.read_bytes(), 13))
    index = RecordIndex(shard)
    assert index[3] == b"last"
    with pytest.raises(ShardError) as caught:
        index[0]
    assert (caught.value.record, caught.value.offset) == (0, 0)


@pytest.mark.parametrize("cut", [1, 8, 700_005])
def test_damaged_framing_is_an_error_at_once(shard: Path, cut: int) -> None:
    shard.write_bytes(shard.read_bytes()[:-cut])
    with pytest.raises(ShardError, match="ends inside"):
        RecordIndex(shard)


def test_a_replaced_file_is_refused_when_it_is_opened_again(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = RecordIndex(shard).span(0)
    monkeypatch.setattr(record_index, "_MAX_OPEN_FILES", 1)
    other = write_records(tmp_path, "other", [b"other"])[0]
    identify(other)  # closes the first
    assert span.read() == b"first"  # unchanged, opened again
    identify(other)
    for change in (lambda: write_records(tmp_path, "s", [b"replaced"]), shard.unlink):
        change()
        with pytest.raises(ShardError, match="was replaced, changed or removed"):
            span.read()


def test_a_shortened_file_is_refused(shard: Path) -> None:
    span = RecordIndex(shard).span(3)
    os.truncate(shard, 40)
    with pytest.raises(ShardError):
        span.read()


def test_no_room_for_a_decompressed_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (path,) = write_records(tmp_path, "s", PAYLOADS, compression="gzip")
    monkeypatch.setattr(record_index.shutil, "copyfileobj", full)
    with pytest.raises(ShardError, match=r"cannot be decompressed into .*No space left"):
        RecordIndex(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process shares an open file there")
def test_forked_processes_unpack_the_same_file_at_once(tmp_path: Path) -> None:
    """The workers of a DataLoader do this."""
    payloads = [os.urandom(1 << 20) for _ in range(8)]
    (path,) = write_records(tmp_path, "a", payloads, compression="gzip")
    span = RecordIndex(path).span(7)
    with multiprocessing.get_context("fork").Pool(4) as pool:
        found = [pool.apply_async(span.read) for _ in range(4)]
        assert [one.get() == payloads[7] for one in found] == [True] * 4
        # They end by themselves: a SIGTERM, which main() handles, may come just before they wait.
        pool.close()
        pool.join()
