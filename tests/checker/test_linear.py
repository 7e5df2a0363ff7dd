"""The number of steps is proportional to the size of the input."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from tfod.checker.check import check_sources
from tfod.checker.references.cvat_task import load_task
from tfod.cli.main import main
from tfod.errors import TfodError
from tfod.shards.describe import describe
from tfod.sources.reading import read_detections, read_examples

from tests.hostile import FAMILIES, XML_FAMILIES, growths

_SIZE = 2_000
_SIZES = {
    # Each record is a batch, and a thousand times a few bytes.
    **dict.fromkeys(("junk_between_empty_records", "headers_between_records"), 1_000),
    # Items have many bytes: the other steps would hide the cost of few items.
    **{family: 12_000 for family in FAMILIES if family.startswith("items_")},
}
_MAX_GROWTH = 2.6
"""Linear work grows by 2, quadratic work by 4, and tables that sometimes double in between."""


def check_it(path: Path) -> None:
    assert check_sources([str(path)]).counts.records >= 0


def describe_it(path: Path) -> None:
    with contextlib.suppress(TfodError):  # it stops at the first damage
        describe(path)


def read_it(path: Path) -> None:
    assert all(map(list, read_examples(path)))
    assert list(read_detections(path))


def as_task(path: Path) -> None:
    with contextlib.suppress(TfodError):
        load_task(cvat_xml=str(path))


def convert_it(path: Path) -> None:
    arguments = ["--to", "cvat_xml", "--no-images"]
    assert main(["convert", str(path), str(path.parent / "out"), *arguments]) == 0


def test_as_many_keys_as_records(tmp_path: Path) -> None:
    first, second = growths(read_it, tmp_path, FAMILIES["keys_of_records"], _SIZE)
    assert second <= _MAX_GROWTH * first


@pytest.mark.parametrize("do", [check_it, describe_it])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_records(tmp_path: Path, family: str, do: Callable[[Path], None]) -> None:
    size = _SIZES.get(family, _SIZE)
    first, second = growths(do, tmp_path, FAMILIES[family], size)
    assert second <= _MAX_GROWTH * max(first, size)


@pytest.mark.parametrize("do", [as_task, convert_it])
@pytest.mark.parametrize("family", sorted(XML_FAMILIES))
def test_xml(tmp_path: Path, family: str, do: Callable[[Path], None]) -> None:
    first, second = growths(do, tmp_path, XML_FAMILIES[family], 4 * _SIZE)
    assert second <= _MAX_GROWTH * max(first, _SIZE)
