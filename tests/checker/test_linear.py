"""Any input costs steps in proportion to its length: of twice the size at most twice as many."""

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
    # Each record is a batch of its own, and a thousand times a few bytes.
    **dict.fromkeys(("junk_between_empty_records", "headers_between_records"), 1_000),
    # An item has many bytes: of few items, what they cost is hidden by the rest.
    **{family: 12_000 for family in FAMILIES if family.startswith("items_")},
}
_MOST = 2.6
"""Of linear work it is 2, of quadratic work 4; tables that double now and then are in between."""


def check_it(path: Path) -> None:
    assert check_sources([str(path)]).counts.records >= 0


def describe_it(path: Path) -> None:
    with contextlib.suppress(TfodError):  # of what is damaged the first damage is said
        describe(path)


def read_it(path: Path) -> None:
    assert all(map(list, read_examples(path)))
    assert list(read_detections(path))


def as_task(path: Path) -> None:
    with contextlib.suppress(TfodError):
        load_task(cvat_xml=str(path))


def test_as_many_keys_as_records_are_read_in_linear_time(tmp_path: Path) -> None:
    first, second = growths(read_it, tmp_path, FAMILIES["keys_of_records"], _SIZE)
    assert second <= _MOST * first


@pytest.mark.parametrize("do", [check_it, describe_it])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_twice_the_size_is_twice_the_work(
    tmp_path: Path, family: str, do: Callable[[Path], None]
) -> None:
    size = _SIZES.get(family, _SIZE)
    first, second = growths(do, tmp_path, FAMILIES[family], size)
    assert second <= _MOST * max(first, size)


def convert_it(path: Path) -> None:
    arguments = ["--to", "cvat_xml", "--no-images"]
    assert main(["convert", str(path), str(path.parent / "out"), *arguments]) == 0


@pytest.mark.parametrize("do", [as_task, convert_it])
@pytest.mark.parametrize("family", sorted(XML_FAMILIES))
def test_twice_the_xml_is_twice_the_work(
    tmp_path: Path, family: str, do: Callable[[Path], None]
) -> None:
    first, second = growths(do, tmp_path, XML_FAMILIES[family], 4 * _SIZE)
    assert second <= _MOST * max(first, _SIZE)
