"""The wheel: what is in it, and that it works where it is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="builds with the tools of the main environment only")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_contents(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "tfod/__init__.py",
        "tfod/py.typed",
        "tfod/datumaro/reader.py",
        "tfod/label_maps/coco.pbtxt",
        "tfod_validator/examples/shapes_good.zip",
        "tfod_validator/examples/shapes_broken.zip",
        "tfod/cli/main.py",
        "tfod/check/profile.schema.json",
        "_tfod_import_hook.py",
        "tfod_datumaro.pth",
    } <= names
    assert not [name for name in names if name.startswith(("tests", "examples", "benchmarks"))]
    (metadata,) = (name for name in names if name.endswith("METADATA"))
    text = zipfile.ZipFile(wheel).read(metadata).decode()
    required = [
        line.partition(": ")[2]
        for line in text.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    ]
    assert required == ["google-crc32c>=1.5.0", "numpy>=1.22.4", "protobuf>=3.19.6"]


def test_an_installed_copy_finds_its_label_maps_and_activates(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = (
        f"import sys, os, site; sys.path.insert(0, {str(tmp_path)!r});"
        "os.environ['TFOD_ACTIVATE'] = '1';"
        f"site.addsitedir({str(tmp_path)!r});"
        "import tfod; print(tfod.__file__, tfod.packaged_label_maps(),"
        "[type(f).__module__ for f in sys.meta_path][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"TFOD_ACTIVATE": "0", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(str(tmp_path))
    assert "'coco'" in done.stdout and "_tfod_import_hook" in done.stdout
