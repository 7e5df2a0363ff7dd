"""Whatever the bytes: a report, never an exception, in little memory; test_linear counts steps."""

from __future__ import annotations

import gzip
import json
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.report import Report
from tfod.checker.reporters.html import render_html
from tfod.checker.reporters.junit import render_junit
from tfod.checker.reporters.text import render_text
from tfod.tfrecord.framing import masked_crc32c
from tfod.tfrecord.storage.archive import ZipLimits

from tests.checker.reports import VALIDATOR
from tests.conftest import examples
from tests.mutants.sound import LABEL_MAP, flip, frame, png, record, shard
from tests.zip_forge import Item, forge

MIB = 1 << 20
PAYLOADS = tuple(record(f"{n}.png", encoded=png((2 + n, 2)), width=2 + n, height=2) for n in (0, 1))
SHARD = shard(*PAYLOADS)
GZIP = gzip.compress(SHARD, mtime=0)
GZIP_HEAD = 10  # of which neither time nor system matter to anybody
ZIP = forge(Item("a.record", SHARD), Item("label_map.pbtxt", LABEL_MAP), Item("x/b.png", png()))
HEAD, FOOT = 12, 4
_known: set[frozenset[str]] = set()
quick = examples(120)


def check_bytes(folder: Path, name: str, data: bytes, **options: Any) -> Report:
    """Check a file; the report is JSON by the schema."""
    path = folder / name
    path.write_bytes(data)
    return check_path(path, **options)


def check_path(path: Path, **options: Any) -> Report:
    report = check_sources([str(path)], Options(**options))
    text = json.dumps(report.to_json(), allow_nan=False)
    codes = frozenset(report.counts.by_code)
    if codes not in _known:  # most reports are alike
        _known.add(codes)
        VALIDATOR.validate(json.loads(text))
        assert render_text(report, color=False)
        assert render_junit(report)
        assert render_html(report, [])
    return report


def framing() -> Iterator[int]:
    """Places of the bytes of headers and checksums."""
    start = 0
    for payload in PAYLOADS:
        end = start + HEAD + len(payload)
        yield from range(start, start + HEAD)
        yield from range(end, end + FOOT)
        start = end + FOOT


def record_at(place: int) -> tuple[int, int]:
    """Number and offset of the record that a byte belongs to."""
    first = len(frame(PAYLOADS[0]))
    return (0, 0) if place < first else (1, first)


@pytest.fixture
def options() -> dict[str, Any]:
    return {"profile": READY["tf_detection_api"]}


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.slow)])
def step(request: pytest.FixtureRequest) -> int:
    """Every fifth byte, or every one."""
    found: int = request.param
    return found


def test_every_bit_of_the_framing_and_one_of_other_bytes(
    tmp_path: Path, options: dict[str, Any], step: int
) -> None:
    every = frozenset(framing())
    for place in sorted({*every, *range(0, len(SHARD), step)}):
        for bit in range(8) if place in every else (place % 8,):
            report = check_bytes(tmp_path, "a.record", flip(SHARD, place, bit), **options)
            assert not report.valid, (place, bit)
            found = [one for one in report.findings if one.code.startswith("TFR")]
            if found[0].code != "TFR001":
                assert (found[0].record, found[0].offset) == record_at(place), (place, bit)
            # What the other record holds is checked all the same.
            assert report.counts.records >= (0 if found[0].code == "TFR001" else 1)


def test_truncations(tmp_path: Path, options: dict[str, Any], step: int) -> None:
    boundary = len(frame(PAYLOADS[0]))
    for length in sorted({*range(0, len(SHARD), step), boundary - 1, boundary, boundary + 1}):
        report = check_bytes(tmp_path, "a.record", SHARD[:length], **options)
        assert report.valid == (length == boundary), length
        assert report.counts.records == (length >= boundary), length


def test_bytes_of_a_compressed_shard(tmp_path: Path, options: dict[str, Any], step: int) -> None:
    for place in range(0, len(GZIP), step):
        flipped = flip(GZIP, place, place % 8)
        report = check_bytes(tmp_path, "a.record.gz", flipped, **options)
        assert not report.valid or place < GZIP_HEAD or is_the_same(flipped), place
    for length in range(0, len(GZIP), 3 * step):
        assert not check_bytes(tmp_path, "a.record.gz", GZIP[:length], **options).valid, length


def is_the_same(data: bytes) -> bool:
    """Not every bit matters: some pad a byte."""
    return gzip.decompress(data) == SHARD


def test_bytes_of_an_archive(tmp_path: Path, step: int) -> None:
    for place in range(0, len(ZIP), step):
        check_bytes(tmp_path, "a.zip", flip(ZIP, place, place % 8))
    for length in range(0, len(ZIP), 5 * step):
        assert not check_bytes(tmp_path, "a.zip", ZIP[:length]).valid, length


# Anything at all

_runs = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"\0" * 12, b"\xff" * 8, b"\n\x80", SHARD[:HEAD], b"'", b"}", b"item {"]),
    st.integers(0, 64).map(lambda bit: (1 << bit).to_bytes(9, "little")[:8]),
)
_place = st.floats(0, 1, exclude_max=True)
_changes = st.lists(
    st.tuples(st.sampled_from(["insert", "delete", "repeat", "write", "splice"]), _place, _place,
              _runs),
    min_size=1, max_size=4,
)  # fmt: skip


