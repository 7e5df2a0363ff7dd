"""How a subset is cut into shards: what a user may ask of the commands and exporters that write."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tfod.errors import TfodError
from tfod.tfrecord.compression import Compression

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\Z", re.IGNORECASE)
_FACTORS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class OptionError(TfodError):
    """An option makes no sense, or two of them together."""


@dataclass(frozen=True)
class ShardLayout:
    """How shards are to be written; None leaves it to whoever writes.

    Attributes:
        num_shards: so many shards of each subset, records dealt in turn; fewer where there are
            fewer records.
        shard_size: or a new shard when one would grow beyond this many bytes, uncompressed.
        compression: of each shard as a whole.

    Raises:
        OptionError: both a number and a size are asked for, or one is below 1.
    """

    num_shards: int | None = None
    shard_size: int | None = None
    compression: Compression | None = None

    def __post_init__(self) -> None:
        if self.num_shards is not None and self.shard_size is not None:
            raise OptionError("num_shards and shard_size exclude each other; give one of them")
        if any(one is not None and one < 1 for one in (self.num_shards, self.shard_size)):
            raise OptionError("num_shards and shard_size must be at least 1")


def parse_size(text: str) -> int:
    """Bytes of a size such as ``100MB`` (units of 1024).

    Raises:
        OptionError: it is none.
    """
    match = _SIZE.match(text.strip())
    size = int(float(match[1]) * _FACTORS[match[2].upper()]) if match else 0
    if size < 1:
        raise OptionError(f"shard_size: {text!r} is not a size; write for example 100MB")
    return size


def parse_count(value: int | str) -> int:
    """A number from 1.

    Raises:
        OptionError: it is none.
    """
    if not str(value).isdigit() or int(value) < 1:
        raise OptionError(f"num_shards: {value!r} is not a number from 1")
    return int(value)
