"""``tfod check --for datumaro`` is valid if and only if the import has no error.

Errors of the import are errors for any receiver.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from datumaro.components.dataset import Dataset
from datumaro.components.errors import DatasetImportError
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.check import Options, check_sources
from tfod.checker.receivers import DATUMARO
from tfod.detection import keys
from tfod.errors import TfodError
from tfod.tfrecord.record_index import close_files

from tests.changed_records import SOUND, changed_shards, sound_record
from tests.commands import Run
from tests.conftest import examples
from tests.files import write_file, write_files
from tests.mutants.make import all_mutants
from tests.mutants.registry import Mutant
from tests.mutants.run import parameters_of
from tests.mutants.sound import LABEL_MAP, shard
from tests.records import encode
from tests.zip_forge import Item, forge, real_zip

OWN_FORMATS = {
    "keras_coco": ["tf_keras_coco"],
    "image_classification": ["tf_image_classification"],
    "image_label": ["tf_image_classification"],
    "slim_classification": [],
}
"""Profiles without the OD API's keys, which tf_detection_api reads with the profile, and the
formats that read them, too."""
VARIANTS = ("image_classification", "image_label")
"""Profiles whose keys follow the records; tf_detection_api has the keys of the profile's file."""


def refusals(path: Path, profile: str) -> list[str]:
    """The errors of the import, for each way to read shards of a profile."""
    options = {"profile": profile} if profile in OWN_FORMATS else {}
    output = [] if profile in VARIANTS else [_refusal(path, "tf_detection_api", options)]
    return output + [_refusal(path, name, {}) for name in OWN_FORMATS.get(profile, ())]


def _refusal(path: Path, name: str, options: Mapping[str, str]) -> str:
    try:
        Dataset.import_from(str(path), name, **options)
    except DatasetImportError as error:
        return str(error.__cause__ or error)
    finally:
        close_files()  # some of the thousands of shards would stay open
    return ""


def assert_one_verdict(path: Path) -> bool:
    """Compare the verdict with the import; return whether both are valid."""
    try:
        report = check_sources([str(path)], Options(receiver=DATUMARO))
    except TfodError as error:
        assert "which tfod does not check" in str(error)
        return False
    output = "; ".join(filter(None, refusals(path, report.profile.name)))
    if "only zips; pass a zip" in output:  # the check reads them in a folder, too
        (path,) = path.glob("*.zip")
        output = "; ".join(filter(None, refusals(path, report.profile.name)))
    errors = [(one.code, one.message) for one in report.findings if one.severity.value == "error"]
    assert report.valid is not bool(output), output or errors
    assert report.valid or not check_sources([str(path)]).valid, output
    return report.valid


MUTANTS = [one for one in all_mutants() if one.code != "TFR013"]  # which is huge


@pytest.mark.parametrize("mutant", parameters_of(MUTANTS))
def test_mutants(mutant: Mutant, mutants: Path) -> None:
    assert_one_verdict(Path(mutant.path(mutants)))


def test_real_shards(corpus: Path) -> None:
    paths = [path for path in sorted(corpus.rglob("*record*")) if path.is_file()]
    assert sum(map(assert_one_verdict, paths)) > 10


