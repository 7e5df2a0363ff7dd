"""Shards as TensorFlow reads them: their compression, their order, and their damage."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfod.errors import ShardError, TfodError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import read_record_batches, shard_compression
from tfod.tfrecord.storage.open import zip_entry
from tfod.training.training_input import shards_to_read

_COMPRESSION_TYPES = {Compression.NONE: "", Compression.GZIP: "GZIP", Compression.ZLIB: "ZLIB"}
_SMALL_BYTES = 16 << 10
_SHARDS_AT_ONCE = 16
"""Fixed, unlike tf.data's own choice, which is another order on another machine."""


def compression_type(path: str | os.PathLike[str]) -> str:
    """What ``tf.data.TFRecordDataset`` must be told about a shard: '', 'GZIP' or 'ZLIB'.

    Raises:
        TfodError: the shard is an entry of a zip, which TensorFlow cannot read.
    """
    return _COMPRESSION_TYPES[shard_compression(_head(os.fspath(path)))]


def serialized_records(
    paths: Sequence[str], *, shuffled: bool, seed: int | None, deterministic: bool
) -> Any:
    """A ``tf.data.Dataset`` of the records of shards, up to 16 of them in turn.

    With ``shuffled`` in another order of the shards in each pass; ``deterministic`` says whether a
    quick shard has to wait for its turn.

    Raises:
        TfodError: as :func:`compression_type`.
    """
    heads = [_head(path) for path in paths]
    empty = [path for path, head in zip(paths, heads, strict=True) if not head]
    if empty:
        # TensorFlow takes it for a shard without records, and it may be a failed download.
        warnings.warn(f"{empty[0]} is empty ({len(empty)} such shards)", stacklevel=3)
    compressions = [_COMPRESSION_TYPES[shard_compression(head)] for head in heads]
    shards = tf.data.Dataset.from_tensor_slices((list(paths), compressions))
    if shuffled:
        shards = shards.shuffle(len(paths), seed=seed)
    return shards.interleave(
        tf.data.TFRecordDataset,
        cycle_length=min(len(paths), _SHARDS_AT_ONCE),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=deterministic,
    )


def are_small(paths: Sequence[str]) -> bool:
    """Whether the records of shards are small, by the first one: annotations without images.

    Batches of small records are parsed at once, in a fraction of the time; large ones would first
    have to be copied together.
    """
    for path in filter(os.path.getsize, paths):
        try:
            for _ in read_record_batches(path, max_record_bytes=_SMALL_BYTES):
                return True
        except ShardError:  # too large; or damaged, which will show later
            return False
    return False


@contextlib.contextmanager
def locating_damage(source: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file, record and byte where TensorFlow only says ``corrupted record at 204``.

    Costs nothing as long as nothing is wrong::

        with locating_damage("train.record-*"):
            model.fit(dataset("train.record-*", batch_size=16))

    Args:
        source: the file, folder or glob that the dataset was made of.

    Raises:
        ShardError: in place of TensorFlow's DataLossError, with the first damage of the shards.
    """
    try:
        yield
    except tf.errors.DataLossError as error:
        damage = _first_damage(source)
        if damage is not None:
            raise damage from error
        raise TfodError(
            f"{os.fspath(source)}: TensorFlow found damage ({error.message}) that is not there "
            "any more; run the training again"
        ) from error


def _head(path: str) -> bytes:
    if zip_entry(path) is not None:
        raise TfodError(f"{path}: TensorFlow cannot read shards in a zip; unpack it first")
    with open(path, "rb") as file:
        return file.read(HEADER_BYTES)


def _first_damage(source: str | os.PathLike[str]) -> ShardError | None:
    # What TensorFlow takes for a shard without records is not what it stumbled over.
    for path in filter(os.path.getsize, shards_to_read(source)):
        try:
            for _ in read_record_batches(path):
                pass  # the walk verifies the checksums
        except ShardError as error:
            return error
    return None
