"""Where each record of many shards is, so that any process may fetch any of them, and which go
into which new shard.

Plain shards stay where they are. Others (compressed ones, those in a zip, remote ones) are unpacked
into the work folder first, since nobody can jump to a record of them.
"""

from __future__ import annotations

import array
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tfod.shards.inputs import compression_of, raise_damage, sound_batches, unpack
from tfod.tfrecord.compression import Compression
from tfod.tfrecord.framing import HEADER_BYTES, masked_crc32c
from tfod.tfrecord.shard_sets.parts import split_shard
from tfod.tfrecord.storage.open import read_at
from tfod.tfrecord.storage.publishing import AtomicFile
from tfod.tfrecord.writer import ShardLayout

_FOOTER = 4
_MOST_OPEN = 128
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends


@dataclass(frozen=True)
class Surveyed:
    """A shard whose records are known.

    Attributes:
        shard: its path, or URL.
        place: path of the plain file that holds its records.
        records: how many.
        bytes: how many they have in that file.
    """

    shard: str
    place: str
    records: int
    bytes: int


def survey(shard: str, number: int, work: str) -> Surveyed:
    """Find the records of a shard, by path or URL, and leave their bounds in the work folder.

    Of a plain file only headers are read; checksums of data are verified when it is copied.

    Raises:
        ShardError: it is damaged.
        WriteError: the folder cannot be written to.
    """
    is_plain = os.path.isfile(shard) and compression_of(shard) is Compression.NONE
    place = shard if is_plain else os.path.join(work, f"unpacked-{number}")
    bounds = np.frombuffer(_bounds(shard) if is_plain else unpack(shard, place), np.int64)
    with AtomicFile(bounds_file(number, work)) as file:
        file.write(bounds.data.cast("B"))
    return Surveyed(shard, place, len(bounds) - 1, int(bounds[-1]))


def _bounds(shard: str) -> array.array[int]:
    """The bounds of a plain shard's records."""
    bounds = array.array("q", [0])
    if not os.path.getsize(shard):
        for _ in sound_batches(shard):  # it says whether that is wrong
            pass
        return bounds
    for one in split_shard(shard, 1):
        if one.records != 1:
            raise_damage(shard)
        bounds.append(one.stop)
    return bounds


def bounds_file(number: int, work: str) -> str:
    """Where the bounds of a shard's records are."""
    return os.path.join(work, f"bounds-{number}")


class RecordTable:
    """The records of some shards, numbered one shard after the other."""

    def __init__(self, shards: Sequence[Surveyed], path: str) -> None:
        self._shards = shards
        self._path = path
        self._ends = np.cumsum([one.records for one in shards])
        self.records = int(self._ends[-1])

    @classmethod
    def write(cls, shards: Sequence[Surveyed], first: int, work: str) -> RecordTable:
        """Make one file of what surveys of these shards, numbered from ``first`` on, have left.

        Raises:
            WriteError: the work folder cannot be written to.
        """
        with AtomicFile(os.path.join(work, f"table-{first}")) as file:
            for number in range(first, first + len(shards)):
                bounds = np.fromfile(bounds_file(number, work), np.int64)
                os.unlink(bounds_file(number, work))
                rows = np.stack((bounds[:-1], np.diff(bounds)), axis=1)
                file.write(rows.tobytes())
        return cls(shards, file.path)

    def sizes(self) -> Iterator[np.ndarray]:
        """The bytes of the records with their headers, a block for each shard."""
        rows = self._rows()
        for start, stop in zip((0, *self._ends[:-1]), self._ends, strict=True):
            yield np.array(rows[start:stop, 1])

    def framed(self, numbers: np.ndarray) -> Iterator[bytes]:
        """Records with header and footer, in the order of their numbers; checksums are verified.

        Raises:
            ShardError: one is damaged.
        """
        spans = self._rows()[numbers].tolist()
        shards = np.searchsorted(self._ends, numbers, side="right").tolist()
        handles: OrderedDict[int, int] = OrderedDict()  # the least recently used comes first
        try:
            for (start, size), shard in zip(spans, shards, strict=True):
                if shard not in handles:
                    if len(handles) == _MOST_OPEN:
                        os.close(handles.popitem(last=False)[1])
                    handles[shard] = self._open(shard)
                handles.move_to_end(shard)
                framed = read_at(handles[shard], size, start)
                payload = framed[HEADER_BYTES:-_FOOTER]
                stored = int.from_bytes(framed[-_FOOTER:], "little")
                length = int.from_bytes(framed[:8], "little")
                if masked_crc32c(payload) != stored or length != len(payload):
                    raise_damage(self._shards[shard].shard)
                yield framed
        finally:
            for handle in handles.values():
                os.close(handle)

    def _open(self, shard: int) -> int:
        """The descriptor of a shard's file."""
        one = self._shards[shard]
        handle = os.open(one.place, os.O_RDONLY | _BINARY)
        if os.fstat(handle).st_size != one.bytes:
            os.close(handle)
            raise_damage(one.shard)
        return handle

    def _rows(self) -> np.ndarray:
        """Start and size of each record, int64 of shape (records, 2)."""
        if not self.records:  # nothing can be mapped
            return np.zeros((0, 2), np.int64)
        return np.memmap(self._path, np.int64, "r", shape=(self.records, 2))


@dataclass(frozen=True)
class Cut:
    """The records of one shard: every ``step``-th position from ``start`` up to ``stop``."""

    start: int
    stop: int
    step: int = 1


def cuts(layout: ShardLayout, records: int, sizes: Iterable[np.ndarray]) -> Sequence[Cut]:
    """The shards of a subset, as :class:`~tfod.tfrecord.writer.ShardSetWriter` makes them.

    ``sizes`` are the bytes of each record with header and footer, in the order in which they are
    written, in blocks; only looked at for shards of a size.
    """
    if layout.shard_size is None:
        turns = max(1, min(layout.num_shards or 1, records))
        return [Cut(first, records, turns) for first in range(turns)]
    starts = [0, *_starts(sizes, layout.shard_size)]
    return [Cut(*span) for span in zip(starts, [*starts[1:], records], strict=True)]


def _starts(sizes: Iterable[np.ndarray], most: int) -> Iterable[int]:
    """Positions at which another shard begins, which would be larger than ``most`` otherwise."""
    place = filled = 0
    for block in sizes:
        ends = np.cumsum(block)
        taken = before = 0
        while taken < len(block):
            fitting = int(np.searchsorted(ends, before + most - filled, side="right"))
            if fitting == taken and not filled:
                fitting += 1  # larger than a shard: it gets one of its own
            if fitting < len(block):
                yield place + fitting
                filled = 0
            else:
                filled += int(ends[-1]) - before
            taken = fitting
            before = int(ends[taken - 1]) if taken else 0
        place += len(block)
