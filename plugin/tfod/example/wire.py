"""The wire format under ``tf.train.Example``: the kinds of list, and varints.

Source of the layout: tensorflow/core/example/{example,feature}.proto. Reading is the kernel's.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

Buffer: TypeAlias = "bytes | bytearray"


class Kind(enum.Enum):
    """Which list a Feature holds; the values are the field names of feature.proto."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


def encode_varint(value: int) -> bytes:
    """Encode a number from 0 as an unsigned base-128 varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]
