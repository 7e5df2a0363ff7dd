"""``tfod check --for cvat`` calls a zip valid if and only if the import accepts it.

Each mutant of each rule is zipped. The task has the labels and frames of the mutant's records, so
that only the mutation matters.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import pytest
import tfod
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.engine.models import Task
from hypothesis import assume, given
from hypothesis import strategies as st
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import CVAT
from tfod.checker.references.cvat_task import load_task
from tfod.checker.report import Report
from tfod.detection import keys

from tests.changed_records import SOUND, changed_shards, sound_record
from tests.conftest import examples
from tests.cvat.server.tasks import frame, import_into, labels, require_readable
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of, zipped
from tests.mutants.sound import HEIGHT, LABEL_MAP, WIDTH
from tests.mutants.task import task_xml
from tests.records import encode, image, objects
from tests.records import frame as shard_of
from tests.zip_forge import real_zip

# TFR013: a huge zip takes minutes, and a folder cannot be zipped.
MUTANTS = [one for one in all_mutants() if one.code != "TFR013"]
OF_MORE_THAN_A_ZIP = ("TSK", "CFG", "DAT")
"""Families that only concern other files, or have no errors. Their zips are valid."""
OF_DETECTION = sorted(name for name, one in SOUND.items() if "image/filename" in one)
FOR_EVERY_TASK = {"LAB007", "LAB009", "LAB018", "NAM001", "NAM002", "NAM009"}
"""Errors for every task. For a known task, TSK001, TSK002 and TSK006 replace them."""


def task_of(frames: dict[str, tuple[int, int]], *classes: str) -> Task:
    return Task([frame(name, *size) for name, size in frames.items()], labels(*classes))


def task_for(path: Path, *existing: str) -> tuple[Task, bytes]:
    """Return a task with the labels and frames of a zip, and its description."""
    names = dict.fromkeys(existing or ("a.jpg", "b.png"))
    classes = dict.fromkeys(("cat", "dog"))
    try:
        for record in tfod.read_detections(str(path)):
            names.setdefault(record.filename or "a.jpg")
            # A label of a task has no text that XML cannot store.
            texts = (text for text in record.class_text or () if text and text.isprintable())
            classes.update(dict.fromkeys(texts))
    except (tfod.TfodError, ValueError):
        pass
    frames = [name for name in names if name.isprintable() and name.isascii()]
    described = task_xml(*map(_escaped, frames), labels=tuple(map(_escaped, classes)))
    return task_of(dict.fromkeys(frames, (WIDTH, HEIGHT)), *classes), described


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def check(path: Path, description: Path | None = None) -> tuple[Report, set[str]]:
    """Return the report, and the codes of its errors."""
    task = load_task(cvat_xml=str(description)) if description else None
    report = check_sources([str(path)], Options(receiver=CVAT, task=task))
    return report, {one.code for one in report.findings if one.severity.value == "error"}


def import_error(task: Task, path: Path, temp_root: Path) -> str:
    """Import a zip, and return the message of the error, or an empty text."""
    try:
        import_into(task, path, temp_root=str(temp_root))
    except CvatImportError as error:
        require_readable(str(error), path)
        return str(error)
    return ""


def assert_one_verdict(zipped: bytes, folder: Path, temp_root: Path, *existing: str) -> None:
    """Check a zip with and without its task, and import it."""
    path, description = folder / "upload.zip", folder / "task.xml"
    path.write_bytes(zipped)
    task, described = task_for(path, *existing)
    description.write_bytes(described)
    report, codes = check(path, description)
    output = import_error(task, path, temp_root)
    assert report.valid == (output == ""), (output, codes)
    # Without the task, only its labels, names and sizes are not compared.
    alone = check(path)[1]
    assert alone - FOR_EVERY_TASK == {code for code in codes if not code.startswith("TSK")}
    assert output or not alone


def family_suffices(mutant: Mutant) -> bool:
    """Only the check can distinguish these mutants from a valid zip."""
    return not mutant.fires or mutant.code.startswith(OF_MORE_THAN_A_ZIP)


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS, family_suffices))
def test_the_check_and_the_import_agree(mutant: Mutant, tmp_path: Path, temp_root: Path) -> None:
    assert_one_verdict(zipped(mutant), tmp_path, temp_root)


def zip_of(data: bytes) -> bytes:
    return real_zip([("a.tfrecord", data), ("label_map.pbtxt", LABEL_MAP)])


@pytest.mark.parametrize("name", OF_DETECTION)
def test_valid_records(name: str, tmp_path: Path, temp_root: Path) -> None:
    assert_one_verdict(zip_of(shard_of(sound_record(name))), tmp_path, temp_root, "a.png")


@examples(60)
@given(name=st.sampled_from(OF_DETECTION), data=st.data())
def test_changed_records(name: str, data: st.DataObject, tmp_path: Path, temp_root: Path) -> None:
    shard = data.draw(changed_shards(name))
    assume(keys.IMAGE_MASKS["semantic"].encode() not in shard)  # masks of DeepLab are not checked
    assert_one_verdict(zip_of(shard), tmp_path, temp_root, "a.png")


TEXT, LABEL, NAME = "image/object/class/text", "image/object/class/label", "image/filename"
CAT = b"item { id: 1 name: 'cat' }"


def annotated(name: str = "a.jpg", *without: str, label: int = 1) -> bytes:
    """Return a record of one object, without some of its features."""
    features = image(name, HEIGHT, WIDTH) | objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [label])
    return encode({key: value for key, value in features.items() if key not in without})


EMPTY = encode(image("b.png", HEIGHT, WIDTH))
UNNAMED = encode({"image/height": HEIGHT, "image/width": WIDTH})


@pytest.mark.parametrize(
    ("records", "label_map", "code"),
    [
        ([annotated()], None, ""),
        ([annotated(), EMPTY], None, ""),
        ([annotated("a.jpg", LABEL)], None, ""),
        ([annotated("a.jpg", TEXT)], CAT, ""),
        ([annotated(label=7)], CAT, ""),
        ([annotated("a.jpg", NAME)], None, "NAM001"),
        ([annotated("")], None, "NAM001"),
        ([annotated(), annotated("a.jpg", NAME)], None, "NAM001"),
        ([annotated(), UNNAMED], None, "NAM009"),
        ([annotated(), annotated()], None, "NAM002"),
        ([annotated("a.jpg", TEXT)], None, "LAB018"),
        ([annotated(), annotated("b.png", TEXT)], None, "LAB018"),
        ([annotated("a.jpg", TEXT)], b"", "LAB007"),
        ([annotated("a.jpg", TEXT, label=7)], CAT, "LAB007"),
        ([annotated("a.jpg", TEXT, label=-1)], CAT, "LAB009"),
        ([annotated("a.jpg", TEXT, LABEL)], None, "LAB014"),
        ([annotated("a.jpg", TEXT, LABEL)], CAT, "LAB014"),
    ],
)
def test_errors_for_every_task(
    records: list[bytes], label_map: bytes | None, code: str, tmp_path: Path, temp_root: Path
) -> None:
    """The check reports them without a task."""
    path = tmp_path / "upload.zip"
    entries = [("a.tfrecord", shard_of(*records))]
    entries += [] if label_map is None else [("label_map.pbtxt", label_map)]
    path.write_bytes(real_zip(entries))
    task = task_of(dict.fromkeys(("a.jpg", "b.png"), (WIDTH, HEIGHT)), "cat", "dog")
    report, codes = check(path)
    assert report.valid == (import_error(task, path, temp_root) == "")
    assert codes == {code} - {""}


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
    records = list(tfod.read_detections(str(path))) if valid else []
    sizes = {one.filename or "": (one.width or WIDTH, one.height or HEIGHT) for one in records}
    classes = {text: None for one in records for text in one.class_text or ()} or {"cat": None}
    task = task_of(sizes or {"a.jpg": (WIDTH, HEIGHT)}, *classes)
    assert (check(path)[0].valid, import_error(task, path, temp_root) == "") == (valid, valid)
