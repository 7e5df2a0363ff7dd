"""Into TensorFlow: ``tf.io`` feature descriptions and ``tf.data`` datasets. Needs the extra.

``pip install 'tfod[tensorflow]'``; nothing else in tfod imports TensorFlow.
"""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from tfod.compression import Compression
from tfod.damage import HEADER_BYTES
from tfod.records import shard_compression
from tfod.schema import PROFILES, FeatureDescription
from tfod.shards import find_shards
from tfod.wire import Kind

_DTYPES = {Kind.BYTES: tf.string, Kind.INT64: tf.int64, Kind.FLOAT: tf.float32}
_COMPRESSION_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}


def feature_description(profile: str | FeatureDescription = "tf_detection_api") -> dict[str, Any]:
    """The description as ``tf.io`` objects, for ``tf.io.parse_example``.

    Args:
        profile: the name of a profile, or a description.

    Raises:
        KeyError: there is no profile of that name.
    """
    description = PROFILES[profile] if isinstance(profile, str) else profile
    return {
        key: tf.io.VarLenFeature(_DTYPES[spec.kind])
        if spec.shape is None
        else tf.io.FixedLenFeature(spec.shape, _DTYPES[spec.kind], spec.default)
        for key, spec in description.items()
    }


def compression_type(path: str | os.PathLike[str]) -> str:
    """What ``tf.data.TFRecordDataset`` must be told about a shard: '', 'GZIP' or 'ZLIB'."""
    with open(path, "rb") as file:
        return _COMPRESSION_TYPES[shard_compression(file.read(HEADER_BYTES))]


def dataset(
    source: str | os.PathLike[str],
    profile: str | FeatureDescription | None = "tf_detection_api",
) -> Any:
    """A ``tf.data.Dataset`` over the shards that a file, a folder or a glob means.

    Yields one dict of tensors a record, or serialized Examples when ``profile`` is None. The
    compression of each shard is found from its bytes.

    Raises:
        ShardsNotFoundError: there is no shard.
    """
    paths = [path for one in find_shards(source) for path in one.paths]
    parts = [tf.data.TFRecordDataset(path, compression_type(path)) for path in paths]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.concatenate(part)
    if profile is None:
        return joined
    description = feature_description(profile)
    return joined.map(
        lambda record: tf.io.parse_single_example(record, description),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
