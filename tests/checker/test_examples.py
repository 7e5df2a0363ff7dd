"""The zips of examples/: one that is good, one with a defect in each of seven images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tfod.checker.check import Options, check_sources
from tfod.checker.report import Report

EXAMPLES = Path(__file__).parents[2] / "examples"


def check_example(name: str) -> Report:
    return check_sources([str(EXAMPLES / name)], Options(decode=None))


def test_good() -> None:
    report = check_example("shapes_good.zip")
    assert report.valid and not report.findings
    assert (report.counts.records, report.counts.boxes) == (12, 34)


def test_broken() -> None:
    report = check_example("shapes_broken.zip")
    assert {(one.code, one.item) for one in report.findings} == {
        ("BOX003", "shapes_02.jpg"),
        ("LAB006", "shapes_04.jpg"),
        ("BOX006", "shapes_05.jpg"),
        ("BOX009", "shapes_08.jpg"),
        ("IMG009", "shapes_10.jpg"),
        ("IMG006", "shapes_11.jpg"),
        ("TFR004", None),
    }
    assert not report.valid


def test_they_are_what_the_script_makes(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    subprocess.run([sys.executable, EXAMPLES / "pack_shapes.py", tmp_path], check=True)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["shapes_broken.zip", "shapes_good.zip"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes()
