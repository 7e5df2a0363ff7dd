"""What the commands that copy records read: sound shards, and the label map beside them; and what
all of them say of what they have written."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tfod.detection.labels.search import LabelMapFinder, find_labels
from tfod.errors import LabelMapError, RecordError, ShardError
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES
from tfod.tfrecord.reader import RecordBatch, read_record_batches, shard_compression
from tfod.tfrecord.shard_sets.search import ShardSet
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.storage.urls import folder_of

if TYPE_CHECKING:
    from tfod.example.columns import ExampleBatch


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


def sound_examples(path: str) -> Iterator[ExampleBatch]:
    """The same as columns."""
    from tfod.example.columns import ExampleBatch  # who copies records does not look into them

    return map(ExampleBatch.of, sound_batches(path))


def compression_of(path: str) -> Compression:
    """How a shard is compressed."""
    with open_shard(path) as (stream, _):
        return shard_compression(stream.read(HEADER_BYTES))


@dataclass(frozen=True)
class Written:
    """How many records were written by subset, the paths of the shards, and what was odd."""

    records: Mapping[str, int]
    paths: Sequence[str]
    notes: Sequence[str]


class FoundLabelMap(NamedTuple):
    """A label map beside shards: its path, and its bytes."""

    path: str
    content: bytes


def one_label_map(paths: Iterable[str], notes: list[str]) -> FoundLabelMap | None:
    """The label map of some shards, or their ``labels.txt``; None when they have neither.

    Shards beside which several label maps lie are noted; none of these is theirs.

    Raises:
        LabelMapError: they have several that differ.
    """
    finder = LabelMapFinder()
    labels_for = functools.cache(find_labels)
    found: dict[str, None] = {}
    for path in paths:
        label_map, candidates = finder.find(path)
        if candidates:
            notes.append(several_label_maps(path, candidates))
            continue
        classes = label_map or labels_for(folder_of(path))
        if classes is not None:
            found[classes] = None
    contents: dict[bytes, str] = {}
    for label_map in found:
        with open_shard(label_map) as (stream, _):
            contents.setdefault(stream.read(), label_map)
    if len(contents) > 1:
        first, second = list(contents.values())[:2]
        raise LabelMapError(f"{first} and {second} differ; tfod merge makes one of them")
    return next((FoundLabelMap(path, content) for content, path in contents.items()), None)


def several_label_maps(path: str, candidates: Sequence[str]) -> str:
    """A sentence for a shard beside which any of several files could be its label map."""
    return f"{path}: several label maps are there, none was used: {', '.join(candidates)}"


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
