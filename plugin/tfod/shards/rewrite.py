"""Changes to single features of records, such as source ids, that keep all other bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfod.detection import keys
from tfod.detection.attributes import add_image_attributes
from tfod.detection.columns import DetectionColumns
from tfod.detection.images.source_ids import SourceIdNumbers, find_last_number, former_source_id
from tfod.example.example import Example, bytes_feature, encode_entry
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Buffer, Kind, encode_varint
from tfod.kernel.reference import Field, read_fields
from tfod.tfrecord.reader import RecordBatch

_FEATURES = 1  # field number of Example.features, of its map, and of the key of a map entry
_LENGTH = 2


class _Edit(NamedTuple):
    """The replacement of ``buffer[start:stop]``."""

    start: int
    stop: int
    new: bytes


def rewrite_example(example: Example, changes: Mapping[str, bytes | None]) -> bytes:
    """Return the payload of an Example with some features replaced, added or removed.

    Everything else is copied byte for byte and in order: unknown fields, long varints, unpacked
    numbers, repeated keys. If a changed key has several entries, the new feature replaces the last
    one, which is the valid one in protobuf, and the others are removed. New features come last.

    Args:
        example: the Example.
        changes: features by key, encoded by ``bytes_feature``, ``float_feature`` or
            ``int64_feature``; None to remove a key, if it exists.
    """
    record = example.record
    buffer, stop = record.buffer, record.start + record.length
    top_fields = _fields(buffer, record.start, stop)
    maps = [(start, field) for start, field in top_fields if field.number == _FEATURES]
    entries = [
        [
            (key, start, entry.end)
            for start, entry in _fields(buffer, field.start, field.end)
            if entry.number == _FEATURES and (key := _read_key(buffer, entry)) in changes
        ]
        for _, field in maps
    ]
    last = {key: start for map_entries in entries for key, start, _ in map_entries}
    added = b"".join(
        encode_entry(key, feature)
        for key, feature in changes.items()
        if feature is not None and key not in last
    )
    edits = []
    for (start, field), map_entries in zip(maps, entries, strict=True):
        entry_edits = []
        for key, first, end in map_entries:
            feature = changes[key] if last[key] == first else None
            new = b"" if feature is None else encode_entry(key, feature)
            entry_edits.append(_Edit(first, end, new))
        if added and field is maps[-1][1]:
            entry_edits.append(_Edit(field.end, field.end, added))
        if entry_edits:  # otherwise keep even the encoding of the map's length
            content = _apply(buffer, field.start, field.end, entry_edits)
            edits.append(_Edit(start, field.end, _encode_map(content)))
    if added and not maps:
        edits.append(_Edit(stop, stop, _encode_map(added)))
    return _apply(buffer, record.start, stop, edits)


def _apply(buffer: Buffer, start: int, stop: int, edits: Sequence[_Edit]) -> bytes:
    """Return ``buffer[start:stop]`` with its edits, which must be in order."""
    parts: list[bytes | memoryview] = []
    with memoryview(buffer) as view:
        for edit in edits:
            parts += (view[start : edit.start], edit.new)
            start = edit.stop
        return b"".join([*parts, view[start:stop]])


def _encode_map(entries: bytes) -> bytes:
    return b"\n" + encode_varint(len(entries)) + entries


def _fields(buffer: Buffer, start: int, stop: int) -> Iterator[tuple[int, Field]]:
    """Yield the fields of a message, each with the offset of its tag."""
    for field in read_fields(buffer, start, stop):
        yield start, field
        start = field.end


def _read_key(buffer: Buffer, entry: Field) -> str:
    """Return the key of a map entry: the last key field, or "" if there is none."""
    key = b""
    for number, wire, first, stop in read_fields(buffer, entry.start, entry.end):
        if number == 1 and wire == _LENGTH:
            key = bytes(buffer[first:stop])
    return key.decode("utf-8", "surrogateescape")


# Source ids


def make_numbers(
    batches: Iterable[RecordBatch], largest: int | None, key: str = keys.SOURCE_ID
) -> SourceIdNumbers:
    """Return numbers for records, whose batches are read when the first one is needed."""
    source_ids = _read_source_ids(batches, key)
    return SourceIdNumbers(largest, lambda: find_last_number(source_ids, largest))


def _read_source_ids(batches: Iterable[RecordBatch], key: str) -> Iterator[str]:
    """Yield the source ids of records, '' for records without one; their order may change."""
    for records in batches:
        column = ExampleBatch.of(records).column(key, Kind.BYTES)
        yield from (source_id.decode("latin-1") for source_id in column.byte_strings())
        yield from itertools.repeat("", len(records) - len(column.values))


def number_source_ids(
    examples: ExampleBatch, numbers: SourceIdNumbers
) -> dict[int, dict[str, bytes]]:
    """Return features that replace invalid source ids, by row; skips rows that are not Examples."""
    columns = DetectionColumns(examples)
    changes: dict[int, dict[str, bytes]] = {}
    for row, source_id in enumerate(columns.source_ids):
        if numbers.keeps(source_id) or row in examples.unreadable:
            continue
        changes[row] = {keys.SOURCE_ID: bytes_feature([numbers.next().encode()])}
        if former := former_source_id(source_id, columns.filenames[row]):
            column = columns.column(keys.EXTRA_ATTRIBUTES, Kind.BYTES)
            extra = "".join(columns.texts_in(column, row)).encode()
            if attributes := add_image_attributes(extra, former):
                changes[row][keys.EXTRA_ATTRIBUTES] = bytes_feature([attributes])
    return changes
