"""Every mutant has the findings of its name: in the command, the library, and two processes."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules

from tests.checker.report_schema import VALIDATOR
from tests.commands import Run
from tests.files import files_in
from tests.mutants.make import all_mutants, write_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import in_its_folder
from tests.mutants.sound import TF

MUTANTS = all_mutants()


def test_every_rule_has_a_failing_mutant_and_a_near_miss() -> None:
    existing = {(one.code, one.fires) for one in MUTANTS}
    assert existing == {(code, fires) for code in all_rules() for fires in (True, False)}
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


def test_the_same_bytes_each_time(tmp_path: Path, mutants: Path) -> None:
    all_mutants.cache_clear()
    write_mutants(tmp_path)
    assert files_in(mutants) == files_in(tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_findings(mutants: Path, mutant: Mutant, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutant.code == "TFR013" and not os.path.exists("/proc/self/mem"):
        pytest.skip("this system has no file that cannot be read")
    for name, value in mutant.environment.items():
        monkeypatch.setenv(name, value)
    with in_its_folder(mutant, mutants):
        done = run("check", *mutant.arguments(mutants), "--format", "json", "--jobs", "1")
    report = json.loads(done.out)
    VALIDATOR.validate(report)
    assert done.code == (0 if report["valid"] else 1)
    assert "Traceback" not in done.err
    assert set(report["counts"]["by_code"]) == mutant.expected
    findings = [one for one in report["findings"] if one["code"] == mutant.code]
    for finding in findings:
        assert_location(finding["shard"], mutant.path(mutants), mutant)
    if mutant.fires and mutant.record is not None:
        offset = offset_of(Path(mutant.path(mutants), mutant.at), mutant.record)
        assert (findings[0]["record"], findings[0]["offset"]) == (mutant.record, offset)


def assert_location(shard: str, path: str, mutant: Mutant) -> None:
    """Assert that the file is named, and the entry in it."""
    if not mutant.at:
        label_map = os.path.join(os.path.dirname(path), "label_map.pbtxt")
        # Findings about a task or a source name no shard; label maps may be next to a mutant.
        assert shard in ("", "all shards") or shard.startswith((path, label_map))
    elif mutant.is_folder:
        assert shard == os.path.join(path, mutant.at)
    else:
        assert shard == f"{path}:{mutant.at}"


def offset_of(path: Path, record: int) -> int:
    """The offset of a record, from the lengths of the records before."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif data[:1] == b"\x78":
        data = zlib.decompress(data)
    start = 0
    for _ in range(record):
        start += struct.unpack_from("<Q", data, start)[0] + 16
    return start


HANDFUL = ("IMG011-train-and-val-", "SET003-one-lacks", "SET004-ids", "LAB008-dog",
           "TSK006-another", "CFG006-two-of")  # fmt: skip


@pytest.mark.parametrize("start", HANDFUL)
def test_two_processes(mutants: Path, start: str, run: Run, monkeypatch: Any) -> None:
    monkeypatch.setattr("tfod.checker.check._MIN_BYTES_FOR_PROCESSES", 0)
    (mutant,) = [one for one in MUTANTS if one.name.startswith(start)]
    command = ["check", *mutant.arguments(mutants), "--format", "json", "--jobs"]
    with in_its_folder(mutant, mutants):
        reports = [json.loads(run(*command, jobs).out) | {"duration": 0} for jobs in (1, 2)]
    assert reports[0] == reports[1]


def test_a_family_at_once_with_two_processes(mutants: Path, monkeypatch: Any) -> None:
    """Mutants do not hide each other's findings."""
    monkeypatch.setattr("tfod.checker.check._MIN_BYTES_FOR_PROCESSES", 0)
    alike = [
        one
        for one in MUTANTS
        if one.code[:3] in ("TFR", "EXA", "BOX") and one.options == TF and not one.is_folder
    ]
    paths = [one.path(mutants) for one in alike]
    options = Options(profile=READY["tf_detection_api"], max_findings=10_000)
    reports = [check_sources(paths, replace(options, jobs=jobs)) for jobs in (1, 2)]
    one_process, two_processes = ({**one.to_json(), "duration": 0} for one in reports)
    assert one_process == two_processes
    found = {(one.shard, one.code) for one in reports[0].findings}
    expected = {(one.path(mutants), one.code) for one in alike if one.fires}
    assert len(expected) > 50 and expected <= found
