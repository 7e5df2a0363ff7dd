"""Changing some features of records, such as source ids, and leaving every other byte as it was."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfod.detection import keys
from tfod.detection.attributes import with_image_attributes
from tfod.detection.columns import DetectionColumns
from tfod.detection.images.source_ids import SourceIdNumbers, former_source_id, last_before_free
from tfod.example.example import Example, bytes_feature, encode_entry
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Buffer, Kind, encode_varint
from tfod.kernel.reference import Field, read_fields
from tfod.tfrecord.reader import RecordBatch, read_record_batches

_FEATURES = 1  # the field of an Example; also the map that is in it, and the key of an entry
_LENGTH = 2


class _Edit(NamedTuple):
    """What comes in the place of ``buffer[start:stop]``."""

    start: int
    stop: int
    new: bytes


def rewrite_example(example: Example, changes: Mapping[str, bytes | None]) -> bytes:
    """The payload of an Example with some features replaced, added or removed.

    What is not changed is copied byte for byte and in its order, however its writer spelled it:
    unknown fields, long varints, unpacked numbers, other keys that come twice. A key that is
    changed behaves as protobuf has it: of several entries the last one counts, so the new feature
    takes its place, and the others go. A feature that is new comes behind all others.

    Changes are by key a feature as ``bytes_feature``, ``float_feature`` or ``int64_feature`` encode
    it, or None to remove the key; removing a key that is not there does nothing.
    """
    record = example.record
    buffer, stop = record.buffer, record.start + record.length
    maps = [one for one in _fields(buffer, record.start, stop) if one[1].number == _FEATURES]
    entries = [
        [
            (key, start, entry.end)
            for start, entry in _fields(buffer, field.start, field.end)
            if entry.number == _FEATURES and (key := _key(buffer, entry)) in changes
        ]
        for _, field in maps
    ]
    last = {key: start for found in entries for key, start, _ in found}
    added = b"".join(
        encode_entry(key, feature)
        for key, feature in changes.items()
        if feature is not None and key not in last
    )
    edits = []
    for (start, field), found in zip(maps, entries, strict=True):
        inside = []
        for key, first, end in found:
            feature = changes[key] if last[key] == first else None
            inside.append(_Edit(first, end, b"" if feature is None else encode_entry(key, feature)))
        if added and field is maps[-1][1]:
            inside.append(_Edit(field.end, field.end, added))
        if inside:  # else not even its length is spelled anew
            content = _apply(buffer, field.start, field.end, inside)
            edits.append(_Edit(start, field.end, _encode_map(content)))
    if added and not maps:
        edits.append(_Edit(stop, stop, _encode_map(added)))
    return _apply(buffer, record.start, stop, edits)


def _apply(buffer: Buffer, start: int, stop: int, edits: Sequence[_Edit]) -> bytes:
    """A piece of the buffer with its edits, which are in order."""
    parts: list[bytes | memoryview] = []
    with memoryview(buffer) as view:
        for edit in edits:
            parts += (view[start : edit.start], edit.new)
            start = edit.stop
        return b"".join([*parts, view[start:stop]])


def _encode_map(entries: bytes) -> bytes:
    return b"\n" + encode_varint(len(entries)) + entries


def _fields(buffer: Buffer, start: int, stop: int) -> Iterator[tuple[int, Field]]:
    """The fields of a message, each with the place of its tag."""
    for field in read_fields(buffer, start, stop):
        yield start, field
        start = field.end


def _key(buffer: Buffer, entry: Field) -> str:
    """The key of a map entry: the last that is in it, and empty where there is none."""
    key = b""
    for number, wire, first, stop in read_fields(buffer, entry.start, entry.end):
        if number == 1 and wire == _LENGTH:
            key = bytes(buffer[first:stop])
    return key.decode("utf-8", "surrogateescape")


# Numbers in place of source ids


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
    found = DetectionColumns(examples)
    return {
        row: _numbered(found, row, numbers)
        for row, one in enumerate(found.source_ids)
        if not numbers.stays(one) and row not in examples.refused
    }


def _numbered(found: DetectionColumns, row: int, numbers: SourceIdNumbers) -> dict[str, bytes]:
    """The features that give a record a number, and keep what was in its place."""
    features = {keys.SOURCE_ID: bytes_feature([numbers.next().encode()])}
    if former := former_source_id(found.source_ids[row], found.filenames[row]):
        column = found.column(keys.EXTRA_ATTRIBUTES, Kind.BYTES)
        extra = "".join(found.texts_in(column, row)).encode()
        if kept := with_image_attributes(extra, former):
            features[keys.EXTRA_ATTRIBUTES] = bytes_feature([kept])
    return features
