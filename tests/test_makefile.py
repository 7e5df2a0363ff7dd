"""``make test`` runs all stages."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.commands import Result, require, run_command

ROOT = Path(__file__).parents[1]


def test_every_stage_runs_and_the_failed_ones_are_listed() -> None:
    require("make", shutil.which("make") is not None)

    def make_test(stages: str) -> Result:
        return run_command("make", "test", f"STAGES={stages}", folder=ROOT)

    done = make_test("LICENSE absent-1 README.md absent-2")
    assert done.code != 0 and "'README.md'" in done.out
    assert "'absent-1'" in done.err and "'absent-2'" in done.err
    assert "make test: failed: absent-1 absent-2" in done.err.splitlines()
    done = make_test("LICENSE README.md")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "make test: every stage passed (LICENSE README.md)"
