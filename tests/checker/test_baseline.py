"""A baseline hides known findings, even if their records move, and nothing else."""

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

VALID, INVERTED = (0.1, 0.2, 0.3, 0.4), (0.5, 0.2, 0.3, 0.4)
FAR, FLAT = (0.1, 0.1, 30.0, 0.5), (0.2, 0.2, 0.2, 0.4)
# Each file is one shard, whose findings do not depend on other shards.
_SINGLE = [
    one
    for one in all_mutants()
    if one.fires and isinstance(one.content, bytes) and one.options in ({}, TF)
    if one.code[:3] in ("BOX", "EXA", "LAB", "NAM", "IMG", "TFR") and one.code != "IMG011"
]
some_mutants = st.lists(st.sampled_from(_SINGLE), max_size=5, unique_by=lambda one: one.name)


def check(sources: Sequence[object], baseline: Baseline | None = None, **more: Any) -> Report:
    profile = READY["tf_detection_api"]
    # Each mutant would have these findings about the others.
    severities = {"IMG011": None, "LAB013": None}
    options = Options(
        profile=profile, decode=None, severities=severities, baseline=baseline, **more
    )
    return check_sources(list(map(str, sources)), options)


def baseline_of(*sources: object) -> Baseline:
    """The report of a check, read as a baseline."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "b.json")
        path.write_text(render_json(check(sources, max_findings=10_000)), encoding="utf-8")
        return read_baseline(str(path))


@contextmanager
def written(mutants: Sequence[Mutant]) -> Iterator[list[Path]]:
    with TemporaryDirectory() as folder:
        Path(folder, "label_map.pbtxt").write_bytes(LABEL_MAP)
        paths = [Path(folder, one.name) for one in mutants]
        for path, mutant in zip(paths, mutants, strict=True):
            path.write_bytes(mutant.content)
        yield paths


def counted(report: Report) -> Counter[tuple[str, str | None]]:
    """Findings by code and image: of several equal ones, any may be the new one."""
    assert len(report.findings) == report.total == sum(report.counts.by_severity.values())
    return Counter((one.code, one.item) for one in report.findings)


@examples(40)
@given(known=some_mutants, new=st.sampled_from(_SINGLE), order=st.randoms(use_true_random=False))
def test_what_is_new_is_reported_and_nothing_else(
    known: list[Mutant], new: Mutant, order: Any
) -> None:
    known = [one for one in known if one is not new]
    baseline, before = Baseline("b.json", {}), Counter[Any]()
    if known:
        with written(known) as paths:
            baseline, before = baseline_of(*paths), counted(check(paths))
            order.shuffle(paths)
            again = check(paths, baseline)
        assert counted(again) == Counter() and again.counts.by_code == {}
        assert again.valid is (again.counts.records > 0)
        assert again.baseline and again.baseline.hidden == before.total()
    with written([*known, new]) as paths:
        order.shuffle(paths)
        after, found = counted(check(paths)), counted(check(paths, baseline))
    assert found == after - before
    assert found or not known


def bad_records(count: int) -> list[bytes]:
    """Records with their own defects, and defects that they share."""
    boxes = [VALID, INVERTED, FAR, FLAT]
    return [
        encode(
            {
                **image(f"{number}.jpg"),
                **objects([VALID, boxes[number % 4]], ["cat", "ct" if number % 3 else "cat"]),
                "image/source_id": f"id {number % 5}",
                "image/encoded": b"\xff\xd8\xff" + bytes([number % 7]),
                "own/key": 1,
            }
        )
        for number in range(count)
    ]


@pytest.fixture
def train(tmp_path: Path) -> Path:
    write_shard(tmp_path / "data", "train", *bad_records(40))
    return tmp_path / "data"


@pytest.fixture
def baseline(run: Run, train: Path, tmp_path: Path) -> Path:
    return write_baseline(run, tmp_path / "b.json", train)


def write_baseline(run: Run, path: Path, *arguments: object) -> Path:
    run("check", *arguments, "--format", "json", "-o", path, "--decode=none")
    return path


def known_and_new(run: Run, baseline: Path, source: Path) -> tuple[int, dict[str, int]]:
    result = run("check", source, "--baseline", baseline, "--format", "json", "--decode=none")
    report = json.loads(result.out)
    assert result.code == (0 if report["valid"] else 1)
    return report["baseline"]["known"], report["counts"]["by_code"]


def test_moved_records(run: Run, train: Path, baseline: Path, tmp_path: Path) -> None:
    total, new = known_and_new(run, baseline, train)
    assert total > 60 and new == {}
    codes = {one["code"] for one in json.loads(baseline.read_text())["findings"]}
    # Shared images and source ids, boxes, classes and texts, all records.
    assert codes >= {"IMG010", "NAM008", "BOX003", "BOX006", "BOX007", "LAB006", "NAM010", "EXA008"}
    for number, how in enumerate((["--num-shards", 3], ["--shuffle", 7], ["--num-shards", 5])):
        moved = tmp_path / f"moved-{number}"
        run("reshard", train, moved, *how).succeeded()
        shutil.copy(train / "label_map.pbtxt", moved)
        known, new = known_and_new(run, baseline, moved)
        assert new == {} and known >= total  # some findings are once per shard


def test_one_more_defect_like_a_known_one_is_new(run: Run, tmp_path: Path) -> None:
    """Records without a name are counted."""
    nameless = encode(objects([INVERTED], ["cat"], [1]))
    write_shard(tmp_path / "data", "train", nameless, nameless)
    baseline = write_baseline(run, tmp_path / "b.json", tmp_path / "data")
    write_shard(tmp_path / "data", "train", nameless, nameless, nameless)
    assert known_and_new(run, baseline, tmp_path / "data")[1]["BOX006"] == 1


@pytest.mark.parametrize("most", [1, 3])
def test_however_few_are_listed(train: Path, most: int) -> None:
    baseline = baseline_of(train)
    report = check([train], baseline, max_findings=most)
    assert report.total == 0 and report.baseline
    assert report.baseline.hidden == check([train]).total
    (train / "new.tfrecord").write_bytes((train / "train.tfrecord").read_bytes())
    report = check([train], baseline, max_findings=most)
    assert report.counts.by_code["BOX006"] == 10 and len(report.findings) == most
    assert report.total == sum(report.counts.by_severity.values())


def test_a_known_empty_shard_is_no_other_finding(tmp_path: Path) -> None:
    """Known findings have the same consequences as new ones."""
    shards = [tmp_path / f"train-0000{one}-of-00002" for one in range(2)]
    for one in shards:
        one.write_bytes(b"")
    baseline = baseline_of(shards[0])
    assert check(shards[:1], baseline).total == 0
    report = check(shards, baseline)
    assert {one.shard for one in report.findings if one.code == "SET005"} == {str(shards[1])}


def test_verdict_and_receivers(run: Run, train: Path, baseline: Path, tmp_path: Path) -> None:
    result = run("check", train, "--baseline", baseline, "--for", "any", "--decode=none")
    assert result.code == 0 and result.out.startswith("No new findings; ")
    out = result.out.replace("\n", " ")
    assert "known ones remain, and these shards are still invalid" in out
    assert "od-api        fails: BOX003" in out
    (train / "label_map.pbtxt").unlink()
    for_cvat = (train, "--for", "cvat")
    baseline = write_baseline(run, tmp_path / "cvat.json", *for_cvat)
    result = run("check", *for_cvat, "--baseline", baseline, "--decode=none")
    assert result.code == 0 and result.out.startswith("No new findings; ")
    assert "CVAT would refuse these shards" in result.out.replace("\n ", "")
    assert "VALID" not in result.out and "Next:" not in result.out
    (train / "new.tfrecord").write_bytes(frame(bad_records(1)[0])[:-3])
    result = run("check", *for_cvat, "--baseline", baseline, "--decode=none")
    assert result.code == 1 and result.out.startswith("INVALID for CVAT: ")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        *(
            (text, "is not a report")
            for text in (
                *("", "[]", "[" * 100_000, "\xff"),
                '{"findings": [{"code": "BOX006"}], "counts": {"findings": 1}}',
            )
        ),
        (None, "No such file or directory; `tfod check … --format json -o"),
        (os.mkfifo, "is not a file"),
        (os.mkdir, "is not a file"),
    ],
)
def test_other_files(run: Run, train: Path, tmp_path: Path, content: Any, reason: str) -> None:
    path = tmp_path / "b.json"
    if isinstance(content, str):
        path.write_bytes(content.encode("latin-1"))
    elif content:
        content(path)
    refused = run("check", train, "--baseline", path).refused()
    assert refused.startswith(f"tfod: {path}: {reason}")


def test_incomplete_reports(run: Run, train: Path, baseline: Path, tmp_path: Path) -> None:
    for options, reason in (
        (("--max-findings", 2), "lists 2 of "),
        (("--baseline", baseline), "write it without --baseline"),
    ):
        few = write_baseline(run, tmp_path / "few.json", train, *options)
        assert reason in run("check", train, "--baseline", few).refused()


def test_a_rule_of_an_older_version_is_skipped(run: Run, train: Path, baseline: Path) -> None:
    report = json.loads(baseline.read_text())
    report["findings"][0]["code"] = "DAT001"
    baseline.write_text(json.dumps(report))
    assert sum(known_and_new(run, baseline, train)[1].values()) == 1
