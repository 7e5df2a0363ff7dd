"""Reading continues after a damage, and each damage is reported with its record and its bytes."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.tfrecord import reader
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.framing import find_headers, is_record_header, masked_crc32c
from tfod.tfrecord.reader import RecordBatch

from tests.conftest import examples
from tests.mutants.sound import flip
from tests.records import frame

PAYLOADS = [bytes([number]) * (30 + 7 * number) for number in range(6)]
STARTS = [len(frame(*PAYLOADS[:count])) for count in range(len(PAYLOADS) + 1)]
DATA = frame(*PAYLOADS)
Reported = list[tuple[DamageKind, int | None, int | None, int]]


def header(length: int) -> bytes:
    data = length.to_bytes(8, "little")
    return data + masked_crc32c(data).to_bytes(4, "little")


def walk(
    data: bytes, *, sized: bool = True, limit: int | None = None
) -> tuple[list[tuple[int, int, bytes]], Reported]:
    """The records, and what is reported of the damages."""
    parts = list(reader.walk(io.BytesIO(data), "x", len(data) if sized else None, limit))
    records = [
        (record.number, record.offset, bytes(record.payload))
        for batch in parts
        if isinstance(batch, RecordBatch)
        for record in batch.records()
    ]
    damages = (one for one in parts if isinstance(one, Damage))
    return records, [(one.kind, one.record, one.offset, one.skipped) for one in damages]


def walk_parts(data: bytes) -> list[RecordBatch | Damage]:
    return list(reader.walk(io.BytesIO(data), "x", len(data)))


def all_except(record: int) -> list[tuple[int, int, bytes]]:
    return [(n, STARTS[n], PAYLOADS[n]) for n in range(6) if n != record]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("record", range(6))
def test_wrong_bytes_cost_one_record(sized: bool, record: int) -> None:
    start, end = STARTS[record], STARTS[record + 1]
    found = walk(flip(DATA, start + 12 + 5, 6), sized=sized)
    assert found == (all_except(record), [(DamageKind.DATA_CRC, record, start, 0)])
    for byte in range(12):
        found = walk(flip(DATA, start + byte), sized=sized)
        assert found == (all_except(record), [(DamageKind.LENGTH_CRC, record, start, end - start)])


def test_reading_continues_in_shards_only() -> None:
    for data, resumes in ((flip(DATA, STARTS[4]), True), (flip(DATA, STARTS[5]), False)):
        (damage,) = (one for one in walk_parts(data) if isinstance(one, Damage))
        assert damage.resumed is resumes
    (damage,) = walk_parts(b"PK\x03\x04" + DATA)
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.FOREIGN and "zip archive" in damage.cause
    # A file that became shorter.
    batch, damage = reader.walk(io.BytesIO(DATA[: STARTS[4]]), "x", len(DATA))
    assert isinstance(batch, RecordBatch) and len(batch) == 4
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.record) == (DamageKind.TRUNCATED_HEADER, 4)


@pytest.mark.parametrize(
    ("length", "sized", "kind"),
    [
        (1 << 50, True, DamageKind.FORGED_LENGTH),
        (5000, True, DamageKind.FORGED_LENGTH),
        (5000, False, DamageKind.FORGED_LENGTH),
        # The number of bytes in a stream is unknown until its end.
        (1 << 50, False, DamageKind.TRUNCATED_RECORD),
    ],
)
def test_forged_length(length: int, sized: bool, kind: DamageKind) -> None:
    data = frame(*PAYLOADS[:2]) + header(length) + frame(*PAYLOADS[2:])
    records, reported = walk(data, sized=sized, limit=None if sized else 1 << 20)
    is_forged = kind is DamageKind.FORGED_LENGTH
    assert reported == [(kind, 2, STARTS[2], 12 if is_forged else len(data) - STARTS[2])]
    assert [payload for _, _, payload in records] == PAYLOADS[: 6 if is_forged else 2]


@pytest.mark.parametrize("count", [1, 8, 9, 12, 1000, 2_000_000])
def test_zeros_at_the_end(count: int) -> None:
    kind = DamageKind.TRAILING_ZEROS if count > 8 else DamageKind.TRUNCATED_HEADER
    assert walk(DATA + bytes(count)) == (all_except(6), [(kind, 6, STARTS[6], count)])


def test_every_truncation_is_reported() -> None:
    for length in set(range(1, len(DATA))) - {*STARTS}:
        records, ((kind, record, offset, _),) = walk(DATA[:length])
        whole = max(n for n, start in enumerate(STARTS) if start < length)
        assert len(records) == whole
        assert (record, offset) == (whole, STARTS[whole]), length
        kinds = {DamageKind.TRUNCATED_HEADER, DamageKind.TRUNCATED_RECORD, DamageKind.FOREIGN}
        assert kind in kinds


def test_records_before_a_damage_of_gzip_are_read() -> None:
    data = gzip.compress(DATA * 500, mtime=0)
    records, ((kind, *_),) = walk(data[: len(data) // 2], sized=False)
    assert 0 < len(records) < 3000 and kind is DamageKind.COMPRESSION


def test_claims_allocate_nothing() -> None:
    data = header(1 << 60) + b"x" * 1000
    tracemalloc.start()
    try:
        walk(data, sized=False, limit=256 << 20)
        walk(data, sized=True)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@examples(60)
@given(st.data())
def test_any_damage_is_reported_and_no_record_is_changed(data: st.DataObject) -> None:
    shard = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(shard) - 1))
        shard[place] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        # The number of bytes that are searched for headers at once.
        patch.setattr("tfod.tfrecord.framing._BLOCK", data.draw(st.integers(1, 40)))
        records, reported = walk(bytes(shard))
    assert {payload for _, _, payload in records} <= set(PAYLOADS)
    assert len(records) == 6 or reported
    offsets = [offset for _, offset, _ in records]
    assert offsets == sorted(offsets)


@given(st.binary(max_size=300), st.lists(st.integers(0, 1 << 41), max_size=4))
def test_all_headers_are_found(noise: bytes, lengths: list[int]) -> None:
    data = noise[:100] + b"".join(header(one) + noise[:17] for one in lengths) + noise
    expected = [
        at
        for at in range(len(data) - 11)
        if is_record_header(data[at : at + 12])
        and int.from_bytes(data[at : at + 8], "little") < 1 << 40
    ]
    where, found = find_headers(np.frombuffer(data, np.uint8))
    assert where.tolist() == expected
    assert found.tolist() == [int.from_bytes(data[at : at + 8], "little") for at in expected]


def test_a_damaged_first_header_is_not_taken_for_zlib() -> None:
    data = frame(b"a" * 0x178, *PAYLOADS)
    assert data[:2] == b"\x78\x01"
    records, reported = walk(flip(data, 9))
    assert reported == [(DamageKind.LENGTH_CRC, 0, 0, 16 + 0x178)]
    assert [payload for _, _, payload in records] == PAYLOADS
