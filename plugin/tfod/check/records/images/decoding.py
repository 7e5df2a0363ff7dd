"""Which images a check decodes: all, none, or an even sample that any worker can tell by itself.

To decode takes ten times as long as all else, so of many images some must do. Whether an image is
among them follows from its place alone, and not from what was decoded before: the report is the
same however the work is divided.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from tfod.check.profiles.policy import Policy
from tfod.check.rules.registry import all_rules
from tfod.check.sources.archive import ArchiveDamageError
from tfod.check.sources.archive_contents import Archives
from tfod.check.sources.inventory import Inventory, Location
from tfod.tfrecord.compression import ReadableStream
from tfod.tfrecord.reader import read_record_batch_stream

MOST_DECODED = 1000
"""So many images are decoded unless another number is asked for: 5 s for images of a megapixel."""
_RULE = "IMG003"
_SPREAD = 0x9E3779B1
_REMOTE_RECORD = 100_000
"""Bytes that a record of a remote shard is taken to have: nothing is read twice from a store."""
_COUNTED_WHOLE = 16 << 20
_MOST_COUNTED = 1 << 30
"""Bytes of files: from the first number on the other records are estimated when there are enough
of them, from the second one in any case."""
_PIXELS_OF_A_BYTE = 256
_SMALL = 1 << 18


@dataclass(frozen=True)
class Decoding:
    """Which images are decoded: ``part`` of every ``whole`` records, evenly.

    Attributes:
        part, whole: all are where the two are equal, none where ``part`` is 0.
        bounded: whether images are passed over that have many more pixels than bytes. To decode
            such an image may take a second for each kilobyte.
        limit: why not all of them are decoded; empty where all are.
        first: how many shards of other datasets come before those that it is asked of.
    """

    part: int = 0
    whole: int = 1
    bounded: bool = True
    limit: str = ""
    first: int = 0

    def has(self, place: int, record: int) -> bool:
        """Whether a record is among them.

        Args:
            place: any number that tells its shard from others.
            record: its number in the shard, from 0.
        """
        if not self.part:
            return False
        shift = (self.first + place) * _SPREAD % self.whole
        before, after = (
            (number * self.part + shift) // self.whole for number in (record, record + 1)
        )
        return after > before

    def is_cheap(self, height: int, width: int, size: int) -> bool:
        """Whether an image of so many pixels and bytes is decoded, if its record is among them."""
        return not self.bounded or height * width <= max(_SMALL, size * _PIXELS_OF_A_BYTE)

    def under(self, policy: Policy) -> Decoding:
        """The same, or none where the rule that checks decoding is off."""
        if policy.severity(all_rules()[_RULE]) is None:
            return Decoding(limit=f"{_RULE} is off")
        return self


def read_most_decoded(text: str) -> int | None:
    """What ``all``, ``none`` or a number means to :func:`choose_decoding`.

    Raises:
        ValueError: it is something else.
    """
    if text in ("all", "none"):
        return None if text == "all" else 0
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not all, none or a whole number")
    return int(text)


NOT_DECODED = Decoding(limit="not asked for")


def can_decode() -> bool:
    """Whether Pillow is there."""
    return importlib.util.find_spec("PIL") is not None


def choose_decoding(
    most: int | None,
    inventory: Inventory,
    archives: Archives,
    max_record_bytes: int,
) -> Decoding:
    """Which images of an inventory are decoded: at most so many; None for all."""
    if most == 0:
        return NOT_DECODED
    if not can_decode():
        return Decoding(limit="Pillow is not installed: pip install Pillow")
    if most is None:
        return Decoding(1, 1, bounded=False)
    count = _count(inventory, archives, max_record_bytes, most)
    if count <= most:
        return Decoding(1, 1)
    return Decoding(most, count, limit="an even sample; choose to decode all for every one")


def _count(inventory: Inventory, archives: Archives, max_record_bytes: int, enough: int) -> int:
    """How many records there are: exactly, unless there are more than enough."""
    locations = inventory.locations
    total = sum(one.known_size() or 0 for one in locations)
    zips = len(locations) - len(inventory.archives)  # where they begin
    records = done = 0
    for place, location in enumerate(locations):
        size = location.known_size() or 0
        if location.remote:
            records += size // _REMOTE_RECORD
        for batch in _ends(location, archives if place >= zips else None, max_record_bytes):
            at, counts = done + batch, records + np.arange(1, len(batch) + 1)
            stops = (at > _MOST_COUNTED) | ((counts > enough) & (at > _COUNTED_WHOLE))
            if stops.any():
                row = int(stops.argmax())
                read = int(at[row])
                return int(counts[row]) * max(total, read) // read
            records += len(batch)
        done += size
    return records


def _ends(
    location: Location, archives: Archives | None, max_record_bytes: int
) -> Iterator[np.ndarray]:
    """How many bytes of a file have been read after each record, int64 of shape (n,) a batch."""

    def unpacked(stream: ReadableStream) -> Iterator[np.ndarray]:
        for records in read_record_batch_stream(
            stream,
            location.name,
            on_damage=lambda _: None,
            max_record_bytes=max_record_bytes,
        ):
            yield records.offsets + records.lengths

    with suppress(OSError):
        if archives is None:
            if not location.remote:
                with location.open() as stream:
                    for ends in unpacked(stream):
                        # A compressed shard has been read less far than the records reach.
                        yield np.minimum(ends, stream.tell())
            return
        done = 0
        for shard, entry_stream in archives.open(location.path, location.name).opened():
            entry = shard.entry
            with suppress(ArchiveDamageError):
                for ends in unpacked(entry_stream):
                    read = np.minimum(ends, entry.size).astype(object)  # it may be > 2**63
                    read = done + read * entry.packed_size // max(entry.size, 1)
                    yield read.astype(np.int64)
            done += entry.packed_size
