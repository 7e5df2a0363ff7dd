"""Reading a shard: batches of undamaged records with their offsets, and errors with the damage."""

from __future__ import annotations

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import masked_crc32c
from tfod.tfrecord.reader import (
    RecordBatch,
    read_record_batches,
    read_record_stream,
    read_records,
    require_undamaged,
    walk,
)
from tfod.tfrecord.walk import BUFFER_BYTES, MAX_BUFFER_BYTES

from tests.conftest import examples
from tests.mutants.sound import flip
from tests.records import frame

Compress = Callable[[bytes], bytes]


def payloads_of(data: bytes) -> list[bytes]:
    stream = io.BytesIO(data)
    return [bytes(record.payload) for record in read_record_stream(stream, "x.record", len(data))]


def failure(data: bytes) -> ShardError:
    with pytest.raises(ShardError) as caught:
        payloads_of(data)
    return caught.value


def batches_of(data: bytes) -> list[RecordBatch]:
    return list(map(require_undamaged, walk(io.BytesIO(data), "x", len(data))))


def framed(batch: RecordBatch) -> list[bytes]:
    spans = batch.framed_spans.tolist()
    return [bytes(batch.buffer[start : start + length]) for start, length in spans]


def offsets_of(payloads: list[bytes]) -> list[int]:
    return [0, *itertools.accumulate(len(payload) + 16 for payload in payloads)][:-1]


ONE, TWO = frame(b"one"), frame(b"two")


@pytest.mark.parametrize(("kind", "compress"), [("GZIP", gzip.compress), ("ZLIB", zlib.compress)])
def test_bytes_after_a_compressed_stream_are_read_as_tensorflow_reads_them(
    tmp_path: Path, kind: str, compress: Compress
) -> None:
    tf = pytest.importorskip("tensorflow")
    path = tmp_path / "a.record"
    part = compress(TWO)
    zeros = (b"", b"\0", bytes(2), bytes(300_000))
    for tail in (*zeros, b"xy", part, part + b"\0", part + bytes(2), b"\0" + part):
        path.write_bytes(compress(ONE) + tail)
        theirs, ours = [], []
        with contextlib.suppress(tf.errors.DataLossError):
            theirs += (one.numpy() for one in tf.data.TFRecordDataset(str(path), kind))
            theirs.append(b"undamaged")
        with contextlib.suppress(ShardError):
            ours += (bytes(one.payload) for one in read_records(path))
            ours.append(b"undamaged")
        assert ours == theirs, tail[:40]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    st.sampled_from([bytes, gzip.compress, zlib.compress]),
)
def test_a_batch_has_the_offsets_of_its_records(payloads: list[bytes], compress: Compress) -> None:
    data = frame(*payloads)
    (batch,) = batches_of(compress(data))
    assert (batch.shard, batch.first, len(batch)) == ("x", 0, len(payloads))
    assert b"".join(framed(batch)) == data
    offsets = offsets_of(payloads)
    assert batch.numbers.tolist() == list(range(len(payloads)))
    assert batch.offsets.tolist() == offsets
    for row, record in enumerate(batch.records()):
        assert record == batch.record(row)
        assert (record.number, record.offset) == (row, offsets[row])
        assert record.payload_offset == offsets[row] + 12
        assert bytes(record.payload) == payloads[row]


@pytest.mark.parametrize("compress", [bytes, zlib.compress])
def test_records_around_and_beyond_the_size_of_the_buffer(compress: Compress) -> None:
    powers = [BUFFER_BYTES >> by for by in range(4)]
    sizes = [*(size - less for size in powers for less in (15, 16, 17, 0)), 3 * BUFFER_BYTES, 7, 0]
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    batches = batches_of(compress(frame(*payloads)))
    assert b"".join(itertools.chain.from_iterable(map(framed, batches))) == frame(*payloads)
    assert np.concatenate([one.offsets for one in batches]).tolist() == offsets_of(payloads)
    assert np.concatenate([one.numbers for one in batches]).tolist() == list(range(len(sizes)))


def test_masked_checksum_is_that_of_tensorflow() -> None:
    # The length field of a record of 0 bytes, as tf.io.TFRecordWriter writes it.
    assert masked_crc32c(bytes(8)) == 0x07980329


