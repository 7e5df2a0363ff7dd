"""Numbers in place of the source ids of records, and every other byte as it was."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from tfod.detection import keys
from tfod.detection.attributes import with_image_attributes
from tfod.detection.columns import DetectionColumns
from tfod.detection.images.source_ids import SourceIdNumbers, former_source_id, last_before_free
from tfod.example.columns import ExampleBatch
from tfod.example.example import Example, bytes_feature
from tfod.example.wire import Kind
from tfod.tfrecord.reader import RecordBatch, read_record_batches


def numbers_for(paths: Sequence[str], largest: int) -> SourceIdNumbers:
    """Numbers for the records of shards, which are read for it if any is needed."""

    def find_last() -> int:
        batches = itertools.chain.from_iterable(map(read_record_batches, paths))
        return last_before_free(source_ids_of(batches), largest)

    return SourceIdNumbers(largest, find_last)


def source_ids_of(batches: Iterable[RecordBatch], key: str = keys.SOURCE_ID) -> Iterator[str]:
    """The source ids of records; '' where a record has none."""
    for records in batches:
        column = ExampleBatch.of(records).column(key, Kind.BYTES)
        yield from (one.decode("latin-1") for one in column.byte_strings())
        yield from itertools.repeat("", len(records) - len(column.values))


def number_source_ids(
    examples: ExampleBatch, numbers: SourceIdNumbers
) -> dict[int, dict[str, bytes]]:
    """By record the features that give it a number; what cannot be parsed stays as it is."""
    return {
        row: _features(Example(examples, row), one, numbers)
        for row, one in enumerate(DetectionColumns(examples).source_ids)
        if not numbers.stays(one) and row not in examples.refused
    }


def _features(
    example: Example, source_id: str | None, numbers: SourceIdNumbers
) -> dict[str, bytes]:
    """The features that give a record a number, and keep what was in its place."""
    features = {keys.SOURCE_ID: bytes_feature([numbers.next().encode()])}
    name, extra = (_only(example, key) for key in (keys.FILENAME, keys.EXTRA_ATTRIBUTES))
    former = former_source_id(source_id, (name or b"").decode("utf-8", "replace"))
    kept = with_image_attributes(extra, former) if former else None
    return features | ({keys.EXTRA_ATTRIBUTES: bytes_feature([kept])} if kept else {})


def _only(example: Example, key: str) -> bytes | None:
    values = example.byte_strings(key) if example.kind(key) is Kind.BYTES else ()
    return values[0] if len(values) == 1 else None
