"""README.md of a release, which `make release-check` types without a clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import steps_of
from tests.release.readme import for_index

TEXT = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
ADDRESS = "https://github.com/somebody/tfod-fork"
before_a_release = pytest.mark.skipif(
    "tfod is not on PyPI yet" not in TEXT, reason="README.md is that of a release"
)


@before_a_release
def test_it_needs_no_clone() -> None:
    text = for_index(TEXT, "1.2.3", ADDRESS)
    assert "'.[" not in text and "this/clone" not in text and "not on PyPI" not in text
    assert "pip install 'tfod[datumaro,validator]'" in text
    assert f"{ADDRESS}/archive/refs/tags/v1.2.3.tar.gz |" in text
    assert "tfod-fork-1.2.3/examples" in text
    assert f"TFOD_SOURCE={ADDRESS}.git#v1.2.3" in text


@before_a_release
def test_all_other_text_and_commands_stay() -> None:
    text = for_index(TEXT, "1.2.3", ADDRESS)
    kept = [step.command for step in steps_of(text)]
    assert kept[:2] == [step.command for step in steps_of(text)][:2]
    assert kept[2:] == [step.command for step in steps_of(TEXT)]
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        line for line in TEXT.splitlines() if line.startswith("## ")
    ]


@pytest.mark.parametrize("lost", ["## Install\n", "'.[cvat]'", "/path/to/this/clone"])
def test_a_text_that_is_not_found_is_an_error(lost: str) -> None:
    with pytest.raises(SystemExit, match=r"readme\.py"):
        for_index(TEXT.replace(lost, ""), "1.2.3", ADDRESS)
