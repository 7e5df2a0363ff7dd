"""``tfod check --runner``: the report of one machine, to the byte."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")

from tfod.beam import Runner
from tfod.beam import check as beam_check
from tfod.check.check import Options, check_sources
from tfod.check.findings.baseline import Baseline
from tfod.check.findings.report import Report
from tfod.check.profiles.profile import READY
from tfod.check.reporters.json_and_junit import render_json
from tfod.check.reporters.text import render_text
from tfod.cli.main import main
from tfod.errors import TfodError
from tfod.tfrecord.writer import write_records

from tests.beam.clusters import children_of, command_of
from tests.beam.conftest import direct
from tests.check.test_check import training
from tests.commands import TIMEOUT, wait_until
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import check_mutant
from tests.mutants.sound import TF

HERE = direct(1)
PART_BYTES = 5000


def without_time(report: Report) -> tuple[str, str]:
    """The report to the byte, but for its duration."""
    timeless = replace(report, duration=0.0)
    return render_json(timeless), render_text(timeless, color=False)


@pytest.fixture(scope="module")
def repeating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two subsets with names and images that come again, within and across shards and subsets."""
    folder, chance = tmp_path_factory.mktemp("repeating"), random.Random(7)
    for subset in ("train", "val"):
        records = []
        for _ in range(300):
            number = chance.randrange(700)
            record = training(
                f"{chance.randrange(500)}.jpg",
                [(0.1, 0.1, 0.9, 1.2 if number % 11 == 0 else 0.9)],
                **{"image/source_id": f"s{number}"},
            )
            records.append(record)
        write_records(folder, subset, records, num_shards=7)
    return folder


def all_at_once(folder: Path, every: bool = True) -> list[str]:
    """All mutants of one file that are checked without options, or the first two of each rule."""
    alike = [one for one in all_mutants() if one.options == TF or not one.options]
    if not every:
        first: dict[tuple[str, bool], Mutant] = {}
        for one in alike:
            if not one.is_folder:
                first.setdefault((one.code, one.fires), one)
        alike = list(first.values())
    paths = [one.path(folder) for one in alike if not one.is_folder]
    zips = [path for path in paths if path.endswith(".zip")]
    # Each zip is a dataset, and each dataset a pipeline, which takes seconds to start.
    return [path for path in paths if path not in zips[1:]]


# The next but one has the findings of each rule, and the runners do the same steps in the tests
# after it and in test_run.py.
@pytest.mark.slow
@pytest.mark.parametrize("runner", ["direct-2", "portable"], indirect=True)
def test_mutants_of_every_family(mutants: Path, runner: Runner) -> None:
    _compare(all_at_once(mutants), runner, 40)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_all_findings_of_all_mutants(mutants: Path) -> None:
    _compare(all_at_once(mutants), HERE, 10_000)


@pytest.mark.usefixtures("in_this_process")
def test_all_findings_of_mutants_of_each_rule(mutants: Path) -> None:
    _compare(all_at_once(mutants, every=False), HERE, 10_000)


@pytest.mark.usefixtures("in_this_process")
def test_a_baseline_knows_what_workers_find(mutants: Path) -> None:
    paths = all_at_once(mutants)
    options = Options(
        profile=READY["tf_detection_api"],
        max_findings=5,
        decode=0,
        runner=HERE,
        baseline=Baseline("b.json", {}, is_updated=True),
    )
    written = check_sources(paths, options).baseline
    assert written is not None and written.known > 300
    baseline = Baseline("b.json", dict(written.found))
    report = check_sources(paths, replace(options, baseline=baseline))
    assert (report.total, report.findings, report.valid) == (0, [], True)
    assert report.baseline is not None and report.baseline.known == written.known


def _compare(paths: list[str], runner: Runner, most: int) -> None:
    options = Options(
        profile=READY["tf_detection_api"], max_findings=most, part_bytes=2000, decode=9
    )
    here = check_sources(paths, options)
    assert {code[:3] for code in here.counts.by_code} >= {"TFR", "EXA", "BOX", "LAB", "ZIP", "IMG"}
    assert here.total > 100 and len(here.findings) == min(here.total, most)
    assert without_time(check_sources(paths, replace(options, runner=runner))) == without_time(here)


