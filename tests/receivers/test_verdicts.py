"""Records that are valid for ``tfod check --for R`` are read by R's code, to the same boxes and
class ids; a record at which R stops has an error.

A table lists errors with other reasons.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tfod
from tfod.checker.analysis.decoding import parse_max_decoded
from tfod.checker.check import Options, check_sources
from tfod.checker.finding import Severity
from tfod.checker.profiles.profile import OFF, READY
from tfod.checker.receivers import MODEL_MAKER, OD_API, TF_VISION, Receiver

from tests.changed_records import SOUND, sound_record
from tests.mutants.sound import LABEL_MAP, shard
from tests.receivers.decoders import Decoded, model_maker, od_api, tf_vision
from tests.training.tensorflow.test_check_agrees import payloads_of_mutants

_BOXES = "the loss becomes NaN, or the box trains as nothing or as another"
_IDS = "the object trains as the background, or as a class that does not exist"
_LISTS = "the lists are padded or cut: objects get values of another object, or none"
_MASKS = "only receivers that read masks or keypoints look"
_IMPORT = "boxes and classes are valid; receivers that need this feature stop, as our import does"
_EMPTY = f"a list without values has no dtype; {_MASKS}"
_EVERYWHERE: Mapping[str, str] = {
    **dict.fromkeys(("BOX002", "BOX003", "BOX005", "BOX006", "IMG007"), _BOXES),
    **dict.fromkeys(("LAB007", "LAB009"), _IDS),
    **dict.fromkeys(("BOX015", "BOX016", "BOX020", "BOX021", "BOX023"), _MASKS),
    "IMG017": "the image is decoded to black",
    **dict.fromkeys(("EXA013", "LAB019"), _IMPORT),
    "BOX001": _LISTS,
    "EXA002": "it has the bytes of an Example, and is read as one",
}
_IDS_ALONE: Mapping[str, str] = {
    **_EVERYWHERE,
    **dict.fromkeys(("LAB008", "LAB017"), "the id trains, but the text is a different class"),
    **dict.fromkeys(("EXA004", "EXA005"), _EMPTY),
}
TAKEN: Mapping[str, Mapping[str, str]] = {
    "od-api": {
        **_EVERYWHERE,
        **dict.fromkeys(("LAB006", "LAB010", "LAB011", "LAB014"), _IDS),
        "IMG005": "the decoder gives a GIF's frames, at which the model stops",
        "IMG014": "the decoder gives the file's bytes as pixels",
    },
    "tf-vision": {**_IDS_ALONE, "BOX019": _MASKS},
    "model-maker": _IDS_ALONE,
}
"""Errors in records that a receiver's code reads, and why they are errors."""
READ: Mapping[str, Callable[[str], Callable[[bytes], Decoded]]] = {
    "od-api": od_api,
    "tf-vision": lambda _: tf_vision(),
    "model-maker": lambda _: model_maker(),
}


@pytest.fixture(scope="module")
def payloads(mutants: Path) -> list[bytes]:
    """All records of all mutants, and valid ones of every kind."""
    changed = payloads_of_mutants(mutants)
    assert len(changed) > 200
    valid = [sound_record(name) for name, one in SOUND.items() if "image/encoded" in one]
    return [*changed, *valid]


@pytest.mark.parametrize("max_alike", [2, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("receiver", [OD_API, TF_VISION, MODEL_MAKER], ids=lambda one: one.name)
def test_valid_records_are_read(
    receiver: Receiver, payloads: Sequence[bytes], tmp_path: Path, max_alike: int
) -> None:
    """All valid records, and at most ``max_alike`` of the records with the same errors."""
    label_map = tmp_path / "label_map.pbtxt"
    label_map.write_bytes(LABEL_MAP)
    # A shard for each record: some problems are reported only once per shard.
    paths = [tmp_path / f"{number}.tfrecord" for number in range(len(payloads))]
    for path, payload in zip(paths, payloads, strict=True):
        path.write_bytes(shard(payload))
    errors = errors_of(paths, receiver)
    read = READ[receiver.name](str(label_map))
    taken: set[str] = set()
    valid = 0
    alike: Counter[frozenset[str]] = Counter()
    for path, payload in zip(paths, payloads, strict=True):
        same = frozenset(errors[str(path)])
        alike[same] += 1
        if same and alike[same] > max_alike:
            continue
        try:
            decoded = read(payload)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError) as error:
            assert errors[str(path)], (str(error)[-300:], payload)
            continue
        found = errors[str(path)]
        taken |= found
        if not found:
            assert_equal(path, decoded, has_texts=receiver is OD_API)
            valid += 1
    assert valid > 100
    assert taken == TAKEN[receiver.name].keys()


def errors_of(paths: Sequence[Path], receiver: Receiver) -> Mapping[str, set[str]]:
    """The codes of the errors in the records of each shard."""
    options = Options(
        profile=READY[receiver.profile or ""],
        receiver=receiver,
        severities={"IMG011": OFF},  # each shard is a subset
        decode=parse_max_decoded("all"),
        max_findings=100_000,
    )
    found: defaultdict[str, set[str]] = defaultdict(set)
    for one in check_sources([str(path) for path in paths], options).findings:
        if one.severity is Severity.ERROR and one.record is not None:
            found[one.shard].add(one.code)
    return found


def assert_equal(path: Path, decoded: Decoded, *, has_texts: bool) -> None:
    """Compare boxes and classes with the receiver's."""
    (ours,) = tfod.read_detections(path)
    np.testing.assert_array_equal(ours.boxes, decoded.boxes)
    ids = list(ours.class_label or ())
    if has_texts and ours.class_text:
        ids = [{"cat": 1, "dog": 2}[text] for text in ours.class_text]
    assert ids == decoded.classes.tolist()
