"""An import costs steps in proportion to the length of what is imported, whatever that is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError
from tfod.errors import TfodError

from tests.hostile import FAMILIES, growths

_SIZE = 4_000
_MOST = 2.6  # as in tests/checker/test_linear.py


def import_it(path: Path) -> None:
    folder = path if path.is_dir() or path.suffix == ".zip" else path.parent
    with contextlib.suppress(DatasetImportError, TfodError):  # of what is damaged
        Dataset.import_from(os.fspath(folder), "tf_detection_api")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_twice_the_size_is_twice_the_work(tmp_path: Path, family: str) -> None:
    first, second = growths(import_it, tmp_path, FAMILIES[family], _SIZE)
    assert second <= _MOST * max(first, _SIZE)