@pytest.mark.parametrize("name", SOUND)
@examples(25)
@given(data=st.data())
def test_changed_records(name: str, data: st.DataObject) -> None:
    """Fuzzing begins with valid shards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.tfrecord")
        path.write_bytes(shard(sound_record(name)))
        assert assert_one_verdict(path)
        path.write_bytes(data.draw(changed_shards(name)))
        assert_one_verdict(path)


TWO = SOUND["annotations"]
TRAINING = SOUND["training"]
KERAS = SOUND["keras-coco"]
SIZE = (keys.HEIGHT, keys.WIDTH)


def without(record: Mapping[str, Any], *absent: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in absent}


@pytest.mark.parametrize(
    ("record", "is_valid"),
    [
        # Values that the import skips or reads unchanged.
        ({**TWO, "image/object/difficult": [1]}, True),
        ({**TWO, "image/object/view": ["left"]}, True),
        ({**TWO, "image/object/weight": [1.0, 1.0, 1.0]}, True),
        ({**TWO, keys.AREA: [4.0]}, True),
        ({**TWO, "image/object/difficult": [0.0, 1.0]}, True),
        ({**TWO, "image/object/group_of": [b"0", b"1"]}, True),
        ({**TWO, "image/object/attribute/colour": ["red"]}, True),
        ({**TRAINING, keys.FORMAT: []}, True),
        (without(TWO, keys.SOURCE_ID), True),
        (without(TRAINING, keys.ENCODED, keys.SOURCE_ID), True),
        (without(TRAINING, *SIZE), True),  # the image's header has it
        ({**TRAINING, keys.HEIGHT: 0}, True),
        ({**KERAS, "image_id": b"a"}, True),
        # An attribute of another length hides no wrong box.
        ({**TWO, "image/object/difficult": [1], "image/object/bbox/xmax": [0.1, 0.1]}, False),
        ({**TWO, "image/object/weight": [1.0], "image/object/bbox/ymin": [0.1]}, False),
        (without(TWO, *SIZE), False),
        ({**TWO, keys.HEIGHT: 0}, False),
        ({**TWO, keys.CLASS_TEXT: ["cat"]}, False),
        ({**TWO, keys.CLASS_LABEL: [1.0, 2.0]}, False),
        ({**TWO, keys.FILENAME: ["a", "b"]}, False),
        # A type that the import tolerates needs the right number of values, too.
        ({**KERAS, "image_id": [b"a", b"b"]}, False),
        ({**KERAS, "image_id": [1, 2]}, False),
        ({**KERAS, "category_id": [1, 2]}, False),
        ({**TWO, keys.MASK: [0.0, 1.0]}, False),
        ({"fare": 1.5}, False),
        ({}, False),
    ],
)
def test_odd_records(record: Mapping[str, Any], is_valid: bool, run: Run, tmp_path: Path) -> None:
    payload = encode(record)
    write_files(tmp_path, {"a.tfrecord": shard(payload), "label_map.pbtxt": LABEL_MAP})
    path = tmp_path / "a.tfrecord"
    assert assert_one_verdict(path) is is_valid
    checked = run("check", path, "--for", "datumaro")
    assert (checked.code, checked.out.startswith("VALID")) == (int(not is_valid), is_valid)


FULL = shard(sound_record("annotations"))
NOTHING = gzip.compress(b"")


@pytest.mark.parametrize("is_zip", [False, True])
@pytest.mark.parametrize(
    ("files", "is_valid"),
    [
        ({"a.tfrecord": b""}, False),
        ({"a-00000-of-00002": b""}, False),
        ({"a.tfrecord.gz": NOTHING}, False),
        ({"a.tfrecord": FULL, "b.tfrecord": b""}, False),
        ({"a.tfrecord": FULL, "b-00000-of-00002": b""}, False),
        ({"a-00000-of-00002": FULL, "a-00001-of-00002": b""}, True),
        ({"a.tfrecord": FULL, "b.tfrecord.gz": NOTHING}, True),
        ({"a-00000-of-00002": FULL}, True),
        ({"a.tfrecord": FULL, "label_map.pbtxt": b"item {"}, False),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else None,
)
def test_sets_of_shards(files: Any, is_valid: bool, is_zip: bool, tmp_path: Path) -> None:
    path = write_files(tmp_path / "set", files)
    if is_zip:
        path = write_file(tmp_path / "set.zip", real_zip(files.items()))
    assert assert_one_verdict(path) is is_valid


@pytest.mark.parametrize(
    ("flaw", "is_read"),
    [({"crc": 1}, True), ({"flags": 1}, False), ({"own_name": b"other"}, False)],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize("name", ["a.tfrecord", "images/a.png"])
def test_flaws_in_zips(name: str, flaw: dict[str, Any], is_read: bool, tmp_path: Path) -> None:
    """Other files with a flaw, and a wrong checksum after whole records, stop no import."""
    files = {"a.tfrecord": FULL, "images/a.png": b"x" * 50}
    items = [Item(one, data, **(flaw if one == name else {})) for one, data in files.items()]
    (tmp_path / "a.zip").write_bytes(forge(*items))
    assert assert_one_verdict(tmp_path / "a.zip") is (is_read or name != "a.tfrecord")
