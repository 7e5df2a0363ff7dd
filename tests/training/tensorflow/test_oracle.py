"""TensorFlow reads our records and shards, and we read TensorFlow's, to the same values."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tfod.checker.profiles.file import load_profile
from tfod.detection.detection import Detection
from tfod.detection.encoder import encode_detection
from tfod.detection.features.schema import PROFILES, FeatureSpec, to_source
from tfod.detection.keys import BOX
from tfod.errors import ShardError, TfodError
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
from tests.records import encode

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

    def test_damage(self, tmp_path: Path) -> None:
        """Every truncation, and a flipped bit in every byte of a plain shard.

        We are stricter: for TensorFlow, a file that ends inside a header is complete.
        """
        (path,) = write_records(tmp_path, "s", [b"first record", b"", b"third"])
        data = Path(path).read_bytes()
        changed = [data[:length] for length in range(len(data))]
        for position in range(len(data)):
            flipped = bytearray(data)
            flipped[position] ^= 1 << position % 8
            changed.append(bytes(flipped))
        stricter = 0
        for one in changed:
            Path(path).write_bytes(one)
            theirs: list[bytes] | None = None
            with contextlib.suppress(tf.errors.DataLossError):
                theirs = read_by_tensorflow(path)
            try:
                ours = [bytes(r.payload) for r in read_record_stream(io.BytesIO(one), "x")]
            except ShardError as error:
                if theirs is not None:
                    stricter += 1
                    assert "its header" in error.cause or "is empty" in error.cause
            else:
                assert ours == theirs
        assert stricter == 1 + 3 * 11  # an empty file, and 1 to 11 bytes of each header


kinds = (Kind.INT64, int64s), (Kind.FLOAT, floats), (Kind.BYTES, byte_lists)
lists = st.one_of(*(st.tuples(st.just(kind), values) for kind, values in kinds))
features = st.dictionaries(keys, lists, max_size=8)
ENCODERS = {Kind.INT64: int64_feature, Kind.FLOAT: float_feature, Kind.BYTES: bytes_feature}


def theirs_of(source: dict[str, Any]) -> tf.train.Example:
    example = tf.train.Example()
    for key, (kind, values) in source.items():
        getattr(example.features.feature[key], kind.value).value.extend(values)
        if not values:
            getattr(example.features.feature[key], kind.value).SetInParent()
    return example


@given(features)
def test_examples(source: dict[str, Any]) -> None:
    """TensorFlow reads our Examples, and we read TensorFlow's Examples."""
    theirs = theirs_of(source)
    ours = encode_example({key: ENCODERS[kind](v) for key, (kind, v) in source.items()})
    read, written = tf.train.Example.FromString(ours).features, theirs.features
    assert {key: one.SerializeToString() for key, one in read.feature.items()} == {
        key: one.SerializeToString() for key, one in written.feature.items()
    }
    example = Example.from_bytes(theirs.SerializeToString())
    assert set(example) == set(source)
    for key, (kind, values) in source.items():
        assert example.kind(key) is kind
        if kind is Kind.INT64:
            assert example.ints(key) == values
        elif kind is Kind.FLOAT:
            assert example.floats(key).tobytes() == np.array(values, "<f4").tobytes()
        else:
            assert example.byte_strings(key) == values


@pytest.mark.parametrize("compression", COMPRESSIONS)
@examples(40)
@given(source=detections())
def test_detections_parse_under_the_profile(
    tmp_path: Path, compression: str, source: Detection
) -> None:
    """``tf.io.parse_single_example`` with the profile's description returns the same values."""
    source = Detection(**{**vars(source), "encoded": source.encoded or b"", "format": "jpeg"})
    (path,) = write_records(tmp_path, "s", [encode_detection(source)], compression=compression)
    (record,) = read_by_tensorflow(path, COMPRESSIONS[compression])
    parsed = tf.io.parse_single_example(record, feature_description("tf_detection_api"))

    def one(key: str) -> Any:
        return parsed[key].numpy()

    def many(key: str) -> list[Any]:
        return parsed[key].values.numpy().tolist()

    assert one("image/encoded") == bytes(source.encoded or b"")
    assert one("image/filename") == (source.filename or "").encode()
    assert one("image/source_id") == (source.source_id or "").encode()
    assert one("image/height") == (1 if source.height is None else source.height)
    for side, key in enumerate(BOX):
        found = parsed[key].values.numpy()
        assert found.tobytes() == np.ascontiguousarray(source.boxes[:, side]).tobytes()
    if len(source.boxes):
        assert many("image/object/class/text") == [t.encode() for t in source.class_text or ()]
        assert many("image/object/class/label") == list(source.class_label or ())
        assert many("image/object/difficult") == list(source.attributes.get("difficult", ()))
        area = np.array(source.attributes.get("area", ()), "<f4")
        assert many("image/object/area") == area.tolist()


