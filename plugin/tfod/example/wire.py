"""Wire format of ``tf.train.Example``: kinds of list and varints. The kernel does the reading.

Source of the layout: tensorflow/core/example/{example,feature}.proto.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

Buffer: TypeAlias = "bytes | bytearray"


class Kind(enum.Enum):
    """The kind of list that a Feature holds; the values are field names of feature.proto."""

    BYTES = "bytes_list"
    FLOAT = "float_list"
    INT64 = "int64_list"


def encode_varint(value: int) -> bytes:
    """Encode a non-negative number as an unsigned base-128 varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = [bytes([value]) for value in range(0x80)]
