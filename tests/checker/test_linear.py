"""Any input costs steps in proportion to its length: of twice the size at most twice as many."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from tfod.describe import describe
from tfod.errors import TfodError
from tfod_validator.check import Options, check_sources

from tests.hostile import FAMILIES, growths

_SIZE = 12_000
_MOST = 2.6
"""Of linear work it is 2, of quadratic work 4; tables that double now and then are in between."""


def check(path: Path) -> None:
    assert check_sources([str(path)], Options(hash_sources=False)).counts.records >= 0


def describe_it(path: Path) -> None:
    with contextlib.suppress(TfodError):  # of what is damaged the first damage is said
        describe(path)


@pytest.mark.parametrize("do", [check, describe_it])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_twice_the_size_is_twice_the_work(tmp_path: Path, family: str, do: object) -> None:
    assert callable(do)
    first, second = growths(do, tmp_path, family, _SIZE)
    assert second <= _MOST * max(first, _SIZE)
