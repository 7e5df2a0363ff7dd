"""Batches hold the records that lie in the shard, with their places, and end at damages."""

from __future__ import annotations

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
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import RecordBatch, read_record_batches, require_undamaged, walk
from tfod.tfrecord.walk import BUFFER_BYTES

from tests.records import frame


def batches_of(data: bytes) -> list[RecordBatch]:
    return list(map(require_undamaged, walk(io.BytesIO(data), "x", len(data))))


def framed(batch: RecordBatch) -> list[bytes]:
    spans = batch.framed_spans.tolist()
    return [bytes(batch.buffer[start : start + length]) for start, length in spans]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    st.sampled_from([bytes, gzip.compress, zlib.compress]),
)
def test_a_batch_knows_its_records(
    payloads: list[bytes], compress: Callable[[bytes], bytes]
) -> None:
    data = frame(*payloads)
    (batch,) = batches_of(compress(data))
    assert (batch.shard, batch.first, len(batch)) == ("x", 0, len(payloads))
    assert b"".join(framed(batch)) == data
    begins = [0, *itertools.accumulate(len(one) + 16 for one in payloads)]
    assert batch.numbers.tolist() == list(range(len(payloads)))
    assert batch.offsets.tolist() == begins[:-1]
    for row, record in enumerate(batch.records()):
        assert record == batch.record(row)
        assert (record.number, record.offset) == (row, begins[row])
        assert bytes(record.payload) == payloads[row]


@pytest.mark.parametrize("compress", [bytes, zlib.compress])
def test_records_around_and_beyond_the_size_of_the_buffer(
    compress: Callable[[bytes], bytes],
) -> None:
    some = [BUFFER_BYTES >> by for by in range(4)]
    sizes = [*(size - less for size in some for less in (15, 16, 17, 0)), 3 * BUFFER_BYTES, 7, 0]
    payloads = [bytes([number]) * size for number, size in enumerate(sizes)]
    batches = batches_of(compress(frame(*payloads)))
    assert b"".join(itertools.chain.from_iterable(map(framed, batches))) == frame(*payloads)
    offsets = np.concatenate([one.offsets for one in batches])
    assert np.diff(offsets).tolist() == [size + 16 for size in sizes[:-1]]
    assert np.concatenate([one.numbers for one in batches]).tolist() == list(range(len(sizes)))


def test_batches_are_of_some_thousand_small_records_and_some_large_ones() -> None:
    small = batches_of(frame(b"x" * 600) * 20_000)
    assert max(map(len, small)) > 3000
    large = batches_of(frame(b"x" * 100_000) * 60)
    assert max(map(len, large)) >= 16


def test_a_damage_is_reported_between_the_records_before_it_and_those_behind() -> None:
    payloads = [b"%d" % number * 50 for number in range(9)]
    data = bytearray(frame(*payloads))
    begins = [0, *itertools.accumulate(len(one) + 16 for one in payloads)]
    data[begins[2] + 20] ^= 1  # data
    data[begins[3] + 20] ^= 1
    data[begins[6]] ^= 1  # a length
    events: list[tuple[int, int] | DamageKind] = []
    for batch in walk(io.BytesIO(data), "x", len(data)):
        if isinstance(batch, Damage):
            events.append(batch.kind)
            continue
        events.append((batch.first, len(batch)))
        assert framed(batch) == [frame(payloads[number]) for number in batch.numbers]
        assert batch.offsets.tolist() == [begins[number] for number in batch.numbers]
    assert events == [
        *((0, 2), DamageKind.DATA_CRC, DamageKind.DATA_CRC),
        *((4, 2), DamageKind.LENGTH_CRC, (7, 2)),
    ]


@pytest.mark.parametrize("before", [0, 3, 20, 40])
def test_the_limit_is_the_same_wherever_a_record_lies(before: int) -> None:
    """Also where it is in memory whole, with others."""
    data = frame(*[b"a" * 6_000] * before, b"b" * 9_000, b"c" * 70)
    found = list(walk(io.BytesIO(data), "x", len(data), 8_000))
    (damage,) = (one for one in found if isinstance(one, Damage))
    assert (damage.kind, damage.record) == (DamageKind.OVERSIZE, before)
    numbers = [n for one in found if isinstance(one, RecordBatch) for n in one.numbers]
    assert numbers == [*range(before), before + 1]


def test_batches_that_are_kept_are_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "s.tfrecord"
    path.write_bytes(frame(*(bytes([n]) * 300_000 for n in range(60))))
    kept = list(read_record_batches(path))
    assert len(kept) > 5
    assert b"".join(b"".join(framed(one)) for one in kept) == path.read_bytes()


def test_who_wants_one_record_of_a_long_shard_reads_little() -> None:
    stream = io.BytesIO(frame(b"x" * 1000) * 10_000)
    next(walk(stream, "x"))
    assert stream.tell() <= 1 << 18