def changed(data: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    """Byte runs inserted, deleted, repeated, written over, or taken from elsewhere."""
    for what, where, other, run in changes:
        place, far = int(where * len(data)), int(other * len(data))
        length = 1 + far % 40
        piece = data[far : far + length]
        new, old = {
            "insert": (run, 0),
            "delete": (b"", length),
            "repeat": (data[place : place + length] * 2, length),
            "write": (run, len(run)),
            "splice": (piece, length),
        }[what]
        data = data[:place] + new + data[place + old :]
    return data


PLACES: dict[str, Callable[[list[Any]], bytes]] = {
    "a.record": lambda how: changed(SHARD, how),
    "b.record": lambda how: shard(changed(PAYLOADS[0], how), PAYLOADS[1]),  # right checksums
    "a.record.gz": lambda how: changed(GZIP, how),
    "b.record.gz": lambda how: gzip.compress(changed(SHARD, how), 1),
    "a.zip": lambda how: changed(ZIP, how),
    "b.zip": lambda how: forge(
        Item("a.record", changed(SHARD, how)), Item("label_map.pbtxt", changed(LABEL_MAP, how))
    ),
}
"""What is made of changes, by the name of the file."""


@pytest.mark.parametrize("name", PLACES)
@quick
@given(
    changes=_changes,
    profile=st.sampled_from([None, *READY.values()]),
    decode=st.sampled_from([None, 0]),
)
def test_changed_bytes(
    tmp_path: Path, name: str, changes: list[Any], profile: Any, decode: int | None
) -> None:
    check_bytes(tmp_path, name, PLACES[name](changes), profile=profile, decode=decode)


@quick
@given(changes=_changes)
def test_changed_label_maps(tmp_path: Path, changes: list[Any]) -> None:
    (tmp_path / "label_map.pbtxt").write_bytes(changed(LABEL_MAP, changes))
    check_bytes(tmp_path, "a.record", SHARD)


@quick
@given(data=st.binary(max_size=200), ending=st.sampled_from(["record", "record.gz", "zip", "data"]))
def test_any_bytes(tmp_path: Path, data: bytes, ending: str) -> None:
    check_bytes(tmp_path, f"a.{ending}", data)


# Memory


def forged(length: int, size: int = 1000) -> bytes:
    """A header that claims so many bytes, with its right checksum, and a few bytes behind it."""
    head = struct.pack("<Q", length)
    return head + struct.pack("<I", masked_crc32c(head)) + bytes(range(1, 101)) * (size // 100)


def peak_of(folder: Path, name: str, data: bytes, **options: Any) -> int:
    check_bytes(folder, name, data, **options)  # once before, for what is loaded only once
    tracemalloc.start()
    try:
        check_bytes(folder, name, data, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, 200 * MIB, 3000], ids=hex)
@pytest.mark.parametrize("how", ["plain", "gzip", "zlib", "zip"])
def test_a_forged_length_takes_no_memory(tmp_path: Path, length: int, how: str) -> None:
    """Where the length of the data is known, and where nobody knows it."""
    data = forged(length)
    name, data = {
        "plain": ("a.record", data),
        "gzip": ("a.record.gz", gzip.compress(data)),
        "zlib": ("a.record.zz", zlib.compress(data)),
        "zip": ("a.zip", forge(Item("a.record", data))),
    }[how]
    assert peak_of(tmp_path, name, data) < 8 * MIB
    assert not check_bytes(tmp_path, name, data).valid


def test_a_record_beyond_the_limit_is_not_held(tmp_path: Path) -> None:
    large = shard(record(encoded=png() + bytes(40 * MIB)))
    packed = gzip.compress(large, 1)
    for name, data in (("a.record", large), ("a.record.gz", packed)):
        path = tmp_path / name
        path.write_bytes(data)
        tracemalloc.start()
        report = check_path(path, max_record_bytes=MIB)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.counts.by_code.keys() >= {"TFR012"}
        assert peak < 16 * MIB


def test_lengths_within_a_record_take_no_memory(tmp_path: Path) -> None:
    """Of features, lists and values that claim more than there is."""
    claims = b"\x80\x80\x80\x80\x04"
    for start in (b"\n", b"\n\x10\n", b"\n\x10\n\x08\n", b"\n\x10\n\x0e\n\x01a\x12", b"\x1a"):
        data = shard(start + claims + bytes(10))
        peak = peak_of(tmp_path, "a.record", data, profile=READY["cvat"])
        assert peak < 8 * MIB


def test_bombs_stop(tmp_path: Path) -> None:
    zeros = forge(Item("a.record", bytes(64 * MIB)))
    assert peak_of(tmp_path, "a.zip", zeros) < 16 * MIB
    limits = ZipLimits(total_bytes=MIB)
    report = check_bytes(tmp_path, "a.zip", forge(Item("a.record", os.urandom(2 * MIB))),
                   archive_limits=limits)  # fmt: skip
    assert "ZIP007" in report.counts.by_code
