"""For any bytes: a report, never an exception, in little memory; test_linear counts steps."""

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

from tests.checker.report_schema import VALIDATOR
from tests.conftest import examples
from tests.mutants.sound import LABEL_MAP, flip, frame, png, record, shard
from tests.zip_forge import Item, forge

MIB = 1 << 20
PAYLOADS = tuple(record(f"{n}.png", encoded=png((2 + n, 2)), width=2 + n, height=2) for n in (0, 1))
SHARD, BOUNDARY = shard(*PAYLOADS), len(frame(PAYLOADS[0]))
GZIP = gzip.compress(SHARD, mtime=0)
GZIP_HEAD = 10  # with the time and the system, which readers ignore
ZIP = forge(Item("a.record", SHARD), Item("label_map.pbtxt", LABEL_MAP), Item("x/b.png", png()))
HEAD, FOOT = 12, 4
TF = {"profile": READY["tf_detection_api"]}
_known: set[frozenset[str]] = set()
quick = examples(120)


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Report]:
    """Write a file and check it; the report is JSON by the schema."""

    def check_bytes(name: str, data: bytes, **options: Any) -> Report:
        (tmp_path / name).write_bytes(data)
        report = check_sources([str(tmp_path / name)], Options(**options))
        text = json.dumps(report.to_json(), allow_nan=False)
        codes = frozenset(report.counts.by_code)
        if codes not in _known:  # most reports are alike
            _known.add(codes)
            VALIDATOR.validate(json.loads(text))
            assert render_text(report, color=False)
            assert render_junit(report)
            assert render_html(report, [])
        return report

    return check_bytes


@pytest.fixture
def peak_of(check: Any) -> Callable[..., tuple[int, Report]]:
    """Return the most memory that a check takes, and its report."""

    def peak(*arguments: Any, **options: Any) -> tuple[int, Report]:
        check(*arguments, **options)  # loads modules
        tracemalloc.start()
        try:
            report = check(*arguments, **options)
            return tracemalloc.get_traced_memory()[1], report
        finally:
            tracemalloc.stop()

    return peak


def framing() -> Iterator[int]:
    """Offsets of the bytes of headers and checksums."""
    for start, payload in zip((0, BOUNDARY), PAYLOADS, strict=True):
        end = start + HEAD + len(payload)
        yield from range(start, start + HEAD)
        yield from range(end, end + FOOT)


@pytest.fixture(params=[5, pytest.param(1, marks=pytest.mark.slow)])
def step(request: pytest.FixtureRequest) -> int:
    """Every fifth byte, or every one."""
    return request.param


def test_every_bit_of_the_framing_and_one_of_other_bytes(check: Any, step: int) -> None:
    every = frozenset(framing())
    for offset in sorted({*every, *range(0, len(SHARD), step)}):
        for bit in range(8) if offset in every else (offset % 8,):
            report = check("a.record", flip(SHARD, offset, bit), **TF)
            assert not report.valid, (offset, bit)
            (first, *_) = [one for one in report.findings if one.code.startswith("TFR")]
            if first.code != "TFR001":
                damaged = (0, 0) if offset < BOUNDARY else (1, BOUNDARY)
                assert (first.record, first.offset) == damaged, (offset, bit)
                # The other record is checked.
                assert report.counts.records >= 1


def test_truncations(check: Any, step: int) -> None:
    for length in sorted({*range(0, len(SHARD), step), BOUNDARY - 1, BOUNDARY, BOUNDARY + 1}):
        report = check("a.record", SHARD[:length], **TF)
        assert report.valid == (length == BOUNDARY), length
        assert report.counts.records == (length >= BOUNDARY), length


def test_bytes_of_a_compressed_shard(check: Any, step: int) -> None:
    for offset in range(0, len(GZIP), step):
        flipped = flip(GZIP, offset, offset % 8)
        is_valid = check("a.record.gz", flipped, **TF).valid
        # Some bits only pad a byte.
        assert not is_valid or offset < GZIP_HEAD or gzip.decompress(flipped) == SHARD, offset
    for length in range(0, len(GZIP), 3 * step):
        assert not check("a.record.gz", GZIP[:length], **TF).valid, length


def test_bytes_of_an_archive(check: Any, step: int) -> None:
    for offset in range(0, len(ZIP), step):
        check("a.zip", flip(ZIP, offset, offset % 8))
    for length in range(0, len(ZIP), 5 * step):
        assert not check("a.zip", ZIP[:length]).valid, length


