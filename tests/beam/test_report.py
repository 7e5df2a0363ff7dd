"""A check on Beam: the same report as in one process, to the byte."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tfod.beam import Runner
from tfod.checker.analysis.examine import examine
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.report import Report
from tfod.checker.reporters.json import render_json

from tests.beam.conftest import DIRECT
from tests.beam.test_runner import INSTRUCTIONS, shards
from tests.mutants.make import all_mutants
from tests.mutants.sound import TF


def same_report(sources: list[str], options: Options, runner: Runner) -> Report:
    """The report of one process, which equals the runner's to the byte, except for the time."""
    here = check_sources(sources, options)
    there = check_sources(sources, replace(options, runner=runner))
    assert render_json(replace(there, duration=here.duration)) == render_json(here)
    return here


@pytest.mark.parametrize("runner", ["direct-2", "portable"], indirect=True)
def test_mutants(mutants: Path, runner: Runner) -> None:
    """Mutants that are a single file without options; each zip would be a separate pipeline."""
    some = [one for one in all_mutants() if not one.is_folder and one.options in ({}, TF)]
    paths = [path for path in (one.path(mutants) for one in some) if not path.endswith(".zip")]
    options = Options(profile=READY["tf_detection_api"], max_findings=500, decode=9)
    found = same_report(paths, options, runner).counts.by_code
    assert {code[:3] for code in found} >= {"TFR", "EXA", "BOX", "LAB", "NAM", "IMG"}


def test_repeated_records(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Across shards and subsets, more records are repeated than are listed."""
    for copy in ("train-00000-of-00002", "train-00001-of-00002", "val-00000-of-00001"):
        shutil.copy(next((corpus / "hyphal-tips").glob("*.record")), tmp_path / f"{copy}.record")
    # Names are relative to this folder; a file with the name of a module is not imported.
    monkeypatch.chdir(tmp_path)
    Path("queue.py").write_text("raise SystemExit('the file was run')")
    report = same_report(["train*", "val*"], Options(max_findings=20), DIRECT)
    assert {"NAM002", "IMG010", "IMG011"} <= report.counts.by_code.keys()
    assert report.total > len(report.findings) == 20


def test_rows_for_a_task(corpus: Path) -> None:
    some = shards(*sorted(corpus.glob("d*/*.tfrecord")), corpus / "nowhere.record")
    instructions = INSTRUCTIONS._replace(keeps_rows=True)
    there = list(DIRECT.examine(some, instructions))
    assert [one.rows for one in there] == [examine(one, instructions).rows for one in some]
    assert sum(len(one.rows) for one in there) > 10 and there[-1].unreadable
