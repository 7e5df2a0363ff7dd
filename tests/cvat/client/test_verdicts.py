"""``tfod check --for cvat`` has the verdict of the dry run of an import."""

from __future__ import annotations

import pytest
import tfod

from tests.cvat.client.conftest import Bridge
from tests.cvat.client.stub_state import StubTask
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of, zipped
from tests.mutants.sound import HEIGHT, WIDTH

# The errors of other families are found before the task matters.
MUTANTS = [one for one in all_mutants() if one.code[:3] in ("EXA", "BOX", "LAB", "IMG", "NAM")]


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS, lambda one: not one.fires))
def test_the_check_and_the_dry_run_agree(mutant: Mutant, bridge: Bridge) -> None:
    path = bridge.folder / "upload.zip"
    path.write_bytes(zipped(mutant))
    names, classes = dict.fromkeys(("a.jpg", "b.png")), dict.fromkeys(("cat", "dog"))
    try:
        for record in tfod.read_detections(str(path)):
            names.setdefault(record.filename or "a.jpg")
            classes.update(dict.fromkeys(text for text in record.class_text or () if text))
    except (tfod.TfodError, ValueError):
        pass
    labels = [
        {"id": number, "name": name, "parent_id": None, "attributes": []}
        for number, name in enumerate(classes, 1)
    ]
    frames = [(name, WIDTH, HEIGHT) for name in names if name.isprintable() and name.isascii()]
    bridge.stub.tasks[1] = StubTask(1, "mutants", labels, frames)
    checked = bridge.run("check", path, "--for", "cvat", "--cvat", "task", 1)
    dry = bridge.load(path, "--dry-run")
    assert checked.code == dry.code, (checked.out, dry.out, dry.err)
    assert checked.code in (0, 1)
