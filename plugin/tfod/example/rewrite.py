"""Changing some features of a record and leaving every other byte of it as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tfod.example.example import Example, encode_entry
from tfod.example.wire import Buffer, encode_varint
from tfod.kernel.reference import fields

_FEATURES = 1  # the field of an Example; also the map that is in it, and the key of an entry
_LENGTH = 2


def rewrite_example(example: Example, changes: Mapping[str, bytes | None]) -> bytes:
    """Serialize an Example with some features replaced, added or removed.

    What is not changed is copied byte for byte and in its order, however its writer spelled it:
    unknown fields, long varints, unpacked numbers, other keys that come twice. A key that is
    changed behaves as protobuf has it: of several entries the last one counts, so the new feature
    takes its place, and the others go. A feature that is new comes behind all others.

    Args:
        example: the record.
        changes: by key, a feature as ``bytes_feature``, ``float_feature`` or ``int64_feature``
            encode it, or None to remove the key; removing what is not there is no error.

    Returns:
        The payload of the new record.
    """
    record = example.record
    buffer, stop = record.buffer, record.start + record.length
    maps = [one for one in _fields(buffer, record.start, stop) if one.number == _FEATURES]
    entries = [list(_entries(buffer, field, changes)) for field in maps]
    places = {entry.key: entry for found in entries for entry in found}  # of a key the last one
    added = b"".join(
        encode_entry(key, feature)
        for key, feature in changes.items()
        if feature is not None and key not in places
    )
    edits = []
    for field, found in zip(maps, entries, strict=True):
        inside = [_edit(entry, changes[entry.key], entry is places[entry.key]) for entry in found]
        if added and field is maps[-1]:
            inside.append(_Edit(field.stop, field.stop, added))
        if inside:  # else not even its length is spelled anew
            content = _apply(buffer, field.first, field.stop, inside)
            edits.append(_Edit(field.start, field.stop, _encode_map(content)))
    if added and not maps:
        edits.append(_Edit(stop, stop, _encode_map(added)))
    return _apply(buffer, record.start, stop, edits)


class _Field(NamedTuple):
    """A field of a message: its number, where its tag is, and the half-open span of its value."""

    number: int
    start: int
    first: int
    stop: int


class _Entry(NamedTuple):
    """An entry of the map of features, from its tag to its end."""

    key: str
    start: int
    stop: int


class _Edit(NamedTuple):
    """What comes in the place of ``buffer[start:stop]``."""

    start: int
    stop: int
    new: bytes


def _edit(entry: _Entry, feature: bytes | None, counts: bool) -> _Edit:
    new = encode_entry(entry.key, feature) if feature is not None and counts else b""
    return _Edit(entry.start, entry.stop, new)


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


def _fields(buffer: Buffer, start: int, stop: int) -> Iterator[_Field]:
    for number, _, first, end in fields(buffer, start, stop):
        yield _Field(number, start, first, end)
        start = end


def _entries(
    buffer: Buffer, features: _Field, changes: Mapping[str, bytes | None]
) -> Iterator[_Entry]:
    """The entries whose key is changed."""
    for entry in _fields(buffer, features.first, features.stop):
        if entry.number == _FEATURES:
            key = _key(buffer, entry).decode("utf-8", "surrogateescape")
            if key in changes:
                yield _Entry(key, entry.start, entry.stop)


def _key(buffer: Buffer, entry: _Field) -> bytes:
    """The key of a map entry: the last that is in it, and empty where there is none."""
    key = b""
    for number, wire, first, stop in fields(buffer, entry.first, entry.stop):
        if number == 1 and wire == _LENGTH:
            key = bytes(buffer[first:stop])
    return key
