"""TensorFlow reads what we write to the values we meant, and we read what it writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.features.schema import PROFILES, FeatureSpec, to_source
from tfod.detection.keys import BOX
from tfod.errors import ShardError
from tfod.example.example import (
    Example,
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
)
from tfod.example.wire import Kind
from tfod.tensorflow import feature_description, records
from tfod.tfrecord.reader import read_record_stream, read_records
from tfod.tfrecord.writer import write_records

from tests.conftest import examples
from tests.detection.test_detection import detections
from tests.example.test_example import byte_lists, floats, int64s, keys

COMPRESSIONS = {"none": "", "gzip": "GZIP", "zlib": "ZLIB"}


def read_by_tensorflow(path: Any, compression: str = "") -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path), compression)]


class TestFraming:
    @pytest.mark.parametrize(("ours", "theirs"), COMPRESSIONS.items())
    @given(payloads=st.lists(st.binary(max_size=2000), min_size=1, max_size=10))
    def test_each_reads_the_other(
        self, tmp_path: Path, ours: str, theirs: str, payloads: list[bytes]
    ) -> None:
        (path,) = write_records(tmp_path, "s", payloads, compression=ours)
        assert read_by_tensorflow(path, theirs) == payloads
        assert [one.numpy() for one in records(path)] == payloads
        with tf.io.TFRecordWriter(path, theirs) as writer:
            for payload in payloads:
                writer.write(payload)
        assert [bytes(record.payload) for record in read_records(path)] == payloads

    def test_damage_is_checked_alike(self, tmp_path: Path) -> None:
        """Every truncation, and a flipped bit in every byte of a plain shard.

        We are stricter where TensorFlow takes a file cut inside a header for a clean end.
        """
        payloads = [b"first record", b"", b"third"]
        (path,) = write_records(tmp_path, "s", payloads)
        data = Path(path).read_bytes()
        changed = [data[:length] for length in range(len(data))]
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            changed.append(bytes(flipped))
        stricter = 0
        for one in changed:
            Path(path).write_bytes(one)
            theirs: list[bytes] | None
            try:
                theirs = read_by_tensorflow(path)
            except tf.errors.DataLossError:
                theirs = None
            ours: list[bytes] | None
            try:
                ours = [bytes(r.payload) for r in read_record_stream(io.BytesIO(one), "x")]
            except ShardError as error:
                ours = None
                if theirs is not None:
                    stricter += 1
                    assert "its header" in error.cause or "is empty" in error.cause
            else:
                assert ours == theirs
        assert stricter == 1 + 3 * 11  # no bytes at all, and 1 to 11 bytes of each header


features = st.dictionaries(
    keys,
    st.one_of(
        st.tuples(st.just(Kind.INT64), int64s),
        st.tuples(st.just(Kind.FLOAT), floats),
        st.tuples(st.just(Kind.BYTES), byte_lists),
    ),
    max_size=8,
)
ENCODERS = {Kind.INT64: int64_feature, Kind.FLOAT: float_feature, Kind.BYTES: bytes_feature}


def theirs_of(meant: dict[str, Any]) -> tf.train.Example:
    example = tf.train.Example()
    for key, (kind, values) in meant.items():
        getattr(example.features.feature[key], kind.value).value.extend(values)
        if not values:
            getattr(example.features.feature[key], kind.value).SetInParent()
    return example


@given(features)
def test_examples(meant: dict[str, Any]) -> None:
    """TensorFlow reads in ours what it would write itself, and we read in its what was meant."""
    theirs = theirs_of(meant)
    ours = encode_example({key: ENCODERS[kind](v) for key, (kind, v) in meant.items()})
    read, written = tf.train.Example.FromString(ours).features, theirs.features
    assert {key: one.SerializeToString() for key, one in read.feature.items()} == {
        key: one.SerializeToString() for key, one in written.feature.items()
    }
    example = Example.from_bytes(theirs.SerializeToString())
    assert set(example) == set(meant)
    for key, (kind, values) in meant.items():
        assert example.kind(key) is kind
        if kind is Kind.INT64:
            assert example.ints(key) == values
        elif kind is Kind.FLOAT:
            assert example.floats(key).tobytes() == np.array(values, "<f4").tobytes()
        else:
            assert example.byte_strings(key) == values


@pytest.mark.parametrize("compression", COMPRESSIONS)
@examples(40)
@given(meant=detections())
def test_detections_parse_under_the_profile(
    tmp_path: Path, compression: str, meant: Detection
) -> None:
    """``tf.io.parse_single_example`` with the profile's description gives what was meant."""
    meant = Detection(**{**vars(meant), "encoded": meant.encoded or b"", "format": "jpeg"})
    (path,) = write_records(tmp_path, "s", [encode_detection(meant)], compression=compression)
    (record,) = read_by_tensorflow(path, COMPRESSIONS[compression])
    parsed = tf.io.parse_single_example(record, feature_description("tf_detection_api"))

    def one(key: str) -> Any:
        return parsed[key].numpy()

    def many(key: str) -> list[Any]:
        return parsed[key].values.numpy().tolist()

    assert one("image/encoded") == bytes(meant.encoded or b"")
    assert one("image/filename") == (meant.filename or "").encode()
    assert one("image/source_id") == (meant.source_id or "").encode()
    assert one("image/height") == (1 if meant.height is None else meant.height)
    for side, key in enumerate(BOX):
        found = parsed[key].values.numpy()
        assert found.tobytes() == np.ascontiguousarray(meant.boxes[:, side]).tobytes()
    if len(meant.boxes):
        assert many("image/object/class/text") == [t.encode() for t in meant.class_text or ()]
        assert many("image/object/class/label") == list(meant.class_label or ())
        assert many("image/object/difficult") == list(meant.attributes.get("difficult", ()))
        area = np.array(meant.attributes.get("area", ()), "<f4")
        assert many("image/object/area") == area.tolist()


@pytest.mark.parametrize("profile", PROFILES)
def test_source_of_a_profile_is_the_profile(profile: str) -> None:
    """What ``tfod describe`` prints to paste builds the same objects."""
    namespace: dict[str, Any] = {"tf": tf}
    exec(to_source(PROFILES[profile]), namespace)
    assert namespace["feature_description"] == feature_description(profile)
    odd = {"a": FeatureSpec(Kind.FLOAT, (3,), 0.5), "b": FeatureSpec(Kind.INT64, (2, 2))}
    exec(to_source(odd), namespace)
    assert namespace["feature_description"] == feature_description(odd)
