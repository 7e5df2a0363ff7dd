"""``tfod check --for od-api`` finds no error in a record if and only if both inputs for training,
``tfod.tensorflow`` and ``tfod.torch``, read it.

Records that an input refuses always have an error; a table lists errors with other reasons.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Finding
from tfod.checker.profiles.profile import READY
from tfod.checker.receivers import OD_API
from tfod.detection.labels.label_map import read_label_map
from tfod.detection.problems import READ
from tfod.errors import RecordError
from tfod.example.example import Example
from tfod.torch import Detections
from tfod.training.tensorflow import make_detection_decoder

from tests.changed_records import SOUND, changed_records, sound_record
from tests.conftest import examples
from tests.mutants.sound import LABEL_MAP, shard
from tests.training.tensorflow.test_check_agrees import payloads_of_mutants

_TRAINER = "the inputs return it; the trainer stops at it, or learns nonsense"
_NO_CLASS = "the inputs return the id -1 or the record's id; the trainer drops the object"
TAKEN: Mapping[str, str] = {
    **dict.fromkeys(("BOX002", "BOX003", "BOX006", "BOX012", "BOX013"), _TRAINER),
    **dict.fromkeys(("LAB006", "LAB009", "LAB010", "LAB011", "LAB014"), _NO_CLASS),
    **dict.fromkeys(("LAB007", "LAB012"), _NO_CLASS),
    **dict.fromkeys(("BOX020", "BOX021"), "the inputs return masks as bytes, points as numbers"),
    **dict.fromkeys(("BOX023", "NAM013", "IMG017"), "read unchanged, or as black by TensorFlow"),
    "EXA012": "both inputs read it, but differently",
    "IMG005": "the inputs read a GIF's first frame; the OD API's decoder stops at frames",
    "IMG007": "the inputs return boxes and image without rotation",
    "IMG009": "Pillow or TensorFlow may fill missing pixels with gray",
    "IMG014": "only the OD API's own decoder looks at image/format",
}
"""Rules whose errors neither input reports, and why."""
OF_DETECTION = sorted(
    name for name, one in SOUND.items() if {"image/encoded", "image/object/bbox/xmin"} <= one.keys()
)


@pytest.fixture(scope="module")
def decode(tmp_path_factory: pytest.TempPathFactory) -> tf.types.experimental.PolymorphicFunction:
    """The function that ``tfod.tensorflow.dataset`` maps over records of the OD API."""
    path = tmp_path_factory.mktemp("labels") / "label_map.pbtxt"
    path.write_bytes(LABEL_MAP)
    decoder = make_detection_decoder(read_label_map(str(path))[0])
    return tf.function(decoder, autograph=False, input_signature=[tf.TensorSpec((), tf.string)])


def assert_one_verdict(payloads: Sequence[bytes], folder: Path, decode: object) -> None:
    """Compare the errors of the check with the refusals of the inputs."""
    path = folder / "train.tfrecord"
    path.write_bytes(shard(*payloads))
    (folder / "label_map.pbtxt").write_bytes(LABEL_MAP)
    report = check_sources(
        [str(path)],
        Options(
            profile=READY["tf_detection_api"],
            receiver=OD_API,
            decode=parse_max_decoded("all"),
            max_findings=100_000,
        ),
    )
    errors = [one for one in report.findings if one.severity.value == "error"]
    torch_input = Detections(path)
    for number, payload in enumerate(payloads):
        output = _refusals(torch_input, number, payload, decode)
        found = [one for one in errors if one.record == number]
        assert found or not output, (output, payload)
        assert output or all(_is_taken(one, payload) for one in found), (found, payload)


def _is_taken(finding: Finding, payload: bytes) -> bool:
    if finding.code in ("EXA004", "EXA005"):
        # Neither looks at height, width and format, and a list without values has no dtype.
        return not Example.from_bytes(payload).value_count(finding.feature or "")
    return finding.code in TAKEN or (finding.code, finding.case) == ("BOX001", READ)


def _refusals(torch_input: Detections, number: int, payload: bytes, decode: object) -> str:
    output = ""
    try:
        torch_input[number]
    except RecordError as error:
        output = str(error)
    try:
        decode(payload)
    except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
        output += str(error)[:300]
    return output


def test_mutants_and_sound_records(mutants: Path, tmp_path: Path, decode: object) -> None:
    payloads = [*payloads_of_mutants(mutants), *map(sound_record, OF_DETECTION)]
    assert_one_verdict(payloads, tmp_path, decode)


@examples(60)
@given(data=st.data())
def test_changed_records(data: st.DataObject, decode: object) -> None:
    names = data.draw(st.lists(st.sampled_from(OF_DETECTION), min_size=1, max_size=5))
    payloads = [data.draw(changed_records(name)) for name in names]
    with tempfile.TemporaryDirectory() as folder:
        assert_one_verdict(payloads, Path(folder), decode)
