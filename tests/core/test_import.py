"""Importing tfod is light."""

from __future__ import annotations

import subprocess
import sys

import tfod


def test_import_loads_none_of_the_heavy_ones() -> None:
    code = (
        "import sys, tfod, tfod.datumaro, tfod_validator.cli;"
        "heavy = {'datumaro', 'tensorflow', 'flask', 'PIL', 'cv2', 'lxml'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    assert tfod.__all__ == sorted(tfod.__all__)
    for name in tfod.__all__:
        assert getattr(tfod, name) is not None
