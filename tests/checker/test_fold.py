"""Results of shards in order: limited, counted, and the same from several processes."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.checker import check as check_module
from tfod.checker.analysis import decoding
from tfod.checker.analysis import result as result_module
from tfod.checker.analysis.result import MAX_COUNTED_KEYS, add_bounded
from tfod.checker.check import Options, check_sources, check_steps
from tfod.checker.finding import Finding, Findings, Severity, select_listed
from tfod.checker.profiles.profile import OFF, READY
from tfod.checker.report import Report
from tfod.checker.reporters.json import render_json
from tfod.checker.reporters.text import render_text
from tfod.checker.reporters.wording import format_verdict
from tfod.checker.rules.registry import all_rules
from tfod.sources.resolver import resolve

from tests.mutants.sound import flip, jpeg, record, shard
from tests.records import encode, frame, image, objects, write_shard

BOX, HANGING = (0.25, 0.25, 0.5, 0.75), (-0.5, 0.25, 1.5, 2.25)
IN_PIXELS = (10.0, 5.0, 20.0, 15.0)
INFO, WARNING, ERROR = Severity
NAMES = {"TFR002": ERROR, "BOX007": OFF, "BOX010": WARNING, "BOX010:limit": INFO, "NAM010": INFO}
CVAT = Options(profile=READY["cvat"])
# Half of a JPEG of 95 % quality, with an end marker.
CUT = jpeg(quality=95)[: len(jpeg(quality=95)) // 2] + b"\xff\xd9"


@given(st.lists(st.tuples(st.sampled_from([*NAMES]), st.sampled_from("ab")), max_size=30))
def test_findings_of_parts_are_those_of_the_whole(fired: list[tuple[str, str]]) -> None:
    whole, parts = Findings(4, NAMES), Findings(4, NAMES)
    for name, source in fired:
        code, _, case = name.partition(":")
        part = Findings(4, NAMES)
        for findings in (whole, part):
            findings.add(all_rules()[code], [Finding(message="m", shard=source, case=case)])
        parts.merge(part)
    if "NAM010" not in {name for name, _ in fired}:  # which has one finding per shard
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
        levels = (NAMES[one] for one in whole.names if one[:6] == code)
        assert worst is max(levels, key=attrgetter("rank"))


def test_only_the_first_of_too_many_keys_are_counted() -> None:
    counts: Counter[int] = Counter()
    for number in range(MAX_COUNTED_KEYS + 10):
        add_bounded(counts, {number: 1})
    add_bounded(counts, {0: 5, MAX_COUNTED_KEYS + 5: 5})
    assert len(counts) == MAX_COUNTED_KEYS and counts[0] == 6


def write_boxes(folder: Path, name: str, *boxes: tuple[float, ...]) -> str:
    """A shard with a record for each box."""
    records = [
        encode(image(f"{number}.jpg", 20, 40) | objects([one], ["cat"], [1]))
        for number, one in enumerate(boxes)
    ]
    return write_shard(folder, name, *records)


def test_boxes_in_pixels_differ_from_boxes_across_the_edge(tmp_path: Path) -> None:
    """In any shard, and beyond the listed findings."""
    mixed = write_boxes(tmp_path, "mixed", *[BOX] * 20, *[HANGING] * 9, *[IN_PIXELS] * 2)
    few = write_boxes(tmp_path, "few", HANGING, HANGING, BOX)
    report = check_sources([str(tmp_path)], replace(CVAT, max_findings=12))
    for path, expected in ((mixed, (9, 2)), (few, (2, None))):
        counts = report.counts.by_shard[path]
        assert (counts["BOX003"], counts.get("BOX005")) == expected
    (message,) = {one.message for one in report.findings if one.code == "BOX003"}
    assert "by 1.25 of" in message and "xmin -0.5, ymin 0.25, xmax 1.5, ymax 2.25" in message
    off = replace(CVAT, severities={"BOX003": OFF})
    assert "BOX003" not in check_sources([str(tmp_path)], off).counts.by_code


def test_an_inverted_box_across_the_edge_is_inverted(tmp_path: Path) -> None:
    report = check_sources([write_boxes(tmp_path, "s", BOX, BOX, (2.25, 0.25, 0.5, 0.75))], CVAT)
    assert {"BOX003": 1, "BOX006": 1}.items() <= report.counts.by_code.items()


def test_more_damaged_records_than_valid_ones_are_in_order(tmp_path: Path) -> None:
    valid = frame(encode(image("a.jpg") | objects([BOX], ["cat"], [1])))
    damaged = flip(frame(b"x"), -1)
    (tmp_path / "a.tfrecord").write_bytes(valid + damaged * 3000 + valid + damaged)
    report = check_sources([str(tmp_path)], Options(max_findings=5000))
    records = [one.record for one in report.findings if one.code == "TFR004"]
    assert records == [*range(1, 3001), 3002] and report.counts.records == 2


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two shards of 260 images each, of which image 250 is damaged."""
    folder, whole = tmp_path_factory.mktemp("large"), jpeg(quality=95)
    data = shard(*(record(f"{n}.jpg", encoded=CUT if n == 250 else whole) for n in range(260)))
    for name in ("train", "val"):
        (folder / f"{name}.tfrecord").write_bytes(data)
    return str(folder)


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
def test_decoded_images(
    large: str, monkeypatch: Any, requested: Any, max_bytes: int, decoded: int, reason: str,
    threads: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(decoding.os, "cpu_count", lambda: threads)
    monkeypatch.setattr(decoding, "MAX_BYTES_TO_DECODE", max_bytes)
    monkeypatch.setattr(decoding, "_SAMPLE", 399)  # of two shards
    report = check_sources([large], Options(decode=requested))
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
        ("auto", [None], 1000),  # a server without Content-Length
        (7, [1], 7),
        (None, [10**9], None),
        (0, [1], 0),
    ],
)
def test_number_of_decoded_images(requested: Any, sizes: Any, expected: Any) -> None:
    assert decoding.choose_decoding(requested, sizes) == (expected, requested is not None)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_sample_is_spread_over_a_plain_shard(tmp_path: Path, is_compressed: bool) -> None:
    data = shard(*(record(f"{n}.jpg", encoded=CUT) for n in range(100)))
    (tmp_path / "a.tfrecord").write_bytes(gzip.compress(data) if is_compressed else data)
    report = check_sources([str(tmp_path)], Options(decode=30))
    records = [one.record for one in report.findings if one.code == "IMG003"]
    assert report.counts.decoded == len(records) == 30
    if is_compressed:
        assert records == [*range(30)]
        assert report.undecoded.reason == "the first ones of each shard"
    else:
        assert {number // 10 for number in records} == {*range(10)}
        (tmp_path / "b.tfrecord").write_bytes(gzip.compress(data))
        both = check_sources([str(tmp_path)], Options(decode=30)).undecoded.reason
        assert both == "spread over all shards, but the first ones of compressed shards"


def test_processes_decode_the_same_sample(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "_MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr(decoding, "MAX_BYTES_TO_DECODE", 1000)
    monkeypatch.setattr(decoding, "_SAMPLE_PER_SHARD", 30)
    monkeypatch.setattr(decoding, "_SAMPLE", 80)
    one, two = (check_sources([large], Options(jobs=jobs)) for jobs in (1, 2))
    assert [shard.decoded for shard in one.shards] == [40, 40]
    assert render_json(replace(two, duration=one.duration)) == render_json(one)


def test_processes_report_all_progress(large: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "_MIN_BYTES_FOR_PROCESSES", 0)
    totals = []
    for jobs in (1, 2):
        steps: list[tuple[int, int]] = []
        with resolve([large]) as sources:
            report = check_module.check(
                sources, Options(jobs=jobs), lambda *step, steps=steps: steps.append(step)
            )
        totals.append([sum(numbers) for numbers in zip(*steps, strict=True)])
        assert totals[-1][1] == report.counts.records > 0
    assert totals[0] == totals[1]


@pytest.fixture
def check(tmp_path: Path) -> Callable[..., Report]:
    """Check a shard of these images."""

    def check_images(*images: bytes, **options: Any) -> Report:
        records = (record(f"{n}.jpg", encoded=one) for n, one in enumerate(images))
        (tmp_path / "a.tfrecord").write_bytes(shard(*records))
        return check_sources([str(tmp_path / "a.tfrecord")], Options(**options))

    return check_images


def test_images_that_are_not_decoded(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (2000, 2000)).save(buffer, "PNG")
    report = check(buffer.getvalue())
    assert report.counts.decoded == 0
    assert "many more pixels than bytes" in report.undecoded.reason
    assert check(buffer.getvalue(), decode=None).counts.decoded == 1
    report = check(jpeg(), b"<html>")
    assert (report.counts.decoded, report.undecoded.fix) == (1, "")
    assert "1 of 2 images decoded, because the others are not images" in format_verdict(report)
    for module in (decoding, result_module):
        monkeypatch.setattr(module, "can_decode", lambda: False)
    report = check(jpeg())
    assert "; 0 of 1 image decoded, because Pillow is not installed" in format_verdict(report)
    assert "pip install Pillow" in render_text(report, color=False)


def test_a_shard_that_is_deleted_during_the_check(tmp_path: Path) -> None:
    write_boxes(tmp_path, "a", BOX)
    gone = write_boxes(tmp_path, "b", BOX)
    with resolve([str(tmp_path)]) as found:
        Path(gone).unlink()
        report = check_module.check(found)
    assert [one.shard for one in report.findings if one.code == "TFR013"] == [gone]
    assert report.counts.records == 1


def test_a_check_in_steps_gives_its_findings_while_it_runs(tmp_path: Path) -> None:
    """Between two steps, a program can show the records and findings so far."""
    records = [record(f"{number}.jpg") for number in range(3000)]
    records[10] = b""
    path = write_shard(tmp_path, "a", *records)
    with resolve([path]) as sources:
        steps = check_steps(sources)
        seen, names, first = [], [], None
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                report = end.value
                break
            seen.append(step)
            if step.findings and first is None and step.findings.total:
                first = len(seen)
            if step.detections:
                names += step.detections.filenames
        assert report.counts == check_sources([path]).counts
    assert len(names) == 3000 and {"0.jpg", "2999.jpg"} < set(names)
    assert sum(step.records for step in seen) == report.counts.records
    assert sum(step.read for step in seen) == Path(path).stat().st_size
    assert first is not None and first < len(seen) > 2