@pytest.mark.usefixtures("in_this_process")
def test_clean_shards(corpus: Path) -> None:
    folder = str(corpus / "hyphal-tips")
    here = check_sources([folder])
    assert here.valid
    assert without_time(check_sources([folder], Options(runner=HERE))) == without_time(here)


@pytest.mark.usefixtures("in_this_process")
def test_real_shards(corpus: Path, tmp_path: Path) -> None:
    """All but the largest, which the test before has."""
    some = shutil.copytree(corpus, tmp_path / "some", ignore=lambda *_: ["hyphal-tips"])
    here = check_sources([str(some)])
    options = Options(runner=HERE, part_bytes=100_000)
    assert without_time(check_sources([str(some)], options)) == without_time(here)


def test_a_worker_that_dies(corpus: Path, tmp_path: Path) -> None:
    report, shards = tmp_path / "report.json", str(corpus / "hyphal-tips")
    process = subprocess.Popen(
        [sys.executable, "-m", "tfod.cli.main", "check", shards, "--format", "json",
         "--output", str(report), "--runner", "direct", "--", *direct(2).arguments],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip

    def kill_a_worker() -> bool:
        for pid in children_of(process.pid):
            command = command_of(pid)
            if "sdk_worker_main" in command and not command.startswith("/bin/sh"):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    wait_until(kill_a_worker)
    _, err = process.communicate(timeout=TIMEOUT)
    found, _ = without_time(check_sources([shards]))
    assert re.sub(r'"duration": .*', '"duration": 0.0', report.read_text()) == found
    assert err.count("\n") == 1 and "a worker process died; all its work is done again" in err


@pytest.mark.parametrize("most", [1000, 5])
@pytest.mark.usefixtures("in_this_process")
def test_what_comes_again_is_grouped_by_ranges_of_hashes(
    repeating: Path, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(max_findings=most)
    here = check_sources([str(repeating)], options)
    assert {"NAM002", "NAM003", "IMG010", "IMG011"} & here.counts.by_code.keys()
    total = sum(one.stat().st_size for one in repeating.iterdir())
    monkeypatch.setattr(beam_check, "_BYTES_OF_A_BUCKET", total // 7)
    assert beam_check._buckets(total) == 8
    there = check_sources([str(repeating)], replace(options, runner=HERE, part_bytes=PART_BYTES))
    assert without_time(there) == without_time(here)


HANDFUL = ("SET003-one-lacks", "SET004-ids", "ZIP012-of-a-image", "TSK006-another",
           "CFG003-one-of-two", "TFR011-one-byte-short")  # fmt: skip


@pytest.mark.parametrize("start", HANDFUL)
@pytest.mark.usefixtures("in_this_process")
def test_tasks_sources_and_sets(mutants: Path, start: str) -> None:
    (mutant,) = [one for one in all_mutants() if one.name.startswith(start)]
    here = check_mutant(mutant, mutants)
    assert mutant.code in here.counts.by_code
    assert without_time(check_mutant(mutant, mutants, runner=HERE, part_bytes=1)) == without_time(
        here
    )


@pytest.mark.usefixtures("in_this_process")
def test_the_command(repeating: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for more in ((), ("--runner", "direct", "--", "--direct_num_workers", "2")):
        arguments = [*more[:2], "--format", "json", *more[2:]]
        assert main(["check", str(repeating), *arguments]) == 1
        report = json.loads(capsys.readouterr().out)
        outputs.append({**report, "duration": 0})
    assert outputs[0] == outputs[1]


def test_what_workers_elsewhere_cannot_see(repeating: Path) -> None:
    shard = next(repeating.iterdir())
    with shard.open("rb") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "tfod.cli.main", "check", "-", "--runner", "portable"],
            stdin=stream,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "<stdin>: is read through a copy" in done.stderr


def test_a_label_map_that_is_not_there(repeating: Path) -> None:
    with pytest.raises(TfodError, match="nowhere"):
        check_sources([str(repeating)], Options(runner=HERE, label_map="nowhere.pbtxt"))