_runs = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"\0" * 12, b"\xff" * 8, b"\n\x80", SHARD[:HEAD], b"'", b"}", b"item {"]),
    st.integers(0, 64).map(lambda bit: (1 << bit).to_bytes(9, "little")[:8]),
)
_offset = st.floats(0, 1, exclude_max=True)
_kind = st.sampled_from(["insert", "delete", "repeat", "write", "splice"])
_changes = st.lists(st.tuples(_kind, _offset, _offset, _runs), min_size=1, max_size=4)


def changed(data: bytes, changes: list[tuple[str, float, float, bytes]]) -> bytes:
    """Insert, delete, repeat, overwrite or copy runs of bytes."""
    for kind, where, other, run in changes:
        start, far = int(where * len(data)), int(other * len(data))
        length = 1 + far % 40
        new, old = {
            "insert": (run, 0),
            "delete": (b"", length),
            "repeat": (data[start : start + length] * 2, length),
            "write": (run, len(run)),
            "splice": (data[far : far + length], length),
        }[kind]
        data = data[:start] + new + data[start + old :]
    return data


FILES: dict[str, Callable[[list[Any]], bytes]] = {
    "a.record": lambda how: changed(SHARD, how),
    "b.record": lambda how: shard(changed(PAYLOADS[0], how), PAYLOADS[1]),  # right checksums
    "a.record.gz": lambda how: changed(GZIP, how),
    "b.record.gz": lambda how: gzip.compress(changed(SHARD, how), 1),
    "a.zip": lambda how: changed(ZIP, how),
    "b.zip": lambda how: forge(
        Item("a.record", changed(SHARD, how)), Item("label_map.pbtxt", changed(LABEL_MAP, how))
    ),
}
_profiles = st.sampled_from([None, *READY.values()])


@pytest.mark.parametrize("name", FILES)
@quick
@given(changes=_changes, profile=_profiles, decode=st.sampled_from([None, 0]))
def test_changed_bytes(check: Any, name: str, changes: Any, profile: Any, decode: Any) -> None:
    check(name, FILES[name](changes), profile=profile, decode=decode)


@quick
@given(changes=_changes)
def test_changed_label_maps(check: Any, tmp_path: Path, changes: Any) -> None:
    (tmp_path / "label_map.pbtxt").write_bytes(changed(LABEL_MAP, changes))
    check("a.record", SHARD)


@quick
@given(data=st.binary(max_size=200), ending=st.sampled_from(["record", "record.gz", "zip", "data"]))
def test_any_bytes(check: Any, data: bytes, ending: str) -> None:
    check(f"a.{ending}", data)


@pytest.mark.parametrize("length", [1 << 40, (1 << 64) - 1, 200 * MIB, 3000], ids=hex)
def test_a_forged_length_takes_no_memory(peak_of: Any, length: int) -> None:
    """A valid header with a large length, and few bytes, in files and in streams."""
    head = struct.pack("<Q", length)
    data = head + struct.pack("<I", masked_crc32c(head)) + bytes(range(1, 101)) * 10
    for name, content in (
        ("a.record", data),
        ("a.record.gz", gzip.compress(data)),
        ("a.record.zz", zlib.compress(data)),
        ("a.zip", forge(Item("a.record", data))),
    ):
        peak, report = peak_of(name, content)
        assert peak < 8 * MIB and not report.valid


def test_a_record_above_the_limit_is_not_in_memory(peak_of: Any) -> None:
    large = shard(record(encoded=png() + bytes(40 * MIB)))
    for name, data in (("a.record", large), ("a.record.gz", gzip.compress(large, 1))):
        peak, report = peak_of(name, data, max_record_bytes=MIB)
        assert report.counts.by_code.keys() >= {"TFR012"} and peak < 16 * MIB


@pytest.mark.parametrize(
    "start", [b"\n", b"\n\x10\n", b"\n\x10\n\x08\n", b"\n\x10\n\x0e\n\x01a\x12", b"\x1a"]
)
def test_lengths_within_a_record_take_no_memory(peak_of: Any, start: bytes) -> None:
    """Features, lists and values that claim to be longer than the record."""
    data = shard(start + b"\x80\x80\x80\x80\x04" + bytes(10))
    assert peak_of("a.record", data, profile=READY["cvat"])[0] < 8 * MIB


def test_bombs_stop(peak_of: Any, check: Any) -> None:
    assert peak_of("a.zip", forge(Item("a.record", bytes(64 * MIB))))[0] < 16 * MIB
    data, limits = forge(Item("a.record", os.urandom(2 * MIB))), ZipLimits(total_bytes=MIB)
    assert "ZIP007" in check("a.zip", data, archive_limits=limits).counts.by_code
