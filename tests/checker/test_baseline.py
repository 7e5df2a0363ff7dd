"""A baseline hides what is known, however it has moved, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.baseline import Baseline, read_baseline
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.report import Report
from tfod.checker.reporters.json import render_json

from tests.commands import Run
from tests.conftest import examples
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.sound import LABEL_MAP, TF
from tests.records import encode, frame, image, objects, write_shard

SOUND = (0.1, 0.2, 0.3, 0.4)
INVERTED = (0.5, 0.2, 0.3, 0.4)
FAR = (0.1, 0.1, 30.0, 0.5)
# Every file of these is one shard, and says nothing of other shards.
_ALONE = [
    one
    for one in all_mutants()
    if one.fires and isinstance(one.content, bytes) and one.options in ({}, TF)
    if one.code[:3] in ("BOX", "EXA", "LAB", "NAM", "IMG", "TFR") and one.code != "IMG011"
]
some_mutants = st.lists(st.sampled_from(_ALONE), max_size=5, unique_by=lambda one: one.name)


def options(baseline: Baseline | None, **more: Any) -> Options:
    # That an image is in several subsets, each mutant says of the others.
    severities = {"IMG011": None, "LAB013": None}
    profile = READY["tf_detection_api"]
    return Options(profile=profile, decode=None, severities=severities, baseline=baseline, **more)


def baseline_of(sources: Sequence[str]) -> Baseline:
    """The report of a check, which the next one reads."""
    report = check_sources(sources, options(None, max_findings=10_000))
    with TemporaryDirectory() as folder:
        path = Path(folder, "b.json")
        path.write_text(render_json(report), encoding="utf-8")
        return read_baseline(str(path))


@contextmanager
def written(mutants: Sequence[Mutant]) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        Path(folder, "label_map.pbtxt").write_bytes(LABEL_MAP)
        for one in mutants:
            assert isinstance(one.content, bytes)
            Path(folder, one.name).write_bytes(one.content)
        yield folder


def counted(report: Report) -> Counter[tuple[str, str | None]]:
    """Findings by code and image; of which shard one of several alike is new nobody can say."""
    assert len(report.findings) == report.total == sum(report.counts.by_severity.values())
    return Counter((one.code, one.item) for one in report.findings)


@examples(40)
@given(known=some_mutants, new=st.sampled_from(_ALONE), order=st.randoms(use_true_random=False))
def test_what_is_new_is_reported_and_nothing_else(
    known: list[Mutant], new: Mutant, order: Any
) -> None:
    known = [one for one in known if one is not new]
    with written(known) as folder:
        paths = [str(Path(folder, one.name)) for one in known]
        baseline = baseline_of(paths) if paths else Baseline("b.json", {})
        before = counted(check_sources(paths, options(None))) if paths else Counter()
        order.shuffle(paths)
        if paths:
            again = check_sources(paths, options(baseline))
            assert counted(again) == Counter() and again.counts.by_code == {}
            assert again.valid is (again.counts.records > 0)
            assert again.baseline is not None
            assert again.baseline.hidden == before.total()
    with written([*known, new]) as folder:
        paths = [str(Path(folder, one.name)) for one in (*known, new)]
        order.shuffle(paths)
        after = counted(check_sources(paths, options(None)))
        found = counted(check_sources(paths, options(baseline)))
    assert found == after - before
    if known:
        assert found


def bad_records(count: int, start: int = 0, **more: Any) -> list[bytes]:
    """Records of which each has a defect or two of its own, and all together some."""
    boxes = [SOUND, INVERTED, FAR, (0.2, 0.2, 0.2, 0.4)]
    return [
        encode(
            {
                **image(f"{number}.jpg"),
                **objects([SOUND, boxes[number % 4]], ["cat", "ct" if number % 3 else "cat"]),
                "image/source_id": f"id {number % 5}",
                "image/encoded": b"\xff\xd8\xff" + bytes([number % 7]),
                "own/key": 1,
                **more,
            }
        )
        for number in range(start, start + count)
    ]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    write_shard(tmp_path / "data", "train", *bad_records(40))
    return tmp_path / "data"


def known_and_new(run: Run, baseline: Path, *arguments: object) -> tuple[int, dict[str, int]]:
    result = run("check", *arguments, "--baseline", baseline, "--format", "json", "--decode=none")
    report = json.loads(result.out)
    assert result.code == (0 if report["valid"] else 1)
    known: int = report["baseline"]["known"]
    return known, report["counts"]["by_code"]


def written_by(run: Run, baseline: Path, *arguments: object) -> None:
    """The baseline as it is typed."""
    run("check", *arguments, "--format", "json", "-o", baseline, "--decode=none")


def test_records_that_have_moved_are_recognised(run: Run, train: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "b.json"
    written_by(run, baseline, train)
    total, new = known_and_new(run, baseline, train)
    assert total > 60 and new == {}
    codes = {one["code"] for one in json.loads(baseline.read_text())["findings"]}
    # Two records share an image, and a source id; a box hangs out; classes and texts; all records.
    assert codes >= {"IMG010", "NAM008", "BOX003", "BOX006", "BOX007", "LAB006", "NAM010", "EXA008"}
    for number, how in enumerate((["--num-shards", 3], ["--shuffle", 7], ["--num-shards", 5])):
        moved = tmp_path / f"moved-{number}"
        run("reshard", train, moved, *how).succeeded()
        shutil.copy(train / "label_map.pbtxt", moved)
        known, new = known_and_new(run, baseline, moved)
        assert new == {}
        assert known >= total  # what is said once of each shard


def test_one_more_defect_like_a_known_one_is_new(run: Run, tmp_path: Path) -> None:
    """Records without a name cannot be told apart, so they are counted."""
    baseline = tmp_path / "b.json"
    nameless = encode(objects([INVERTED], ["cat"], [1]))
    write_shard(tmp_path / "data", "train", nameless, nameless)
    written_by(run, baseline, tmp_path / "data")
    write_shard(tmp_path / "data", "train", nameless, nameless, nameless)
    _, new = known_and_new(run, baseline, tmp_path / "data")
    assert new["BOX006"] == 1


@pytest.mark.parametrize("most", [1, 3])
def test_however_few_are_listed(train: Path, most: int) -> None:
    baseline = baseline_of([str(train)])
    report = check_sources([str(train)], options(baseline, max_findings=most))
    assert report.total == 0 and report.baseline is not None
    assert report.baseline.hidden == check_sources([str(train)], options(None)).total
    (train / "new.tfrecord").write_bytes((train / "train.tfrecord").read_bytes())
    report = check_sources([str(train)], options(baseline, max_findings=most))
    assert report.counts.by_code["BOX006"] == 10 and len(report.findings) == most
    assert report.total == sum(report.counts.by_severity.values())


def test_a_shard_that_is_known_to_be_empty_or_damaged_is_no_other_finding(tmp_path: Path) -> None:
    """What follows from findings follows from known ones, too."""
    shards = [tmp_path / f"train-0000{one}-of-00002" for one in range(2)]
    for one in shards:
        one.write_bytes(b"")
    baseline = baseline_of([str(shards[0])])
    assert check_sources([str(shards[0])], options(baseline)).total == 0
    report = check_sources(list(map(str, shards)), options(baseline))
    assert {one.shard for one in report.findings if one.code == "SET005"} == {str(shards[1])}


def test_the_verdict_is_about_what_is_new_and_the_receivers_about_all(
    run: Run, train: Path, tmp_path: Path
) -> None:
    baseline = tmp_path / "b.json"
    written_by(run, baseline, train)
    result = run("check", train, "--baseline", baseline, "--for", "any", "--decode=none")
    assert result.code == 0
    assert result.out.startswith("No new findings; ")
    assert "known ones remain, and these shards are still invalid" in result.out.replace("\n", " ")
    assert "od-api        fails: BOX003" in result.out.replace("\n", " ")


def test_cvat_would_refuse_what_is_known(run: Run, train: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "b.json"
    (train / "label_map.pbtxt").unlink()
    written_by(run, baseline, train, "--for", "cvat")
    result = run("check", train, "--baseline", baseline, "--for", "cvat", "--decode=none")
    assert result.code == 0 and result.out.startswith("No new findings; ")
    assert "CVAT would refuse these shards" in result.out.replace("\n ", "")
    assert "VALID" not in result.out and "Next:" not in result.out
    (train / "new.tfrecord").write_bytes(frame(bad_records(1)[0])[:-3])
    result = run("check", train, "--baseline", baseline, "--for", "cvat", "--decode=none")
    assert result.code == 1 and result.out.startswith("INVALID for CVAT: ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is not a report"),
        ("[]", "is not a report"),
        ('{"findings": [{"code": "BOX006"}], "counts": {"findings": 1}}', "is not a report"),
        ("[" * 100_000, "is not a report"),
        ("\xff", "is not a report"),
        (None, "No such file or directory; `tfod check … --format json -o"),
        (os.mkfifo, "is not a file"),
        (os.mkdir, "is not a file"),
    ],
)
def test_what_is_no_baseline_is_one_line(
    run: Run, train: Path, tmp_path: Path, content: Any, said: str
) -> None:
    path = tmp_path / "b.json"
    if isinstance(content, str):
        path.write_bytes(content.encode("latin-1"))
    elif content:
        content(path)
    refused = run("check", train, "--baseline", path).refused()
    assert refused.startswith(f"tfod: {path}: {said}")


def test_a_report_that_does_not_say_all_is_no_baseline(
    run: Run, train: Path, tmp_path: Path
) -> None:
    path, few = tmp_path / "b.json", tmp_path / "few.json"
    written_by(run, few, train, "--max-findings", 2)
    assert "lists 2 of " in run("check", train, "--baseline", few).refused()
    written_by(run, path, train)
    written_by(run, few, train, "--baseline", path)
    assert "write it without --baseline" in run("check", train, "--baseline", few).refused()


def test_a_rule_that_is_no_more_is_passed_over(run: Run, train: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    written_by(run, path, train)
    report = json.loads(path.read_text())
    report["findings"][0]["code"] = "DAT001"
    path.write_text(json.dumps(report))
    _, new = known_and_new(run, path, train)
    assert sum(new.values()) == 1
