"""Importing tfod is light, and a command loads only the modules that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
import tfod

from tests.commands import run_python
from tests.conftest import CORPUS

_SHARD = str(CORPUS / "blood-cells")
LIGHT = {
    "import tfod": "numpy",
    "import tfod; tfod.check, tfod.convert": "numpy tfod.checker tfod.formats",
    "import tfod.datumaro, tfod.cli.main": "datumaro tensorflow flask django cvat_sdk PIL cv2 lxml",
    # XML, images and outlines are loaded on demand.
    "import tfod.formats.voc, tfod.formats.coco": (
        "lxml PIL pycocotools datumaro tensorflow tfod.checker"
    ),
    # A format is loaded on demand.
    f"from tfod.cli.main import main; main(['convert', {_SHARD!r}, 'x.csv', '--no-images'])": (
        "tfod.formats.voc tfod.formats.coco tfod.formats.yolo tfod.formats.cvat.cvat_for_images "
        "PIL lxml"
    ),
    "import tfod.sources.resolver, tfod.tfrecord.reader": "fsspec s3fs aiohttp asyncio",
    "import tfod.checker.check, tfod.beam": "apache_beam",
    f"import tfod; list(tfod.read_detections({_SHARD!r}))": "tfod.checker PIL lxml",
    f"from tfod.cli.main import main; main(['check', '--decode=none', {_SHARD!r}])": (
        "tensorflow PIL lxml flask jinja2 yaml datumaro"
    ),
    # Rules and renderers would double the time of a small run.
    f"from tfod.cli.main import main; main(['reshard', {_SHARD!r}, 'out'])": (
        "tfod.checker.reporters.text tfod.checker.rules datumaro PIL lxml"
    ),
}
"""Programs, and the modules that they do not need."""


@pytest.mark.parametrize("code", LIGHT)
def test_modules_that_are_not_needed_are_not_loaded(code: str, tmp_path: Path) -> None:
    if "tfod.beam" in code:  # it raises an error at once
        pytest.importorskip("apache_beam")
    done = run_python("-c", f"{code}; import sys; print(*sys.modules)", folder=tmp_path)
    loaded = done.out.splitlines()[-1].split()
    assert "tfod" in loaded and not {*LIGHT[code].split()} & {*loaded}


def test_every_public_name_exists() -> None:
    assert tfod.__all__ == sorted(tfod.__all__)
    for name in tfod.__all__:
        assert getattr(tfod, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tfod.no_such_name


def test_dir_lists_the_public_names_only(tmp_path: Path) -> None:
    """It does not list submodules, which Python sets as attributes when they are imported."""
    code = f"""
import tfod
before = dir(tfod)
assert tfod.check({_SHARD!r}, decode="none").counts.records
tfod.convert({_SHARD!r}, "x.csv", no_images=True), tfod.describe({_SHARD!r})
tfod.diff({_SHARD!r}, {_SHARD!r}), tfod.functions, tfod.shards.diff
import tfod.training, tfod.errors
assert dir(tfod) == before == sorted(tfod.__all__), {{*dir(tfod)}} ^ {{*before}}
assert not {{"functions", "shards", "errors", "checker"}} & {{*before}}
exec("from tfod import *")
assert check is tfod.check and Report is tfod.Report
"""
    run_python("-c", code, folder=tmp_path).succeeded()


def test_type_checkers_see_the_same_names() -> None:
    stub = Path(tfod.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    lines = {line for line in stub.splitlines() if line.startswith("from ")}
    modules = tfod._MODULES | {"__version__": "tfod.version"}
    assert lines == {f"from {module} import {name} as {name}" for name, module in modules.items()}
