"""Results of shards, in their order: bounded, truly counted, and the same whoever made them."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.checker import check as check_module
from tfod.checker.analysis import decoding
from tfod.checker.analysis import result as result_module
from tfod.checker.analysis.decoding import MaxDecoded
from tfod.checker.analysis.result import MAX_COUNTED_KEYS, add_bounded
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Finding, Findings, Severity, select_listed
from tfod.checker.profiles.profile import OFF, READY
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.text import render_text
from tfod.checker.reporters.wording import format_verdict
from tfod.checker.rules.registry import all_rules
from tfod.sources.resolver import resolve

from tests.mutants.sound import flip, jpeg, record
from tests.mutants.sound import shard as shard_of
from tests.records import encode, frame, image, objects, write_shard

BOX = (0.25, 0.25, 0.5, 0.75)
INFO, WARNING, ERROR = Severity
RANK = attrgetter("rank")
HANGING = (-0.5, 0.25, 1.5, 2.25)
IN_PIXELS = (10.0, 5.0, 20.0, 15.0)
NAMES = {"TFR002": ERROR, "BOX007": OFF, "BOX010": WARNING, "BOX010:limit": INFO, "NAM010": INFO}


@given(st.lists(st.tuples(st.sampled_from([*NAMES]), st.sampled_from("ab")), max_size=30))
def test_findings_of_parts_are_those_of_the_whole(fired: list[tuple[str, str]]) -> None:
    whole, parts = Findings(4, NAMES), Findings(4, NAMES)
    for name, shard in fired:
        code, _, case = name.partition(":")
        part = Findings(4, NAMES)
        for findings in (whole, part):
            findings.add(all_rules()[code], [Finding(message="m", shard=shard, case=case)])
        parts.merge(part)
    if "NAM010" not in {name for name, _ in fired}:  # which speaks once, of each shard
        assert (parts.counts, parts.worst, parts.names) == (whole.counts, whole.worst, whole.names)
        assert select_listed(parts, ["a", "b"]) == select_listed(whole, ["a", "b"])
    kept = {
        pair if all_rules()[pair[0][:6]].once else number
        for number, pair in enumerate(fired)
        if NAMES[pair[0]] is not OFF
    }
    assert whole.total == len(kept)
    assert len(select_listed(whole, ["a", "b"])) == min(4, whole.total)
    assert whole.names == {name for name, _ in fired}
    for code, worst in whole.worst.items():
        assert worst is max((NAMES[one] for one in whole.names if one[:6] == code), key=RANK)


def test_of_too_many_kinds_the_first_are_counted() -> None:
    counts: Counter[int] = Counter()
    for number in range(MAX_COUNTED_KEYS + 10):
        add_bounded(counts, {number: 1})
    add_bounded(counts, {0: 5, MAX_COUNTED_KEYS + 5: 5})
    assert len(counts) == MAX_COUNTED_KEYS and counts[0] == 6


def shard(folder: Path, name: str, *boxes: tuple[float, ...]) -> str:
    """A record for each box."""
    records = [
        encode(image(f"{number}.jpg", 20, 40) | objects([one], ["cat"], [1]))
        for number, one in enumerate(boxes)
    ]
    return write_shard(folder, name, *records)


def test_boxes_in_pixels_are_told_from_those_that_hang_over_the_edge(tmp_path: Path) -> None:
    """Each by itself, whatever is around it, and beyond what is listed."""
    shard(tmp_path, "fractions", *[BOX] * 20, *[HANGING] * 9, *[IN_PIXELS] * 2)
    shard(tmp_path, "pixels", HANGING, HANGING, BOX)
    report = check_sources([str(tmp_path)], Options(profile=READY["cvat"], max_findings=12))
    fractions, pixels = (
        {code: report.counts.by_shard[str(tmp_path / f"{name}.tfrecord")].get(code)
         for code in ("BOX003", "BOX005")}
        for name in ("fractions", "pixels")
    )  # fmt: skip
    assert fractions == {"BOX003": 9, "BOX005": 2}
    assert pixels == {"BOX003": 2, "BOX005": None}
    (message,) = {one.message for one in report.findings if one.code == "BOX003"}
    assert "by 1.25 of" in message and "xmin -0.5, ymin 0.25, xmax 1.5, ymax 2.25" in message
    off = Options(profile=READY["cvat"], severities={"BOX003": OFF})
    assert "BOX003" not in check_sources([str(tmp_path)], off).counts.by_code


def test_an_inverted_box_that_hangs_over_is_inverted(tmp_path: Path) -> None:
    path = shard(tmp_path, "s", BOX, BOX, (2.25, 0.25, 0.5, 0.75))
    report = check_sources([path], Options(profile=READY["cvat"]))
    assert {"BOX003": 1, "BOX006": 1}.items() <= report.counts.by_code.items()


def test_more_damages_than_records_between_them(tmp_path: Path) -> None:
    """They are told in the order of the records, however many there are."""
    sound = encode(image("a.jpg") | objects([BOX], ["cat"], [1]))
    damaged = flip(frame(b"x"), -1)
    (tmp_path / "a.tfrecord").write_bytes((frame(sound) + damaged * 3000) + frame(sound) + damaged)
    report = check_sources([str(tmp_path)], Options(max_findings=5000))
    records = [one.record for one in report.findings if one.code == "TFR004"]
    assert records == [*range(1, 3001), 3002]
    assert report.counts.records == 2


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Shards of 260 images each, of which image 250 is damaged."""
    sound, cut = jpeg(quality=95), jpeg(quality=95)
    cut = cut[: len(cut) // 2] + b"\xff\xd9"
    records = [record(f"{n}.jpg", encoded=cut if n == 250 else sound) for n in range(260)]
    for name in ("train", "val"):
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of(*records))
    return tmp_path


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("requested", "max_bytes", "decoded", "reason"),
    [
        ("auto", 1 << 30, 260, ""),
        ("auto", 1000, 200, "spread over all shards"),
        (0, 1 << 30, 0, "as requested"),
        (2, 1 << 30, 2, "spread over all shards"),
        (259, 1 << 30, 259, "spread over all shards"),
        (260, 1000, 260, ""),
        (1000, 1000, 260, ""),
        (None, 1000, 260, ""),
    ],
)
def test_which_images_are_decoded(
    large: Path,
    monkeypatch: pytest.MonkeyPatch,
    requested: MaxDecoded,
    max_bytes: int,
    decoded: int,
    reason: str,
    threads: int,
) -> None:
    monkeypatch.setattr(decoding.os, "cpu_count", lambda: threads)
    monkeypatch.setattr(decoding, "MAX_BYTES_TO_DECODE", max_bytes)
    monkeypatch.setattr(decoding, "_SAMPLE", 399)  # of two shards
    report = check_sources([str(large)], Options(decode=requested))
    assert [one.decoded for one in report.shards] == [decoded, decoded]
    assert report.undecoded.reason == reason
    if not reason:
        assert report.counts.by_code["IMG003"] == 2
    verdict = format_verdict(report)
    assert (f"; {2 * decoded} of 520 images decoded, {reason}" in verdict) is bool(reason)
    assert ("--decode all" in render_text(report, color=False)) is bool(reason)


