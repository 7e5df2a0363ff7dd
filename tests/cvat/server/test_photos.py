"""CVAT shows photos by their EXIF orientation, and expects the boxes on these pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cvat.apps.engine.models import Frame

from tests.commands import Run
from tests.cvat.server.tasks import import_into, make_task, upload
from tests.formats.test_orientation import HEIGHT, RED, STORE, WIDTH, photo, write_shards


@pytest.mark.parametrize("kind", ["shards", "coco", "voc", "yolo", "csv", "cvat_xml"])
def test_boxes_of_converted_photos(run: Run, tmp_path: Path, kind: str) -> None:
    names = {f"a{turn}.jpg": turn for turn in STORE}
    shards, one, two = write_shards(tmp_path / "s", names, is_upright=False), "one", "two"
    run("convert", shards, tmp_path / one, "--to", kind).succeeded()
    run("convert", tmp_path / one, tmp_path / two, "--to", "shards").succeeded()
    files = {path.name: path.read_bytes() for path in (tmp_path / two).iterdir()}
    frames = [Frame(name, WIDTH, HEIGHT, photo(turn)) for name, turn in names.items()]
    task = make_task(frames=frames, classes=("cat",))
    found = {row[0]: row[3] for row in import_into(task, upload(tmp_path, files))}
    assert found.keys() == names.keys()
    for corners in found.values():
        assert corners == pytest.approx(np.multiply(RED, (WIDTH, HEIGHT) * 2), abs=0.02)
