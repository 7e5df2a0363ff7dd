"""Every mutant does what its name says, whoever asks: the command, the library, two processes."""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.profiles.profile import READY
from tfod.checker.rules.registry import all_rules
from tfod.cli.main import main

from tests.checker.reports import VALIDATOR
from tests.commands import Run
from tests.files import files_in
from tests.mutants.make import all_mutants, write_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import in_its_folder
from tests.mutants.sound import TF

MUTANTS = all_mutants()
by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)


def skip_without_its_needs(mutant: Mutant) -> None:
    if mutant.code == "TFR013" and not os.path.exists("/proc/self/mem"):
        pytest.skip("no file here that opens and cannot be read")


def test_every_rule_has_a_failing_mutant_and_a_near_miss() -> None:
    there = {(one.code, one.fires) for one in MUTANTS}
    wanted = {(code, fires) for code in all_rules() for fires in (True, False)}
    assert sorted(wanted - there) == []
    assert sorted(there - wanted) == []
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


def test_the_same_bytes_each_time(tmp_path: Path, mutants: Path) -> None:
    all_mutants.cache_clear()
    write_mutants(tmp_path)
    assert files_in(mutants) == files_in(tmp_path)


@by_name
def test_says_what_its_name_says(
    mutants: Path,
    mutant: Mutant,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without_its_needs(mutant)
    for name, value in mutant.environment.items():
        monkeypatch.setenv(name, value)
    with in_its_folder(mutant, mutants):
        code = main(["check", *mutant.arguments(mutants), "--format", "json", "--jobs", "1"])
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    VALIDATOR.validate(report)
    assert code == (0 if report["valid"] else 1)
    assert "Traceback" not in printed.err
    assert set(report["counts"]["by_code"]) == mutant.expected
    output = [one for one in report["findings"] if one["code"] == mutant.code]
    for finding in output:
        _is_there(finding["shard"], mutant.path(mutants), mutant)
    if mutant.fires and mutant.record is not None:
        offset = _offset(Path(mutant.path(mutants), mutant.at), mutant)
        assert (output[0]["record"], output[0]["offset"]) == (mutant.record, offset)


def _is_there(shard: str, path: str, mutant: Mutant) -> None:
    """The file is named, and the entry in it."""
    if not mutant.at:
        family = os.path.dirname(path)
        # Of a task or a source no single shard is said; label maps may lie beside a mutant.
        assert shard in ("", "all shards") or shard.startswith(
            (path, os.path.join(family, "label_map.pbtxt"))
        )
    elif mutant.is_folder:
        assert shard == os.path.join(path, mutant.at)
    else:
        assert shard == f"{path}:{mutant.at}"


def _offset(path: Path, mutant: Mutant) -> int:
    """Where a record starts, by the lengths of those before it."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    elif data[:1] == b"\x78":
        data = zlib.decompress(data)
    start = 0
    for _ in range(mutant.record or 0):
        start += struct.unpack_from("<Q", data, start)[0] + 16
    return start


HANDFUL = ("IMG011-train-and-val-", "SET003-one-lacks", "SET004-ids", "LAB008-dog",
           "TSK006-another", "CFG006-two-of")  # fmt: skip


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the data is, it is shared among processes."""
    monkeypatch.setattr("tfod.checker.check._MIN_BYTES_FOR_PROCESSES", 0)


@pytest.mark.parametrize("start", HANDFUL)
@pytest.mark.usefixtures("shares")
def test_the_same_report_from_two_processes(mutants: Path, start: str, run: Run) -> None:
    (mutant,) = [one for one in MUTANTS if one.name.startswith(start)]
    command = ["check", *mutant.arguments(mutants), "--format", "json", "--jobs"]
    with in_its_folder(mutant, mutants):
        reports = [json.loads(run(*command, jobs).out) | {"duration": 0} for jobs in (1, 2)]
    assert reports[0] == reports[1]


@pytest.mark.usefixtures("shares")
def test_all_of_a_family_at_once_with_two_processes(mutants: Path) -> None:
    """What one mutant does hides nothing of the next one."""
    alike = [one for one in MUTANTS if one.code[:3] in ("TFR", "EXA", "BOX") and one.options == TF]
    paths = [one.path(mutants) for one in alike if not one.is_folder]
    options = Options(profile=READY["tf_detection_api"], max_findings=10_000)
    reports = [check_sources(paths, replace(options, jobs=jobs)) for jobs in (1, 2)]
    alone, together = ({**one.to_json(), "duration": 0} for one in reports)
    assert alone == together
    found = {(one.shard, one.code) for one in reports[0].findings}
    expected = {(one.path(mutants), one.code) for one in alike if one.fires and not one.is_folder}
    assert len(expected) > 50
    assert expected <= found
