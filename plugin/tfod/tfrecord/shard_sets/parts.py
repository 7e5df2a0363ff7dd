"""Splitting a shard where records end: by walking its headers, or by the index beside it.

An index has one line for each record: the byte at which it starts (its header, not its payload) and
how many bytes it has with header and footer, in decimal, a space between. Source: ``tfrecord2idx``
of NVIDIA DALI, whose ``fn.readers.tfrecord(index_path=…)`` reads it, and of vahidk/tfrecord. On
Windows vahidk's lines end as lines do there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from tfod.errors import TfodError
from tfod.tfrecord.compression import PeekedStream, ReadableStream
from tfod.tfrecord.framing import FRAME_BYTES, HEADER_BYTES, ShardPart, length_in_header
from tfod.tfrecord.storage.open import open_shard
from tfod.tfrecord.storage.urls import is_url

INDEX_EXTENSION = ".idx"

_HEADERS_BUFFER = 1 << 13
_BLOCK = 1 << 18
_MOST_DIGITS = 18  # of numbers of which two add up within 63 bits
_LONGEST_LINE = 2 * _MOST_DIGITS + len(" \r\n")
_SPACE, _NEWLINE, _ZERO, _NINE = b" \n09"


def split_shard(path: str | os.PathLike[str], part_bytes: int) -> Iterator[ShardPart]:
    """Split a plain shard into parts of about so many bytes, by walking its headers alone.

    From the first header that is not sound on, the rest is one part: only a reader who looks at
    the data knows where to go on.
    """
    # A small buffer: behind a large record the next header is all that is read.
    with open(path, "rb", buffering=_HEADERS_BUFFER) as file:
        size = os.fstat(file.fileno()).st_size
        start = first = number = position = 0
        while (length := length_in_header(file.read(HEADER_BYTES))) is not None:
            position += FRAME_BYTES + length
            number += 1
            if position >= size:
                break
            if position - start >= part_bytes:
                yield ShardPart(start, position, first, number - first)
                start, first = position, number
            file.seek(position)
        yield ShardPart(start, size, first, number - first if position == size else None)


class _NotItsIndexError(Exception):
    """What lies beside the shard is no index, or the index of another shard."""


def split_by_index(shard: str, part_bytes: int) -> list[ShardPart] | None:
    """Split a plain shard into parts of about so many bytes where its index says records end.

    Only the headers at which parts start are read of the shard, of a remote one the first alone.
    So an index that is wrong elsewhere goes unnoticed: the reader of a part has to see that it has
    as many records as it says.

    Args:
        shard: path or address, with the index at the same one plus ``.idx``.
        part_bytes: parts have at least so many bytes, but for the last one.

    Returns:
        The parts, each with its number of records; None when there is no index, when it does not
        fit the shard as it is now, when the shard is empty, compressed or in a zip, and when a
        server cannot begin in the middle.
    """
    index = shard + INDEX_EXTENSION
    if os.path.lexists(index) and not os.path.isfile(index):
        return None  # opening a pipe waits for a writer
    try:
        with open_shard(index) as (text, _), open_shard(shard) as (stream, size):
            if not size or (is_url(shard) and not stream.seekable()):
                return None  # such a server sends all that lies in front of a part, too
            parts, lengths = _cut(_pairs(text), size, part_bytes)
            looked_at = 1 if is_url(shard) else len(parts)  # a request each
            for part, length in zip(parts[:looked_at], lengths[:looked_at], strict=True):
                stream.seek(part.start)
                if length_in_header(PeekedStream(stream, HEADER_BYTES).head) != length:
                    return None
    except (_NotItsIndexError, TfodError, OSError):
        return None
    return parts


def _cut(
    blocks: Iterator[np.ndarray], size: int, part_bytes: int
) -> tuple[list[ShardPart], list[int]]:
    """The parts, and for each how long the payload of its first record is."""
    parts: list[ShardPart] = []
    lengths: list[int] = []
    start = first = number = end = 0
    for pairs in blocks:
        starts, sizes = np.ascontiguousarray(pairs.T)
        stops = starts + sizes
        if starts[0] != end or (starts[1:] != stops[:-1]).any() or sizes.min() < FRAME_BYTES:
            raise _NotItsIndexError
        end = int(stops[-1])
        if end > size:  # whatever follows
            raise _NotItsIndexError
        if not lengths:
            lengths.append(int(sizes[0]) - FRAME_BYTES)
        # A part begins with the first record behind so many bytes of the one before.
        while (at := int(np.searchsorted(starts, start + max(part_bytes, 1)))) < len(starts):
            parts.append(ShardPart(start, int(starts[at]), first, number + at - first))
            lengths.append(int(sizes[at]) - FRAME_BYTES)
            start, first = int(starts[at]), number + at
        number += len(starts)
    if end != size:
        raise _NotItsIndexError
    parts.append(ShardPart(start, size, first, number - first))
    return parts, lengths


def _pairs(stream: ReadableStream) -> Iterator[np.ndarray]:
    """The numbers of an index in blocks of whole lines, int64 of shape (n, 2), n > 0."""
    rest = b""
    while block := stream.read(_BLOCK):
        lines, newline, rest = (rest + block).rpartition(b"\n")
        if len(rest) > _LONGEST_LINE:  # it would be kept
            raise _NotItsIndexError
        if newline:
            yield _parse((lines + newline).replace(b"\r\n", b"\n"))
    if rest:
        raise _NotItsIndexError


def _parse(lines: bytes) -> np.ndarray:
    data = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(data < _ZERO)
    digits = np.diff(ends, prepend=-1) - 1
    # NumPy reads more than an index may say, such as signs and several spaces.
    if (
        data.max() > _NINE
        or (data[ends[::2]] != _SPACE).any()
        or (data[ends[1::2]] != _NEWLINE).any()
        or digits.min() < 1
        or digits.max() > _MOST_DIGITS
    ):
        raise _NotItsIndexError
    return np.fromstring(lines, np.int64, sep=" ").reshape(-1, 2)
