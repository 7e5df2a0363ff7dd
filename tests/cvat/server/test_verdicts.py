"""One verdict: ``tfod check --for cvat`` is valid if and only if the import takes the zip.

Every mutant of every rule is zipped as an annotator would zip it, and the task has the labels and
frames that the mutant's records name, so that what is wrong is what the mutant is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
import tfod
from cvat.apps.dataset_manager.bindings import CvatImportError
from cvat.apps.engine.models import Annotations, Frame, Task
from hypothesis import assume, given
from hypothesis import strategies as st
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import CVAT
from tfod.checker.references.cvat_task import load_task
from tfod.checker.report import Report
from tfod.detection import keys

from tests.changed_records import SOUND, changed_shards, sound_record
from tests.conftest import examples
from tests.cvat.server.tasks import frame, import_into, labels
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of, zipped
from tests.mutants.sound import HEIGHT, LABEL_MAP, WIDTH
from tests.mutants.task import task_xml
from tests.records import encode, image, objects
from tests.records import frame as shard_of
from tests.zip_forge import real_zip

# A huge zip, which takes minutes; a folder that cannot be zipped.
MUTANTS = [one for one in all_mutants() if one.code != "TFR013"]  # no zip has such an entry
OF_MORE_THAN_A_ZIP = ("TSK", "CFG", "DAT")
"""Families about what is given beside it, or about infos and warnings: the zip alone is sound."""
OF_DETECTION = sorted(name for name, one in SOUND.items() if "image/filename" in one)
WHATEVER_THE_TASK = {"LAB007", "LAB009", "LAB018", "NAM001", "NAM002", "NAM009"}
"""What is refused whatever the task: of a known task TSK001, TSK002 and TSK006 say it."""


def task_for(path: Path, *frames_there: str) -> tuple[Task, bytes]:
    """A task with the labels and frames that a zip names, and its description."""
    names = dict.fromkeys(frames_there or ("a.jpg", "b.png"))
    classes = dict.fromkeys(("cat", "dog"))
    try:
        for record in tfod.read_detections(str(path)):
            names.setdefault(record.filename or "a.jpg")
            # A text that XML cannot hold cannot be a label of a task.
            texts = (text for text in record.class_text or () if text and text.isprintable())
            classes.update(dict.fromkeys(texts))
    except (tfod.TfodError, ValueError):
        pass
    frames = [name for name in names if name.isprintable() and name.isascii()]
    described = task_xml(*map(_escaped, frames), labels=tuple(map(_escaped, classes)))
    images: list[Frame] = [frame(name, WIDTH, HEIGHT) for name in frames]
    task = Task(images, labels(*classes), Annotations())
    return task, described


def _escaped(text: str) -> str:
    return escape(text, {'"': "&quot;"})


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


def one_of_a_family_suffices(mutant: Mutant) -> bool:
    """What passes differs from a sound zip in what only the check looks at."""
    return not mutant.fires or mutant.code.startswith(OF_MORE_THAN_A_ZIP)


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS, one_of_a_family_suffices))
def test_the_check_and_the_import_agree(mutant: Mutant, tmp_path: Path, temp_root: Path) -> None:
    path, xml = tmp_path / "upload.zip", tmp_path / "task.xml"
    path.write_bytes(zipped(mutant))
    task, described = task_for(path)
    xml.write_bytes(described)
    assert_one_verdict(path, xml, task, temp_root)


def assert_one_verdict(path: Path, description: Path, task: Task, temp_root: Path) -> None:
    """See that a zip is valid, with its task and without, if and only if the import takes it."""
    report = verdict(path, description)
    output = is_taken(task, path, temp_root)
    errors = [one for one in report.findings if one.severity.value == "error"]
    assert report.valid == (output == ""), (output, [(one.code, one.message) for one in errors])
    # Without the task its labels, names and sizes are not compared; all else is the same.
    alone = {one.code for one in verdict(path).findings if one.severity.value == "error"}
    assert alone - WHATEVER_THE_TASK == {
        one.code for one in errors if not one.code.startswith("TSK")
    }
    assert output or not alone


@pytest.mark.parametrize("name", OF_DETECTION)
def test_sound_records(name: str, tmp_path: Path, temp_root: Path) -> None:
    assert_one_verdict_of(shard_of(sound_record(name)), tmp_path, temp_root)


@examples(60)
@given(name=st.sampled_from(OF_DETECTION), data=st.data())
def test_changed_records(name: str, data: st.DataObject, tmp_path: Path, temp_root: Path) -> None:
    shard = data.draw(changed_shards(name))
    assume(keys.IMAGE_MASKS["semantic"].encode() not in shard)  # DeepLab's, which nobody checks
    assert_one_verdict_of(shard, tmp_path, temp_root)


def assert_one_verdict_of(shard: bytes, folder: Path, temp_root: Path) -> None:
    path, xml = folder / "upload.zip", folder / "task.xml"
    path.write_bytes(real_zip([("a.tfrecord", shard), ("label_map.pbtxt", LABEL_MAP)]))
    task, described = task_for(path, "a.png")
    xml.write_bytes(described)
    assert_one_verdict(path, xml, task, temp_root)


TEXT, LABEL, NAME = "image/object/class/text", "image/object/class/label", "image/filename"
CAT = b"item { id: 1 name: 'cat' }"


def annotated(name: str = "a.jpg", *, without: Sequence[str] = (), label: int = 1) -> bytes:
    """A record of one object, without some of its features."""
    features = image(name, HEIGHT, WIDTH) | objects([(0.1, 0.1, 0.9, 0.9)], ["cat"], [label])
    return encode({key: value for key, value in features.items() if key not in without})


def bare(*without: str) -> bytes:
    """A record without objects, and without some of its features."""
    features = image("b.png", HEIGHT, WIDTH)
    return encode({key: value for key, value in features.items() if key not in without})


@pytest.mark.parametrize(
    ("records", "label_map", "code"),
    [
        ([annotated()], None, ""),
        ([annotated(), bare()], None, ""),
        ([annotated(without=[LABEL])], None, ""),
        ([annotated(without=[TEXT])], CAT, ""),
        ([annotated(label=7)], CAT, ""),
        ([annotated(without=[NAME])], None, "NAM001"),
        ([annotated("")], None, "NAM001"),
        ([annotated(), annotated(without=[NAME])], None, "NAM001"),
        ([annotated(), bare(NAME)], None, "NAM009"),
        ([annotated(), annotated()], None, "NAM002"),
        ([annotated(without=[TEXT])], None, "LAB018"),
        ([annotated(), annotated("b.png", without=[TEXT])], None, "LAB018"),
        ([annotated(without=[TEXT])], b"", "LAB007"),
        ([annotated(without=[TEXT], label=7)], CAT, "LAB007"),
        ([annotated(without=[TEXT], label=-1)], CAT, "LAB009"),
        ([annotated(without=[TEXT, LABEL])], None, "LAB014"),
        ([annotated(without=[TEXT, LABEL])], CAT, "LAB014"),
    ],
)
def test_what_every_task_refuses_needs_no_task_to_be_told(
    records: list[bytes], label_map: bytes | None, code: str, tmp_path: Path, temp_root: Path
) -> None:
    path = tmp_path / "upload.zip"
    entries = [("a.tfrecord", shard_of(*records))]
    entries += [] if label_map is None else [("label_map.pbtxt", label_map)]
    path.write_bytes(real_zip(entries))
    frames: list[Frame] = [frame(name, WIDTH, HEIGHT) for name in ("a.jpg", "b.png")]
    task = Task(frames, labels("cat", "dog"), Annotations())
    alone = verdict(path)
    assert alone.valid == (is_taken(task, path, temp_root) == "")
    assert {one.code for one in alone.findings if one.severity.value == "error"} == {code} - {""}


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
