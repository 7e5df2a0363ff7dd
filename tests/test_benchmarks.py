"""The benchmarks that use parts of the tests, or Datumaro in two ways, still run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = Path(__file__).parents[1] / "benchmarks" / "tasks.py"


@pytest.mark.parametrize(
    ("task", "arguments", "is_ours"),
    [
        ("export_from_cvat", (2, 64, 48, "TFRecord Masks 1.0"), True),
        ("export_from_cvat_with_datumaro", (2, 64, 48, "coco_instances"), False),
        ("save_in_place", (20,), True),
    ],
)
def test_task(task: str, arguments: tuple[object, ...], is_ours: bool) -> None:
    pytest.importorskip("datumaro")
    pytest.importorskip("django")
    output = subprocess.run(
        [sys.executable, TASKS, task, json.dumps(arguments)],
        env={**os.environ, "TFOD_ACTIVATE": str(int(is_ours))},
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    sample = json.loads(output.splitlines()[-1])
    assert (sample["records"], sample["boxes"]) == (arguments[0], 10 * int(str(arguments[0])))