@pytest.mark.parametrize(
    ("requested", "sizes", "expected"),
    [
        ("auto", [200_000_000], None),
        ("auto", [], None),
        ("auto", [200_000_000, 1], 500),
        ("auto", [10**9], 1000),
        ("auto", [10**9] * 3, 333),
        ("auto", [10**9] * 6, 200),
        ("auto", [None], 1000),  # a server does not tell it
        (7, [1], 7),
        (None, [10**9], None),
        (0, [1], 0),
    ],
)
def test_the_number_of_images_depends_on_all_shards(
    requested: MaxDecoded, sizes: list[int | None], expected: int | None
) -> None:
    chosen = decoding.choose_decoding(requested, sizes)
    assert chosen == (expected, requested is not None)


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_a_sample_is_spread_unless_the_length_is_unknown(tmp_path: Path, compression: str) -> None:
    """A damaged image is in each tenth of the shard."""
    cut = jpeg(quality=95)
    cut = cut[: len(cut) // 2] + b"\xff\xd9"
    data = shard_of(*(record(f"{n}.jpg", encoded=cut) for n in range(100)))
    path = tmp_path / "a.tfrecord"
    path.write_bytes(gzip.compress(data) if compression else data)
    report = check_sources([str(path)], Options(decode=30))
    records = [one.record for one in report.findings if one.code == "IMG003"]
    assert report.counts.decoded == len(records) == 30
    if compression:
        assert records == [*range(30)]
        assert report.undecoded.reason == "the first ones of each shard"
    else:
        assert {number // 10 for number in records} == {*range(10)}
        (tmp_path / "b.tfrecord").write_bytes(gzip.compress(data))
        both = check_sources([str(tmp_path)], Options(decode=30)).undecoded.reason
        assert both == "spread over all shards, but the first ones of compressed shards"


def test_processes_decode_the_same_sample(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "_MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr(decoding, "MAX_BYTES_TO_DECODE", 1000)
    monkeypatch.setattr(decoding, "_SAMPLE_PER_SHARD", 30)
    monkeypatch.setattr(decoding, "_SAMPLE", 80)
    one, two = (check_sources([str(large)], Options(jobs=jobs)) for jobs in (1, 2))
    assert [shard.decoded for shard in one.shards] == [40, 40]
    assert render_json(replace(two, duration=one.duration)) == render_json(one)


def test_an_image_of_many_pixels_in_few_bytes_is_only_decoded_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    buffer = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(buffer, "PNG")
    path.write_bytes(shard_of(record("a.png", encoded=buffer.getvalue())))
    report = check_sources([str(path)])
    assert report.counts.decoded == 0
    assert "many more pixels than bytes" in report.undecoded.reason
    assert check_sources([str(path)], Options(decode=None)).counts.decoded == 1


def test_what_is_no_image_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of(record("a.jpg", encoded=jpeg()), record("b.jpg", encoded=b"<html>")))
    report = check_sources([str(path)])
    assert (report.counts.decoded, report.undecoded.fix) == (1, "")
    assert "1 of 2 images decoded, because the others are not images" in format_verdict(report)


def test_without_pillow_the_verdict_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decoding, result_module):
        monkeypatch.setattr(module, "can_decode", lambda: False)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard_of(record("a.jpg", encoded=jpeg())))
    report = check_sources([str(path)])
    assert "; 0 of 1 image decoded, because Pillow is not installed" in format_verdict(report)
    assert "pip install Pillow" in render_text(report, color=False)


def test_a_shard_that_goes_meanwhile(tmp_path: Path) -> None:
    shard(tmp_path, "a", BOX)
    gone = Path(shard(tmp_path, "b", BOX))
    with resolve([str(tmp_path)]) as found:
        gone.unlink()
        report = check_module.check(found)
    assert [one.shard for one in report.findings if one.code == "TFR013"] == [str(gone)]
    assert report.counts.records == 1
