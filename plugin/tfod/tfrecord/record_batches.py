"""Sound records in batches, for whoever copies them as they are: no object a record."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import google_crc32c

from tfod.errors import ShardError
from tfod.tfrecord.compression import Compression, InflatingStream, PeekedStream
from tfod.tfrecord.damage import HEADER_BYTES
from tfod.tfrecord.headers import FOOTER_BYTES
from tfod.tfrecord.opening import open_shard
from tfod.tfrecord.records import masked_crc32c, read_records, shard_compression
from tfod.tfrecord.window import BUFFER_BYTES, Source, Window

_ENDLESS = 1 << 62
_HEADER = struct.Struct("<QI")
_FOOTER = struct.Struct("<I")
_JOINT = struct.Struct("<IQI")  # a footer, and the next record's header
_crc32c = google_crc32c.value
# Lengths recur where records are small and many.
_checksums_of_lengths: dict[int, int] = {}
_MOST_KNOWN = 1 << 14


class RecordBatch(NamedTuple):
    """Records that lie side by side, checksums verified.

    Record ``i`` is ``buffer[bounds[i]:bounds[i + 1]]``, with its header and its footer. The buffer
    is not changed as long as something refers to it.
    """

    buffer: bytearray
    bounds: list[int]


def read_batches(path: str | os.PathLike[str]) -> Iterator[RecordBatch]:
    """Walk through the records of one shard, plain, GZIP or ZLIB, a buffer of them at a time.

    Raises:
        ShardError: at the first defect of the framing, as :func:`read_records`; the records
            before it may have been handed out.
        OSError: the file cannot be opened or read.
    """
    name = os.fspath(path)
    with open_shard(name) as (stream, size):
        peeked = PeekedStream(stream, HEADER_BYTES)
        compression = shard_compression(peeked.head)
        plain = compression is Compression.NONE
        source: Source = peeked if plain else InflatingStream(peeked)
        size = _ENDLESS if size is None else size
        window = Window(source, 0, size if plain else _ENDLESS)
        wanted = BUFFER_BYTES
        position = 0
        try:
            while window.refill(position, wanted):
                bounds, wanted = _sound_records(window)
                position = bounds[-1]
                if position:
                    yield RecordBatch(window.buffer, bounds)
                if plain and wanted > max(size - window.base - position, BUFFER_BYTES):
                    _say_what_is_wrong(name)  # a forged length takes no memory
        except (zlib.error, EOFError):
            _say_what_is_wrong(name)
        if not peeked.head:
            for _ in read_records(name):  # it says whether that is wrong
                pass
            return
        is_short = not window.base or window.base != size != _ENDLESS
        if window.have or (plain and is_short):
            _say_what_is_wrong(name)


def _sound_records(window: Window) -> tuple[list[int], int]:
    """The records at the start of a window as far as they are whole and sound.

    Returns:
        Their bounds, and how many bytes the next one has (at least): more than the stream has,
        and the window is the last, where it is not sound.
    """
    # Hot: all that a copy does for a record but moving its bytes.
    buffer, array, have = window.buffer, window.array, window.have
    known, unpack_joint = _checksums_of_lengths.get, _JOINT.unpack_from
    bounds, position = [0], 0
    if have < HEADER_BYTES:
        return bounds, BUFFER_BYTES
    length, length_crc = _HEADER.unpack_from(buffer)
    while known(length) == length_crc or _is_checksum_of(length, length_crc):
        data = position + HEADER_BYTES
        footer = data + length
        position = footer + FOOTER_BYTES
        if position > have:
            return bounds, position - bounds[-1]
        crc = _crc32c(array[data:footer])
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        if position + HEADER_BYTES > have:  # no header behind it
            if masked == _FOOTER.unpack_from(buffer, footer)[0]:
                bounds.append(position)
            break
        stored, length, length_crc = unpack_joint(buffer, footer)
        if masked != stored:
            break
        bounds.append(position)
    return bounds, BUFFER_BYTES


def _is_checksum_of(length: int, checksum: int) -> bool:
    if masked_crc32c(length.to_bytes(8, "little")) != checksum:
        return False
    if len(_checksums_of_lengths) >= _MOST_KNOWN:
        _checksums_of_lengths.clear()
    _checksums_of_lengths[length] = checksum
    return True


def _say_what_is_wrong(path: str) -> NoReturn:
    """The careful walk knows what is wrong, and where."""
    for _ in read_records(path):
        pass
    raise ShardError("was changed while it was read", shard=path, remedy="try again")
