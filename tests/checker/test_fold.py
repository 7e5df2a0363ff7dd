"""Results of shards, in their order: bounded, truly counted, and the same whoever made them."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker import check as check_module
from tfod.checker.analysis import encoded_images
from tfod.checker.analysis.result import MAX_COUNTED_KEYS, add_bounded
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Finding, Findings, Severity, select_listed
from tfod.checker.profiles.profile import OFF, READY
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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("most", "decoded"), [(0, 0), (2, 2), (5, 5), (6, 6), (99, 6), (None, 6)])
def test_the_first_images_of_each_shard_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int | None, decoded: int, threads: int
) -> None:
    monkeypatch.setattr(encoded_images.os, "cpu_count", lambda: threads)
    half = jpeg(quality=95)
    broken = half[: len(half) // 2] + b"\xff\xd9"
    records = [record(f"{one}.jpg", encoded=jpeg(quality=60 + one)) for one in range(5)]
    records.append(record("broken.jpg", encoded=broken))
    for name in ("train", "val"):
        (tmp_path / f"{name}.tfrecord").write_bytes(shard_of(*records))
    report = check_sources([str(tmp_path)], Options(decode=most))
    assert [one.decoded for one in report.shards] == [decoded, decoded]
    assert report.counts.by_code.get("IMG003", 0) == (2 if decoded == 6 else 0)
    assert bool(report.undecoded) == (decoded < 6)
    if 0 < decoded < 6:
        assert report.undecoded.startswith(f"the first {most} of each shard")


def test_a_shard_that_goes_meanwhile(tmp_path: Path) -> None:
    shard(tmp_path, "a", BOX)
    gone = Path(shard(tmp_path, "b", BOX))
    with resolve([str(tmp_path)]) as found:
        gone.unlink()
        report = check_module.check(found)
    assert [one.shard for one in report.findings if one.code == "TFR013"] == [str(gone)]
    assert report.counts.records == 1
