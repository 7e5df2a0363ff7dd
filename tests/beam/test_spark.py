"""A Spark cluster of two executors, each a process of Java with workers of Python.

`make test-spark` installs what it needs, half a gigabyte; Java has to be there.
"""

from __future__ import annotations

import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("apache_beam")
pytest.importorskip("beam_pyspark_runner")

from tfod.beam import Runner, run_pipeline
from tfod.check.check import Options, check_sources

from tests.beam import steps

SPARK = (
    "--master local-cluster[2,1,1024] --conf spark.ui.enabled=false "
    f"--conf spark.executorEnv.PYTHONPATH={os.pathsep.join(filter(None, sys.path))}"
)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Runner:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    # Steps of the tests are found by the process of a pipeline, which runs elsewhere.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{SPARK} pyspark-shell")
    return Runner("PySparkRunner")


def test_elements_come_back(spark: Runner) -> None:
    sums = [("remainder 0", 4, 18), ("remainder 1", 3, 12), ("remainder 2", 3, 15)]
    assert sorted(run_pipeline(partial(steps.sums_by_remainder, 10), spark)) == sums


def test_the_report_is_that_of_one_machine(spark: Runner, corpus: Path) -> None:
    here = check_sources([str(corpus)], Options(part_bytes=100_000))
    there = check_sources([str(corpus)], Options(part_bytes=100_000, runner=spark))
    assert here.total > 1000
    assert {**there.to_json(), "duration": 0} == {**here.to_json(), "duration": 0}
