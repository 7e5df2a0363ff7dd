"""``--runner NAME … -- …``: what is ours, and what is Beam's."""

from __future__ import annotations

import pytest
from tfod.cli.arguments import split_arguments
from tfod.cli.main import main

from tests.commands import Run


@pytest.mark.parametrize(
    ("typed", "ours", "beams"),
    [
        ("check a --runner direct -- --x 1", "check a --runner direct", "--x 1"),
        ("check a --runner=direct -- --x=1", "check a --runner=direct", "--x=1"),
        ("check --ru direct a -- --x -- b", "check --ru direct a", "--x -- b"),
        ("check --runner direct a", "check --runner direct a", ""),
        ("check -- -odd-name", "check -- -odd-name", ""),
        ("check --max-findings 3 -- --runner", "check --max-findings 3 -- --runner", ""),
    ],
)
def test_what_stands_behind_two_dashes(typed: str, ours: str, beams: str) -> None:
    assert split_arguments(typed.split()) == (ours.split(), beams.split())


def test_dashes_that_were_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", "a", "--runner", "direct", "--direct_num_workers", "2"])
    assert caught.value.code == 2
    output = capsys.readouterr().err.splitlines()[-1]
    ending = "--direct_num_workers 2; put the options of Beam after --; see tfod check --help"
    assert output.endswith(ending)


def test_a_runner_and_processes(run: Run) -> None:
    said = run("check", "a", "--runner", "direct", "--jobs", "2").refused()
    assert "exclude each other" in said and "--direct_num_workers 2" in said