def test_batches_have_thousands_of_small_records_or_several_large_ones() -> None:
    assert max(map(len, batches_of(frame(b"x" * 600) * 20_000))) > 3000
    assert max(map(len, batches_of(frame(b"x" * 100_000) * 60))) >= 16


def test_a_damage_is_reported_between_the_records_around_it() -> None:
    payloads = [b"%d" % number * 50 for number in range(9)]
    data = bytearray(frame(*payloads))
    offsets = offsets_of(payloads)
    for place in (offsets[2] + 20, offsets[3] + 20, offsets[6]):  # data, data and a length
        data[place] ^= 1
    events: list[tuple[int, int] | DamageKind] = []
    for batch in walk(io.BytesIO(data), "x", len(data)):
        if isinstance(batch, Damage):
            events.append(batch.kind)
            continue
        events.append((batch.first, len(batch)))
        assert framed(batch) == [frame(payloads[number]) for number in batch.numbers]
        assert batch.offsets.tolist() == [offsets[number] for number in batch.numbers]
    assert events == [
        *((0, 2), DamageKind.DATA_CRC, DamageKind.DATA_CRC),
        *((4, 2), DamageKind.LENGTH_CRC, (7, 2)),
    ]


@pytest.mark.parametrize("before", [0, 3, 20, 40])
@pytest.mark.parametrize("size", [9_000, 5_000_000])
def test_a_record_above_the_limit_is_skipped(before: int, size: int) -> None:
    """The limit applies even if the buffer has room for the record."""
    data = frame(*[b"a" * 6_000] * before, b"b" * size, b"c" * 70)
    found = list(walk(io.BytesIO(data), "x", len(data), 8_000))
    (damage,) = (one for one in found if isinstance(one, Damage))
    assert (damage.kind, damage.record) == (DamageKind.OVERSIZE, before)
    assert (damage.offset, damage.skipped) == (before * 6_016, size + 16)
    numbers = [n for one in found if isinstance(one, RecordBatch) for n in one.numbers]
    assert numbers == [*range(before), before + 1]


def test_batches_keep_their_bytes_within_limits(tmp_path: Path) -> None:
    path = tmp_path / "s.tfrecord"
    path.write_bytes(frame(*(bytes([n]) * 300_000 for n in range(60))))
    batches = list(read_record_batches(path))  # none is overwritten
    assert len(batches) > 5
    assert b"".join(b"".join(framed(batch)) for batch in batches) == path.read_bytes()
    path.write_bytes(frame(*[bytes(100_000)] * 1000))
    buffers = {id(record.buffer): len(record.buffer) for record in read_records(path)}
    assert sum(buffers.values()) <= 3 * MAX_BUFFER_BYTES
    stream = io.BytesIO(frame(b"x" * 1000) * 10_000)
    next(walk(stream, "x"))
    assert stream.tell() <= 1 << 18


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress])
def test_every_flipped_bit_and_every_cut_is_an_error(compress: Compress) -> None:
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


def test_an_error_names_record_and_byte() -> None:
    error = failure(flip(frame(b"first", b"second"), -6))
    assert (error.record, error.offset) == (1, 21)
    assert str(error).startswith("x.record, record 1, byte 21: the checksum of the data is wrong,")
    assert "tfod repair" in str(error)
    assert str(failure(b"")).startswith("x.record: is empty (0 bytes); ")


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
def test_other_kinds_of_files_are_named(content: bytes, what: str) -> None:
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


class Dribble(io.RawIOBase):
    """A stream that gives at most 7 bytes at a time."""

    def __init__(self, data: bytes) -> None:
        self.inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, target) -> int:
        return self.inner.readinto(memoryview(target)[:7])

    def read(self, size: int = -1) -> bytes:
        return self.inner.read(min(size, 7))


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_streams_that_give_few_bytes_at_a_time(compress: Compress) -> None:
    payloads = [b"a" * 100, b"b" * 3]
    found = read_record_stream(Dribble(compress(frame(*payloads))), "pipe")
    assert [bytes(record.payload) for record in found] == payloads
