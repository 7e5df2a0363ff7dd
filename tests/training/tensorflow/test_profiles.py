"""A profile's Python source means the same to TensorFlow and to us, though we do not run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tfod.checker.profiles.file import load_profile
from tfod.errors import TfodError
from tfod.tensorflow import feature_description

from tests.records import encode

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