@pytest.mark.parametrize("profile", PROFILES)
def test_source_of_a_profile_is_the_profile(profile: str) -> None:
    """The source that ``tfod describe`` prints builds the same objects."""
    namespace: dict[str, Any] = {"tf": tf}
    exec(to_source(PROFILES[profile]), namespace)
    assert namespace["feature_description"] == feature_description(profile)
    odd = {"a": FeatureSpec(Kind.FLOAT, (3,), 0.5), "b": FeatureSpec(Kind.INT64, (2, 2))}
    exec(to_source(odd), namespace)
    assert namespace["feature_description"] == feature_description(odd)


# Profiles as Python source, which we read but do not run

SOURCE = """
import numpy as np
import tensorflow
import tensorflow.compat.v1 as tf1
import tensorflow as tf
from tensorflow import string
from tensorflow.io import FixedLenFeature

WIDTH = "image/width"
MEAN = 0.5
feature_description = {
    "image/height": FixedLenFeature([], tf.int64, default_value=-1),
    WIDTH: tf.io.FixedLenFeature((), tf.int64),
    "image/encoded": tf1.FixedLenFeature([], "string", ""),
    "image/format": tensorflow.io.FixedLenFeature((), string, default_value=b"\\xff"),
    "four": tf.io.FixedLenFeature([4], np.float32),
    "one": tf.io.FixedLenFeature(1, tf.float32, 2),
    "square": tf.io.FixedLenFeature(
        shape=(2, 2), dtype=float, default_value=[[0, -1], [MEAN, MEAN]]
    ),
    "default": tf.io.FixedLenFeature([], tf.string, ''),
    "switch": tf.io.FixedLenFeature([], tf.int64, [False]),
    "signs": tf.io.FixedLenFeature([2, 2], tf.int64, [[1, 2], [-3, +4]]),
    "many": tf.io.VarLenFeature(tf.float32),
    "any": tf.io.VarLenFeature(dtype=float),
    "bytes": tf.io.VarLenFeature(dtype=np.str_),
}
"""


def description_of(source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"tf": tf}
    exec(source, namespace)
    return namespace["feature_description"]


def plain_feature(feature: Any) -> Any:
    """A ``tf.io`` object as plain shape, dtype and default."""
    if not hasattr(feature, "shape"):
        return type(feature).__name__, tf.as_dtype(feature.dtype)
    default = feature.default_value
    if default is not None:
        tensor = tf.reshape(tf.constant(default, tf.as_dtype(feature.dtype)), feature.shape)
        default = np.asarray(tensor.numpy()).tolist()
    return tuple(tf.TensorShape(feature.shape)), tf.as_dtype(feature.dtype), default


def test_read_is_run(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(SOURCE)
    ours = feature_description(load_profile(str(path)).features)
    theirs = description_of(SOURCE)
    assert list(ours) == list(theirs)
    assert {key: plain_feature(one) for key, one in ours.items()} == {
        key: plain_feature(one) for key, one in theirs.items()
    }
    record = encode({"image/width": 3, "four": [1.0, 2.0, 3.0, 4.0], "many": [5.0]})
    parsed = [tf.io.parse_single_example(record, one) for one in (ours, theirs)]
    for key in theirs:
        first, second = (
            tf.sparse.to_dense(one[key]) if isinstance(one[key], tf.SparseTensor) else one[key]
            for one in parsed
        )
        np.testing.assert_array_equal(first.numpy(), second.numpy())


@pytest.mark.parametrize(
    "feature",
    [
        "tf.io.FixedLenFeature(None, tf.int64, 0)",
        "tf.io.FixedLenFeature([-1], tf.int64, [])",
        "tf.io.FixedLenFeature([], tf.int64, [0, 1])",
        "tf.io.FixedLenFeature([], tf.int64, 1.0)",
        "tf.io.FixedLenFeature([], tf.int64, 9223372036854775808)",
        "tf.io.FixedLenFeature([], tf.string, 1)",
        "tf.io.FixedLenFeature([], tf.int32, 1)",
        "tf.io.VarLenFeature(tf.uint8)",
        "tf.io.VarLenFeature(int)",
        "tf.io.FixedLenSequenceFeature([], tf.int64)",
        "tf.io.VarLenFeature()",
    ],
)
def test_what_we_refuse_tensorflow_does_too(tmp_path: Path, feature: str) -> None:
    source = f"feature_description = {{'k': {feature}}}"
    path = tmp_path / "p.py"
    path.write_text(source)
    with pytest.raises(TfodError):
        load_profile(str(path))
    with pytest.raises((TypeError, ValueError, tf.errors.InvalidArgumentError)):
        tf.io.parse_single_example(encode({}), description_of(source))


@pytest.mark.parametrize(
    "feature",
    [
        "tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)",
        "tf.io.VarLenFeature('int64')",
        "tf.io.RaggedFeature(tf.int64)",
    ],
)
def test_any_number_of_values(tmp_path: Path, feature: str) -> None:
    source = f"feature_description = {{'k': {feature}}}"
    (tmp_path / "p.py").write_text(source)
    ours = feature_description(load_profile(str(tmp_path / "p.py")).features)
    for values in ([], [1], [1, 2, 3]):
        for description in (ours, description_of(source)):
            parsed = tf.io.parse_single_example(encode({"k": values}), description)["k"]
            found = parsed.values if isinstance(parsed, tf.SparseTensor) else parsed
            assert found.numpy().tolist() == values
