"""One verdict: ``tfod check --for datumaro`` finds no error if and only if Datumaro's import is
whole: it refuses nothing, and has each record's boxes, classes and image.

What the import refuses is always an error, whoever reads the shards; what is an error for another
reason than the import's is in tables, with the reason.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import tfod
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError
from hypothesis import given
from hypothesis import strategies as st
from tfod.check.check import Options, check_sources
from tfod.check.finding import Finding
from tfod.check.profiles.profile import READY
from tfod.check.receivers import DATUMARO
from tfod.check.report import Report
from tfod.detection import keys
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.problems import READ_KINDS, READ_ONCE
from tfod.errors import TfodError
from tfod.example.wire import Kind
from tfod.tfrecord.record_index import close_files

from tests.changed_records import SOUND, changed_shards, is_of_attributes, sound_record
from tests.conftest import examples
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of
from tests.mutants.sound import shard

OWN_FORMATS = {
    "keras_coco": ["tf_keras_coco"],
    "image_classification": ["tf_image_classification"],
    "image_label": ["tf_image_classification"],
    "slim_classification": [],
}
"""Profiles of other keys than the OD API's, and the formats that read them beside
tf_detection_api, which reads them with the profile."""
_DECODED = "the import leaves images as they are until somebody uses them"
_LABELS = "the import numbers classes itself: a text or an id that no map explains becomes a class"
_MAPS = "the import reads what is meant, and gives each class of the map a label"
_ZIP = "nothing is unpacked: the import reads the shards and label maps that it finds in the zip"
_SETS = "the import reads the shards that are there, each with its own label map"
TAKEN: Mapping[str, str] = {
    "EXA003": "TensorFlow asks for the feature; the import has no need of it",
    "EXA010": "of a kind that no profile knows, the import reads the keys that it knows",
    "EXA012": "protobuf reads it, and the import reads what protobuf reads",
    "BOX003": "the import cuts boxes at the image's edge, and says so",
    "BOX005": "the import cuts boxes at the image's edge, and says that they look like pixels",
    "BOX012": "a box without area is a box to the import",
    "BOX013": "each box may be sound for itself; BOX006 is about those that are not",
    "BOX021": "a point is where the record has it",
    **dict.fromkeys(
        ("BOX020", "IMG001", "IMG002", "IMG003", "IMG005", "IMG009", "IMG014"), _DECODED
    ),
    "IMG006": "the record's word counts",
    "IMG007": "the record's word counts",
    "IMG011": "subsets are the user's affair",
    "IMG012": "the import takes the size from the image's header instead",
    **dict.fromkeys(("LAB006", "LAB007", "LAB009", "LAB010", "LAB011", "LAB012"), _LABELS),
    "LAB014": "an object may have no label in Datumaro",
    **dict.fromkeys(("LAB003", "LAB004", "LAB005", "LAB015"), _MAPS),
    "NAM001": "the item is called after its number",
    "NAM006": "a name is an id to Datumaro, whatever letters it has",
    **dict.fromkeys(("SET001", "SET002", "SET004"), _SETS),
    **dict.fromkeys(("ZIP002", "ZIP004", "ZIP005", "ZIP007"), _ZIP),
    "ZIP012": "records have checksums of their own, and images beside the shards are not read",
}
"""Rules whose errors the import does not mind, and why."""
LOST: Mapping[str, str] = {
    "EXA003": "a record without any feature, and a classification's without a label, are refused",
    "EXA010": "what the keys mean is not known, so nothing is known to be whole",
    "BOX005": "boxes in pixels are cut to nothing at the image's edge",
    "IMG011": "all images of a subset are in another one",
    "IMG012": "without an image, whose header says it, boxes cannot be scaled",
    **dict.fromkeys(("SET001", "SET002"), "records of the set are missing"),
    **dict.fromkeys(("ZIP002", "ZIP004", "ZIP005", "ZIP007", "ZIP012"), "others unpack the zip"),
}
"""Those of them that are errors for Datumaro, too: the import goes on, but something is lost."""


def _is_not_read(finding: Finding, path: Path, field_mapping: FieldMapping) -> bool:
    """Attributes and ids of images the import takes of any dtype; an empty list has no value."""
    read = {*READ_KINDS, *field_mapping.all_keys} - {keys.AREA, field_mapping.area}
    example = list(tfod.read_examples(str(path)))[finding.record or 0]
    key = finding.feature or ""
    is_text_id = key == field_mapping.image_id and example.kind(key) is Kind.BYTES
    return key not in read or is_text_id or not example.value_count(key)


def _is_read_in_any_number(finding: Finding, path: Path, field_mapping: FieldMapping) -> bool:
    """The import takes no value for a feature that is not there, and several of most features."""
    several = (
        field_mapping.class_label,
        field_mapping.image_class_label,
        field_mapping.annotation_id,
    )
    once = {*READ_ONCE, *field_mapping.all_keys}.difference(several)
    return (
        finding.value == 0
        or finding.feature not in once
        or _is_not_read(finding, path, field_mapping)
    )


TAKEN_WHERE: Mapping[str, Callable[[Finding, Path, FieldMapping], bool]] = {
    "EXA004": _is_not_read,
    "EXA005": _is_read_in_any_number,
    "BOX001": lambda one, _, field_mapping: is_of_attributes(one, field_mapping),
}
"""Rules of which the import minds some errors, and tests of those that it does not mind."""


def refusals(path: Path, profile: str) -> list[str]:
    """What the import says, in each way to read shards of a profile; nothing where it takes it."""
    options = {"profile": profile} if profile in OWN_FORMATS else {}
    output = [_refusal(path, "tf_detection_api", options)]
    return output + [_refusal(path, name, {}) for name in OWN_FORMATS.get(profile, ())]


def _refusal(path: Path, name: str, options: Mapping[str, str]) -> str:
    try:
        Dataset.import_from(str(path), name, **options)
    except DatasetImportError as error:
        return str(error.__cause__ or error)
    finally:
        close_files()  # of thousands of shards some hundred would stay open
    return ""


def assert_one_verdict(path: Path) -> None:
    """See that what the import refuses is an error, and what is an error is refused."""
    output = None
    for receiver, taken in ((None, TAKEN), (DATUMARO, LOST)):
        options = Options(receiver=receiver)
        try:
            report = check_sources([str(path)], options)
        except TfodError as error:
            assert "which tfod does not check" in str(error)
            return
        if output is None:
            output = "; ".join(filter(None, refusals(path, report.profile.name)))
        _assert_agrees(path, report, output, taken)


def _assert_agrees(path: Path, report: Report, output: str, taken: Mapping[str, str]) -> None:
    field_mapping = (
        READY[report.profile.name].field_mapping if report.profile.name in READY else FieldMapping()
    )
    errors = [one for one in report.findings if one.severity.value == "error"]
    counting = [
        one
        for one in errors
        if one.code not in taken
        and not (one.code in TAKEN_WHERE and TAKEN_WHERE[one.code](one, path, field_mapping))
    ]
    assert errors or not output, output
    assert output or not counting, [(one.code, one.message) for one in counting]


MUTANTS = [one for one in all_mutants() if one.code != "TFR013"]  # which is huge


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS))
def test_mutants(mutant: Mutant, mutants: Path) -> None:
    path = Path(mutant.path(mutants))
    assert_one_verdict(path)


def test_real_shards(corpus: Path) -> None:
    paths = [path for path in sorted(corpus.rglob("*record*")) if path.is_file()]
    assert len(paths) > 10
    for path in paths:
        assert_one_verdict(path)


@pytest.mark.parametrize("name", SOUND)
def test_sound_records(name: str, tmp_path: Path) -> None:
    """Those that fuzzing starts from are valid, or it would see nothing."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(shard(sound_record(name)))
    report = check_sources([str(path)], Options())
    assert report.valid
    assert not any(refusals(path, report.profile.name))


@pytest.mark.parametrize("name", SOUND)
@examples(25)
@given(data=st.data())
def test_changed_records(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        path.write_bytes(data.draw(changed_shards(name)))
        assert_one_verdict(path)
