"""What commands that copy records read: sound shards; and which shards of a set are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from tfod.errors import RecordError, ShardError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import RecordBatch, read_record_batches, shard_compression
from tfod.tfrecord.shard_sets.search import ShardSet
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.publishing import AtomicFile


@contextlib.contextmanager
def naming_repair() -> Iterator[None]:
    """Add to an error about a damaged shard which command makes a sound copy of it."""
    try:
        yield
    except RecordError:
        raise
    except ShardError as error:
        if error.record is None and "stream is damaged" not in error.cause:
            raise  # nothing of it is sound: it is empty, or something else than a shard
        fix = f"{error.fix}; tfod repair writes what is sound of it to a new shard"
        raise ShardError(
            error.cause,
            shard=error.shard,
            record=error.record,
            offset=error.offset,
            fix=fix,
        ) from None


def sound_batches(path: str) -> Iterator[RecordBatch]:
    """As :func:`read_record_batches`; the error of a damaged shard names the command that helps."""
    with naming_repair():
        yield from read_record_batches(path)


def compression_of(path: str) -> Compression:
    """How a shard is compressed."""
    with open_shard(path) as (stream, _):
        return shard_compression(stream.read(HEADER_BYTES))


def missing_shards(sets: Sequence[ShardSet]) -> list[str]:
    """A sentence for each subset whose numbering promises shards that are not there."""
    found = []
    for one in sets:
        count = len(one.missing)
        if count:
            some = f"{one.missing[0]} is" if count == 1 else ""
            some = some or f"{count:,} shards ({one.missing[0]}, …) are"
            found.append(f"{one.subset}: {some} missing; the new shards are renumbered")
    return found


def unpack(shard: str, place: str) -> None:
    """Write the plain records of a shard to a file."""
    with AtomicFile(place) as file:
        for batch in sound_batches(shard):
            first, last = batch.framed_spans[[0, -1]].tolist()
            file.write(memoryview(batch.buffer)[first[0] : sum(last)])
