"""Importing tfod is light."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tfod


def test_import_loads_none_of_the_heavy_ones() -> None:
    code = (
        "import sys, tfod; assert 'numpy' not in sys.modules;"
        "import tfod.datumaro, tfod.cli.main;"
        "heavy = {'datumaro', 'tensorflow', 'flask', 'django', 'cvat_sdk', 'PIL', 'cv2', 'lxml'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert tfod.__all__ == sorted(tfod.__all__)
    for name in tfod.__all__:
        assert getattr(tfod, name) is not None
    assert set(tfod.__all__) <= set(dir(tfod))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tfod.no_such_name
