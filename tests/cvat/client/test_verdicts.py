"""One verdict: ``tfod check --for cvat`` is valid if and only if the bridge would import."""

from __future__ import annotations

from pathlib import Path

import pytest
import tfod

from tests.commands import Run
from tests.cvat.client.stub_server import StubServer
from tests.cvat.client.stub_state import StubTask
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of, zipped
from tests.mutants.sound import HEIGHT, WIDTH

# What is wrong with a file or a zip is found before the bridge has a part in it.
MUTANTS = [one for one in all_mutants() if one.code[:3] in ("EXA", "BOX", "LAB", "IMG", "NAM")]


def task_for(path: Path) -> StubTask:
    """A task with the labels and frames that a zip names."""
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
    return StubTask(1, "mutants", labels, frames, segments={10: (0, len(frames) - 1)})


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS, lambda one: not one.fires))
def test_the_check_and_the_dry_run_agree(
    mutant: Mutant, run: Run, stub: StubServer, tmp_path: Path
) -> None:
    path = tmp_path / "upload.zip"
    path.write_bytes(zipped(mutant))
    stub.tasks[1] = task_for(path)
    checked = run("check", path, "--for", "cvat", "--cvat", "task", 1)
    dry = run("cvat", "import", "task", 1, path, "--dry-run")
    assert checked.code == dry.code, (checked.out, dry.out, dry.err)
    assert checked.code in (0, 1)
