"""Writes index files beside shards, for readers that jump to a record
(:mod:`tfod.tfrecord.shard_sets.parts`)."""

from __future__ import annotations

import contextlib
import os

import numpy as np

from tfod.errors import ShardError
from tfod.shards.inputs import compression_of, sound_batches
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.output_folder import OutputExistsError
from tfod.tfrecord.shard_sets.parts import INDEX_EXTENSION
from tfod.tfrecord.shard_sets.search import Sources, find_all_shards
from tfod.tfrecord.storage.publishing import AtomicFile, publish_together
from tfod.tfrecord.storage.urls import is_url, name_of, require_local


def write_indexes(
    source: Sources,
    folder: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
) -> dict[str, int]:
    """Write ``<shard>.idx`` for each shard; checksums are verified on the way.

    Args:
        source: shards or several sources, as :func:`find_all_shards` takes them.
        folder: where to write; without it beside each shard.
        overwrite: replace index files that are there.

    Returns:
        The paths of the index files, and how many records each has.

    Raises:
        ShardsNotFoundError: there is nothing to read.
        ShardError: a shard is damaged, compressed, or in a zip.
        OutputExistsError: an index is there, or two shards have the same name.
        WriteError: an index cannot be written.
        RemoteError: a URL cannot be read, or an index would have to be written to one.
    """
    shards = [path for one in find_all_shards(source) for path in one.paths]
    targets: dict[str, str] = {}
    for path in shards:
        where = os.path.dirname(path) if folder is None else os.fspath(folder)
        require_local(where)
        target = os.path.join(where, name_of(path) + INDEX_EXTENSION)
        if target in targets:
            raise OutputExistsError(f"{target} would be the index of two shards; leave out -o")
        targets[target] = path
    for target in targets:
        if os.path.lexists(target) and not overwrite:
            raise OutputExistsError(f"{target} is there already; replace it with --overwrite")
    for path in shards:
        _require_seekable(path)
    counts: dict[str, int] = {}
    complete: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for target, path in targets.items():
            file = AtomicFile(target)
            stack.callback(file.discard)
            counts[target] = _write_index(path, file)
            file.complete()
            complete |= file.pending()
        publish_together(complete)
    return counts


def _write_index(shard: str, file: AtomicFile) -> int:
    count = 0
    for batch in sound_batches(shard):
        pairs = np.stack((batch.offsets, batch.framed_spans[:, 1]), axis=1)
        file.write(("%d %d\n" * len(batch) % tuple(pairs.ravel().tolist())).encode())
        count += len(batch)
    return count


def _require_seekable(shard: str) -> None:
    if not is_url(shard) and not os.path.isfile(shard):
        raise ShardError("is in a zip", shard=shard, fix="unpack it before it is indexed")
    compression = compression_of(shard)
    if compression is not Compression.NONE:
        raise ShardError(
            f"is compressed ({compression.value}): an index cannot point into it",
            shard=shard,
            fix="write it plain first, with: tfod reshard --compression none",
        )
