"""Masks as PNG images, written without an image library."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_EIGHT_BITS_GRAY = (8, 0, 0, 0, 0)  # bits, colour type, compression, filter, interlace
_NO_FILTER = 0


def encode_mask_png(mask: np.ndarray, *, is_box: bool = False) -> bytes:
    """A mask as a PNG of one channel, 1 where the object is, as create_coco_tf_record.py has it.

    Source: W3C's PNG specification.

    Args:
        mask: bool or uint8 of shape (height, width); what is not 0 is the object.
        is_box: note that the object has no other mask than its box (:func:`is_box_png`): the OD API
            wants a mask for each object, or for none.
    """
    height, width = mask.shape
    rows = np.full((height, width + 1), _NO_FILTER, np.uint8)
    rows[:, 1:] = mask != 0
    return (
        _SIGNATURE
        + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *_EIGHT_BITS_GRAY))
        + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
        + (_BOX_NOTE if is_box else b"")
        + _chunk(b"IEND", b"")
    )


def is_box_png(data: bytes | memoryview) -> bool:
    """Whether a mask stands for an object that has only a box, as our exports note it."""
    return bytes(data[-_FROM_END:-_END_BYTES]) == _BOX_NOTE


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


_BOX_NOTE = _chunk(b"tEXt", b"Comment\0tfod: a box")  # a text that readers of images pass over
_END_BYTES = len(_chunk(b"IEND", b""))
_FROM_END = len(_BOX_NOTE) + _END_BYTES
