"""One verdict: ``tfod check --for cvat`` is valid if and only if the import takes the zip.

Every mutant of every rule is zipped as an annotator would zip it, and the task has the labels and
frames that the mutant's records name, so that what is wrong is what the mutant is about.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import tfod
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.engine.models import Annotations, Picture, Task
from tfod_validator.check import Options, check_sources
from tfod_validator.receivers import CVAT
from tfod_validator.report import Report
from tfod_validator.task import load_task

from tests.cvat.tasks import box, frame, import_into, labels
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import zipped
from tests.mutants.sound import HEIGHT, WIDTH
from tests.mutants.task import task_xml
from tests.zip_forge import real_zip

# A huge zip, which takes minutes; a folder that cannot be zipped.
MUTANTS = [one for one in all_mutants() if one.code != "TFR013"]  # no zip has such an entry
EXCEPTIONS = {
    "SET003-one-has-a-class-more-pass-a": "TSK001 is about classes of boxes, and CVAT also refuses "
    "a tag (image/class/label) whose label the task lacks",
}
"""Where the import refuses a valid zip, and why."""


def task_for(path: Path) -> tuple[Task, bytes]:
    """A task with the labels and frames that a zip names, and its description."""
    names, classes = dict.fromkeys(("a.jpg", "b.png")), dict.fromkeys(("cat", "dog"))
    try:
        for record in tfod.read_detections(str(path)):
            names.setdefault(record.filename or "a.jpg")
            classes.update(dict.fromkeys(text for text in record.class_text or () if text))
    except (tfod.TfodError, ValueError):
        pass
    frames = [name for name in names if name.isprintable() and name.isascii()]
    described = task_xml(*frames, labels=tuple(classes))
    pictures: list[Picture] = [frame(name, WIDTH, HEIGHT) for name in frames]
    task = Task(pictures, labels(*classes), Annotations([box(0, "cat")], [], []))
    return task, described


def verdict(path: Path, description: Path | None = None) -> Report:
    task = load_task(cvat_xml=str(description)) if description else None
    return check_sources([str(path)], Options(receiver=CVAT, task=task))


def is_taken(task: Task, path: Path, temp_root: Path) -> str:
    """What the import says; nothing where it takes the zip."""
    try:
        import_into(task, path, temp_root=str(temp_root))
    except CvatImportError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.name)
def test_the_check_and_the_import_agree(mutant: Mutant, tmp_path: Path, temp_root: Path) -> None:
    path, xml = tmp_path / "upload.zip", tmp_path / "task.xml"
    path.write_bytes(zipped(mutant))
    task, described = task_for(path)
    xml.write_bytes(described)
    report = verdict(path, xml)
    said = is_taken(task, path, temp_root)
    errors = [one for one in report.findings if one.severity.value == "error"]
    if report.valid and said and mutant.name in EXCEPTIONS:
        pytest.xfail(EXCEPTIONS[mutant.name])
    assert report.valid == (said == ""), (said, [(one.code, one.message) for one in errors])
    # Without the task its labels, names and sizes are not compared; all else is the same.
    alone = {one.code for one in verdict(path).findings if one.severity.value == "error"}
    assert alone == {one.code for one in errors if not one.code.startswith("TSK")}


@pytest.mark.parametrize(
    ("folder", "valid"),
    [
        ("anki-overdrive-cars", True),
        ("blood-cells", True),  # a box without area
        ("drawn-rectangles", True),
        ("hyphal-tips", True),
        ("titanic-table", False),
        ("viewer-sample", False),
    ],
)
def test_real_shards(
    corpus: Path, folder: str, valid: bool, tmp_path: Path, temp_root: Path
) -> None:
    path = tmp_path / "upload.zip"
    files = [one for one in sorted((corpus / folder).rglob("*")) if one.is_file()]
    path.write_bytes(real_zip([(one.name, one.read_bytes()) for one in files]))
    records = [] if not valid else list(tfod.read_detections(str(path)))
    names = {one.filename or "": (one.width or WIDTH, one.height or HEIGHT) for one in records}
    classes = {text: None for one in records for text in one.class_text or ()} or {"cat": None}
    frames = [frame(name, *size) for name, size in names.items()] or [frame("a.jpg")]
    task = Task(frames, labels(*classes), Annotations())
    report = check_sources([str(path)], Options(receiver=CVAT))
    assert (report.valid, is_taken(task, path, temp_root) == "") == (valid, valid)
