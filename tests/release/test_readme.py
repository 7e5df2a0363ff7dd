"""README.md of a release, which `make release-check` types without a clone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.page import Step, steps_of
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
    assert f"{ADDRESS}/raw/v1.2.3/docker/cvat/docker-compose.tfrecord.yml" in text
    assert "tfod-fork-1.2.3/examples" in text
    assert f"TFOD_SOURCE={ADDRESS}.git#v1.2.3" in text


@before_a_release
def test_all_other_text_and_commands_stay() -> None:
    text = for_index(TEXT, "1.2.3", ADDRESS)
    assert list(map(command, steps_of(text))) == list(map(command, steps_of(TEXT)))
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        line for line in TEXT.splitlines() if line.startswith("## ")
    ]


def command(step: Step) -> str:
    return step.command


@before_a_release
def test_a_later_release_changes_only_the_version() -> None:
    first = for_index(TEXT, "0.1.0", ADDRESS)
    assert for_index(first, "0.1.0", ADDRESS) == first
    assert for_index(first, "0.12.0", ADDRESS) == for_index(TEXT, "0.12.0", ADDRESS)


@before_a_release
@pytest.mark.parametrize("lost", ["## Install\n", "'.[cvat]'", "/path/to/this/clone"])
def test_a_text_that_is_not_found_is_an_error(lost: str) -> None:
    with pytest.raises(SystemExit, match=r"readme\.py"):
        for_index(TEXT.replace(lost, ""), "1.2.3", ADDRESS)
