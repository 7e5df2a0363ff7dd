"""Reads the values of a feature, the usual spelling in line, everything else as TensorFlow does.

What short lists decode to is remembered: sizes and classes recur in record after record.

All functions take the buffer and the feature's span, whose kind the caller has looked at, and
raise :class:`~tfod.example.wire.NotAnExampleError` (or IndexError) for a list that cannot be taken
apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tfod.check.fast_parsing import byte_spans, float_bytes, ints
from tfod.example.wire import BYTES_TAG, FLOAT_TAG, Buffer, FeatureSpan, NotAnExampleError

_SHORT = 40  # bytes: longer lists are of many objects, which hardly recur
_MOST_REMEMBERED = 1 << 14
_known_ints: dict[bytes, tuple[int, ...]] = {}
_known_texts: dict[bytes, list[str]] = {}


def single_value(buffer: Buffer, span: FeatureSpan) -> tuple[int, int] | None:
    """Where the only value of a bytes_list lies; None when there is not exactly one."""
    _, start, end = span
    if end - start >= 2 and buffer[start] == 0x0A:
        size = buffer[start + 1]
        if size < 0x80 and start + 2 + size == end:
            return start + 2, end
    spans = byte_spans(buffer, start, end)
    return spans[0] if len(spans) == 1 else None


def int_values(buffer: Buffer, span: FeatureSpan) -> tuple[int, ...]:
    """The numbers of an int64_list."""
    _, start, end = span
    raw = bytes(buffer[start:end])
    if raw.isascii() and raw[:1] == b"\n" and len(raw) == 2 + raw[1]:
        return tuple(raw[2:])  # packed numbers below 128 are their bytes
    known = _known_ints.get(raw)
    if known is None:
        known = tuple(ints(raw, 0, len(raw)))
        if len(raw) <= _SHORT:
            if len(_known_ints) >= _MOST_REMEMBERED:
                _known_ints.clear()
            _known_ints[raw] = known
    return known


def text_values(buffer: Buffer, span: FeatureSpan) -> Sequence[str] | None:
    """The texts of a bytes_list; None when one of them is not UTF-8."""
    _, start, end = span
    raw = bytes(buffer[start:end])
    known = _known_texts.get(raw)
    if known is None:
        try:
            known = _texts_in(raw)
        except UnicodeDecodeError:
            return None
        if len(raw) <= _SHORT:
            if len(_known_texts) >= _MOST_REMEMBERED:
                _known_texts.clear()
            _known_texts[raw] = known
    return known


def _texts_in(raw: bytes) -> list[str]:
    texts = []
    position, end = 0, len(raw)
    while position < end:
        # The usual spelling: the tag, a length of one byte, the text.
        if raw[position] != 0x0A or raw[position + 1] > 0x7F:
            return [raw[first:last].decode() for first, last in byte_spans(raw, 0, end)]
        first = position + 2
        position = first + raw[position + 1]
        texts.append(raw[first:position].decode())
    if position != end:
        raise NotAnExampleError("a value reaches beyond its list")
    return texts


def byte_values(buffer: Buffer, span: FeatureSpan) -> list[bytes]:
    """The values of a bytes_list, copied."""
    _, start, end = span
    spans = byte_spans(buffer, start, end)
    return [bytes(buffer[first:last]) for first, last in spans]


def side_bytes(buffer: Buffer, span: FeatureSpan) -> bytes:
    """The numbers of a float_list as their bytes, little-endian float32."""
    _, start, end = span
    if end - start >= 2 and buffer[start] == 0x0A and start + 2 + buffer[start + 1] == end:
        size = buffer[start + 1]
        if size < 0x80 and not size & 3:
            return bytes(buffer[start + 2 : end])
    return float_bytes(buffer, start, end)


def value_count(buffer: Buffer, span: FeatureSpan) -> int:
    """How many values a list of any kind has."""
    tag, start, end = span
    if tag == FLOAT_TAG:
        return len(side_bytes(buffer, span)) >> 2
    if tag == BYTES_TAG:
        return len(byte_spans(buffer, start, end))
    return len(int_values(buffer, span))


def pixel_box_sides(
    buffer: Buffer, span: FeatureSpan, size: tuple[int | None, int | None]
) -> tuple[bytes, bytes, bytes, bytes] | None:
    """One box of ``x, y, width, height`` in pixels as four normalized sides.

    None when it has not four numbers, or the picture's size (height, width) is not known.
    """
    numbers = np.frombuffer(side_bytes(buffer, span), "<f4").astype(np.float64)
    height, width = size
    if len(numbers) != 4 or not height or not width:
        return None
    x, y, box_width, box_height = numbers
    sides = x / width, y / height, (x + box_width) / width, (y + box_height) / height
    xmin, ymin, xmax, ymax = (np.array([side], "<f4").tobytes() for side in sides)
    return xmin, ymin, xmax, ymax
