"""Reading on behind a damage, finding headers, and sharing a shard among readers."""

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


def header(length: int) -> bytes:
    data = length.to_bytes(8, "little")
    return data + masked_crc32c(data).to_bytes(4, "little")


def walk(
    data: bytes, *, sized: bool = True, limit: int | None = None
) -> tuple[list[tuple[int, int, bytes]], list[Damage]]:
    found = list(reader.walk(io.BytesIO(data), "x", len(data) if sized else None, limit))
    damages = [one for one in found if isinstance(one, Damage)]
    batches = [one for one in found if isinstance(one, RecordBatch)]
    records = [
        (one.number, one.offset, bytes(one.payload)) for batch in batches for one in batch.records()
    ]
    return records, damages


def reported(damages: list[Damage]) -> list[tuple[DamageKind, int | None, int | None, int]]:
    return [(one.kind, one.record, one.offset, one.skipped) for one in damages]


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("record", range(6))
def test_wrong_data_costs_one_record(sized: bool, record: int) -> None:
    data = flip(frame(*PAYLOADS), STARTS[record] + 12 + 5, 6)
    records, damages = walk(data, sized=sized)
    assert reported(damages) == [(DamageKind.DATA_CRC, record, STARTS[record], 0)]
    assert [number for number, _, _ in records] == [n for n in range(6) if n != record]
    assert all(offset == STARTS[number] for number, offset, _ in records)


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("byte", range(12))
@pytest.mark.parametrize("record", range(6))
def test_wrong_length_costs_one_record(sized: bool, record: int, byte: int) -> None:
    records, damages = walk(flip(frame(*PAYLOADS), STARTS[record] + byte), sized=sized)
    size = STARTS[record + 1] - STARTS[record]
    (damage,) = damages
    assert damage.kind is DamageKind.LENGTH_CRC
    assert (damage.record, damage.offset, damage.skipped) == (record, STARTS[record], size)
    assert damage.resumed is (record < 5)
    assert [payload for _, _, payload in records] == [
        payload for number, payload in enumerate(PAYLOADS) if number != record
    ]
    assert [number for number, _, _ in records] == [n for n in range(6) if n != record]


def test_a_file_of_something_else_is_not_searched() -> None:
    inside = b"PK\x03\x04" + frame(*PAYLOADS)
    records, damages = walk(inside)
    assert not records
    assert [one.kind for one in damages] == [DamageKind.FOREIGN]
    assert "zip archive" in damages[0].cause


@pytest.mark.parametrize(("length", "sized"), [(1 << 50, True), (5000, True), (5000, False)])
def test_forged_length(length: int, sized: bool) -> None:
    data = frame(*PAYLOADS[:2]) + header(length) + frame(*PAYLOADS[2:])
    records, damages = walk(data, sized=sized, limit=None if sized else 1 << 20)
    assert reported(damages) == [(DamageKind.FORGED_LENGTH, 2, STARTS[2], 12)]
    assert [payload for _, _, payload in records] == PAYLOADS


def test_what_cannot_be_held_of_a_stream_is_passed_over() -> None:
    """Which shows that it is not there."""
    data = frame(*PAYLOADS[:2]) + header(1 << 50) + frame(*PAYLOADS[2:])
    _, damages = walk(data, sized=False, limit=1 << 20)
    assert reported(damages) == [(DamageKind.TRUNCATED_RECORD, 2, STARTS[2], len(data) - STARTS[2])]


@pytest.mark.parametrize("count", [1, 8, 9, 12, 1000, 2_000_000])
def test_zeros_at_the_end(count: int) -> None:
    records, damages = walk(frame(*PAYLOADS) + bytes(count))
    assert len(records) == 6
    kind = DamageKind.TRAILING_ZEROS if count > 8 else DamageKind.TRUNCATED_HEADER
    assert reported(damages) == [(kind, 6, STARTS[6], count)]


def test_every_truncation_is_told() -> None:
    data = frame(*PAYLOADS)
    for length in range(1, len(data)):
        if length in STARTS:
            continue
        records, damages = walk(data[:length])
        whole = max(n for n, start in enumerate(STARTS) if start < length)
        assert len(records) == whole
        assert [(one.record, one.offset) for one in damages] == [(whole, STARTS[whole])], length
        kinds = {DamageKind.TRUNCATED_HEADER, DamageKind.TRUNCATED_RECORD, DamageKind.FOREIGN}
        assert damages[0].kind in kinds


def test_record_beyond_the_limit_is_passed_over() -> None:
    data = frame(b"a" * 50, b"b" * 5_000_000, b"c" * 60)
    records, damages = walk(data, limit=1000)
    assert [payload[:1] for _, _, payload in records] == [b"a", b"c"]
    assert [number for number, _, _ in records] == [0, 2]
    assert reported(damages) == [(DamageKind.OVERSIZE, 1, 66, 5_000_016)]


def test_damaged_gzip_is_told_once_and_what_came_before_is_read() -> None:
    data = gzip.compress(frame(*PAYLOADS * 500), mtime=0)
    records, damages = walk(data[: len(data) // 2], sized=False)
    assert 0 < len(records) < 3000
    assert [one.kind for one in damages] == [DamageKind.COMPRESSION]


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
def test_any_damage_is_told_and_nothing_sound_is_changed(data: st.DataObject) -> None:
    shard = bytearray(frame(*PAYLOADS))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(shard) - 1))
        shard[place] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        # So few bytes at once are searched for headers.
        patch.setattr("tfod.tfrecord.framing._BLOCK", data.draw(st.integers(1, 40)))
        records, damages = walk(bytes(shard))
    assert {payload for _, _, payload in records} <= set(PAYLOADS)
    assert len(records) == 6 or damages
    offsets = [offset for _, offset, _ in records]
    assert offsets == sorted(offsets)


@given(st.binary(max_size=300), st.lists(st.integers(0, 1 << 41), max_size=4))
def test_headers_are_found_as_one_by_one(noise: bytes, lengths: list[int]) -> None:
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
    records, damages = walk(flip(data, 9))
    assert reported(damages) == [(DamageKind.LENGTH_CRC, 0, 0, 16 + 0x178)]
    assert [payload for _, _, payload in records] == PAYLOADS


def test_a_file_that_became_shorter_is_told() -> None:
    data = frame(*PAYLOADS)
    stream = io.BytesIO(data[: STARTS[4]])
    batch, damage = reader.walk(stream, "x", len(data))
    assert isinstance(batch, RecordBatch) and len(batch) == 4
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.record) == (DamageKind.TRUNCATED_HEADER, 4)
