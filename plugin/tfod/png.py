"""Masks as PNG pictures, written without a picture library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS_GRAY = (8, 0, 0, 0, 0)  # bits, colour type, compression, filter, interlace
_NO_FILTER = 0


def encode_mask_png(mask: np.ndarray) -> bytes:
    """A mask as a PNG of one channel, 1 where the object is, as create_coco_tf_record.py has it.

    Source: W3C's PNG specification.

    Args:
        mask: bool or uint8 of shape (height, width); what is not 0 is the object.
    """
    height, width = mask.shape
    rows = np.full((height, width + 1), _NO_FILTER, np.uint8)
    rows[:, 1:] = mask != 0
    return (
        _SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *_EIGHT_BITS_GRAY))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + _chunk(b"IEND", b"")
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
