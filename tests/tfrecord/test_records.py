"""The walk through a shard: what is sound is read, what is not is named."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.tfrecord.framing import masked_crc32c
from tfod.tfrecord.reader import read_record_stream, read_records
from tfod.tfrecord.walk import MAX_BUFFER_BYTES

from tests.conftest import examples
from tests.mutants.sound import flip
from tests.records import frame


def payloads_of(data: bytes) -> list[bytes]:
    stream = io.BytesIO(data)
    return [bytes(record.payload) for record in read_record_stream(stream, "x.record", len(data))]


def failure(data: bytes) -> ShardError:
    with pytest.raises(ShardError) as caught:
        payloads_of(data)
    return caught.value


def test_masked_checksum_is_that_of_tensorflow() -> None:
    # The length field of a record of 0 bytes, as tf.io.TFRecordWriter writes it.
    assert masked_crc32c(bytes(8)) == 0x07980329


ONE, TWO = frame(b"one"), frame(b"two")
TAILS = {
    "nothing": (b"", b""),
    "one zero byte": (b"\0", b"\0"),
    "two": (bytes(2), bytes(2)),
    "many": (bytes(300_000), bytes(300_000)),
    "something else": (b"xy", b"xy"),
    "another part": (gzip.compress(TWO), zlib.compress(TWO)),
    "one and a zero byte": (gzip.compress(TWO) + b"\0", zlib.compress(TWO) + b"\0"),
    "one and two": (gzip.compress(TWO) + bytes(2), zlib.compress(TWO) + bytes(2)),
    "one behind a zero byte": (b"\0" + gzip.compress(TWO), b"\0" + zlib.compress(TWO)),
}
"""What may lie behind the end of a gzip and of a zlib stream."""


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("tail", TAILS)
def test_what_follows_a_compressed_stream_is_read_as_tensorflow_reads_it(
    tmp_path: Path, kind: str, tail: str
) -> None:
    tf = pytest.importorskip("tensorflow")
    compress = gzip.compress if kind == "GZIP" else zlib.compress
    path = tmp_path / "a.record"
    path.write_bytes(compress(ONE) + TAILS[tail][kind == "ZLIB"])
    theirs, ours = [], []
    with contextlib.suppress(tf.errors.DataLossError):
        theirs += (one.numpy() for one in tf.data.TFRecordDataset(str(path), kind))
        theirs.append(b"sound")
    with contextlib.suppress(ShardError):
        ours += (bytes(one.payload) for one in read_records(path))
        ours.append(b"sound")
    assert ours == theirs


def test_offsets_are_bytes_of_the_uncompressed_file() -> None:
    records = list(read_record_stream(io.BytesIO(gzip.compress(frame(b"abc", b"de"))), "x"))
    assert [(r.number, r.offset, r.payload_offset) for r in records] == [(0, 0, 12), (1, 19, 31)]


def test_a_walk_holds_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.record"
    path.write_bytes(frame(*[bytes(100_000)] * 1000))
    buffers = {id(record.buffer): len(record.buffer) for record in read_records(path)}
    assert sum(buffers.values()) <= 3 * MAX_BUFFER_BYTES


def test_empty_file_is_an_error_that_says_so() -> None:
    assert str(failure(b"")).startswith("x.record: is empty (0 bytes); ")


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress])
def test_every_flipped_bit_is_an_error(compress) -> None:
    """And every cut."""
    data = compress(frame(b"some payload", b"another one"))
    for length in set(range(1, len(data))) - {len(frame(b"some payload"))}:
        failure(data[:length])
    for position in range(len(data)):
        try:
            found = payloads_of(flip(data, position, position % 8))
        except ShardError as error:
            assert str(error).startswith("x.record")
        else:
            # gzip's header has bytes without meaning (time, system, extra flags).
            assert compress is gzip.compress and position < 10
            assert found == [b"some payload", b"another one"]


def test_damaged_data_names_record_and_byte() -> None:
    error = failure(flip(frame(b"first", b"second"), -6))
    assert (error.record, error.offset) == (1, 21)
    assert str(error).startswith("x.record, record 1, byte 21: the checksum of the data is wrong,")
    assert "tfod repair" in str(error)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04" + bytes(30), "a zip archive"),
        (b"\xff\xd8\xff\xe0" + bytes(30), "a JPEG image"),
        (b"\x89PNG\r\n\x1a\n" + bytes(30), "a PNG image"),
        (b"\n<!DOCTYPE html><html></html>", "an HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "a Git LFS pointer"),
        (b'{"a": 1, "b": [2, 3]}', "JSON text"),
        (gzip.compress(gzip.compress(frame(b"x"), mtime=0), mtime=0), "gzip inside gzip"),
        (b"just a text of some length", "its first 12 bytes are not a record header"),
    ],
)
def test_other_files_are_called_by_their_name(content: bytes, what: str) -> None:
    error = failure(content)
    assert what in error.cause
    assert error.fix


@examples(300)
@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        payloads_of(data)
    except ShardError as error:
        assert "\n" not in str(error)


def test_streams_that_give_little_at_a_time() -> None:
    class Dribble(io.RawIOBase):
        def __init__(self, data: bytes) -> None:
            self.inner = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, target) -> int:
            return self.inner.readinto(memoryview(target)[:7])

        def read(self, size: int = -1) -> bytes:
            return self.inner.read(min(size, 7))

    payloads = [b"a" * 100, b"b" * 3]
    found = [bytes(r.payload) for r in read_record_stream(Dribble(frame(*payloads)), "pipe")]
    assert found == payloads
    found = [r.length for r in read_record_stream(Dribble(gzip.compress(frame(*payloads))), "p")]
    assert found == [100, 3]
