"""``make test`` goes on to the end."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.commands import require

ROOT = Path(__file__).parents[1]


def make_test(*stages: str) -> subprocess.CompletedProcess[str]:
    require("make", shutil.which("make") is not None)
    return subprocess.run(
        ["make", "test", f"STAGES={' '.join(stages)}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_stage_runs_and_the_failed_ones_are_named_at_the_end() -> None:
    done = make_test("LICENSE", "absent-1", "README.md", "absent-2")
    assert done.returncode != 0
    assert "'README.md'" in done.stdout
    assert "'absent-1'" in done.stderr and "'absent-2'" in done.stderr
    assert "make test: failed: absent-1 absent-2" in done.stderr.splitlines()


def test_nothing_failed() -> None:
    done = make_test("LICENSE", "README.md")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "make test: every stage passed (LICENSE README.md)"
