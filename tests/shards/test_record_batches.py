"""Batches are the records that the careful walk finds, and its errors."""

from __future__ import annotations

import gzip
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.errors import ShardError
from tfod.tfrecord.record_batches import read_batches
from tfod.tfrecord.records import read_records
from tfod.tfrecord.window import BUFFER_BYTES

from tests.conftest import frame


def outcome(read: Callable[[], list[bytes]]) -> list[bytes] | str:
    try:
        return read()
    except ShardError as error:
        return str(error)


def by_batches(path: Path) -> list[bytes]:
    return [
        bytes(batch.buffer[start:stop])
        for batch in read_batches(path)
        for start, stop in zip(batch.bounds, batch.bounds[1:], strict=False)
    ]


def by_records(path: Path) -> list[bytes]:
    return [frame(bytes(record.payload)) for record in read_records(path)]


def assert_equal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s.tfrecord"
        path.write_bytes(data)
        assert outcome(lambda: by_batches(path)) == outcome(lambda: by_records(path))


contents = st.lists(st.binary(max_size=40), max_size=5).map(lambda found: frame(*found))


@given(contents, st.data())
def test_any_damage_is_told_as_the_careful_walk_tells_it(
    content: bytes, data: st.DataObject
) -> None:
    assert_equal(content)
    assert_equal(content[: data.draw(st.integers(0, len(content)))])
    if content:
        place = data.draw(st.integers(0, len(content) - 1))
        flipped = content[place] ^ data.draw(st.integers(1, 255))
        assert_equal(content[:place] + bytes((flipped,)) + content[place + 1 :])
    assert_equal(content + data.draw(st.binary(max_size=30)))


@given(contents, st.data())
def test_compressed_shards_too(content: bytes, data: st.DataObject) -> None:
    for compress in (gzip.compress, zlib.compress):
        compressed = compress(content)
        assert_equal(compressed)
        assert_equal(compress(content[: data.draw(st.integers(0, len(content)))]))
        assert_equal(compressed[: data.draw(st.integers(1, len(compressed)))])


@pytest.mark.parametrize("compress", [bytes, zlib.compress])
def test_records_around_and_beyond_the_size_of_the_buffer(
    tmp_path: Path, compress: Callable[[bytes], bytes]
) -> None:
    sizes = (BUFFER_BYTES - 16, 0, BUFFER_BYTES - 17, 1, 3 * BUFFER_BYTES + 5, 7, BUFFER_BYTES)
    path = tmp_path / "s.tfrecord"
    path.write_bytes(compress(frame(*(bytes([n]) * size for n, size in enumerate(sizes)))))
    assert by_batches(path) == by_records(path)
    assert [len(one) - 16 for one in by_batches(path)] == list(sizes)


def test_a_forged_length_takes_no_memory(tmp_path: Path) -> None:
    from tfod.tfrecord.records import masked_crc32c

    length = (1 << 40).to_bytes(8, "little")
    forged = length + masked_crc32c(length).to_bytes(4, "little")
    assert_equal(frame(b"x") + forged + bytes(3 * BUFFER_BYTES))


def test_batches_that_are_kept_are_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "s.tfrecord"
    path.write_bytes(frame(*(bytes([n]) * 300_000 for n in range(12))))
    kept = list(read_batches(path))
    assert len(kept) > 5
    joined = b"".join(bytes(one.buffer[: one.bounds[-1]]) for one in kept)
    assert joined == path.read_bytes()
