"""``make test`` runs all stages."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.commands import require

ROOT = Path(__file__).parents[1]


def test_every_stage_runs_and_the_failed_ones_are_listed() -> None:
    require("make", shutil.which("make") is not None)

    def make_test(stages: str) -> subprocess.CompletedProcess[str]:
        command = ["make", "test", f"STAGES={stages}"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    done = make_test("LICENSE absent-1 README.md absent-2")
    assert done.returncode != 0 and "'README.md'" in done.stdout
    assert "'absent-1'" in done.stderr and "'absent-2'" in done.stderr
    assert "make test: failed: absent-1 absent-2" in done.stderr.splitlines()
    done = make_test("LICENSE README.md")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "make test: every stage passed (LICENSE README.md)"
