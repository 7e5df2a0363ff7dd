"""Functions to format many numbers as text at once, for formats that consist mostly of numbers."""

from __future__ import annotations

import numpy as np

_ZERO, _DOT, _MINUS = np.frombuffer(b"0.-", np.uint8)
_FILLER = b"\0"
_ROWS_PER_STEP = 1 << 10  # so that a step fits into the processor's cache


def format_rows(*columns: bytes | np.ndarray) -> bytes:
    """Join the columns of each row: constant texts, and numbers from :func:`format_numbers`.

    >>> numbers = format_numbers(np.array([1, 20])), format_numbers(np.array([0.5, -3.0]), 6)
    >>> format_rows(b"a ", numbers[0], b" ", numbers[1], b";")
    b'a 1 0.5;a 20 -3;'
    """
    count = next(column.shape[1] for column in columns if not isinstance(column, bytes))
    texts = []
    for first in range(0, count, _ROWS_PER_STEP):
        rows = slice(first, min(first + _ROWS_PER_STEP, count))
        table = np.empty((rows.stop - first, sum(map(len, columns))), np.uint8)
        start = 0
        for column in columns:
            if isinstance(column, bytes):
                table[:, start : start + len(column)] = np.frombuffer(column, np.uint8)
            else:
                table[:, start : start + len(column)] = column[:, rows].T
            start += len(column)
        texts.append(table.tobytes().translate(None, _FILLER))
    return b"".join(texts)


_TEN = 10
DECIMALS = 10
"""Decimals of a pixel in annotation files; a double of thousands of pixels has no more."""
_EXACT_DIGITS = 1e15
"""Whole numbers below this limit, and numbers of 15 digits, are exact as doubles."""


def format_numbers(values: np.ndarray, decimals: int = 0) -> np.ndarray:
    """Return the characters of each number, uint8 of shape (width, n), padded with NUL.

    Args:
        values: finite numbers; they must be whole if ``decimals`` is 0.
        decimals: maximum number of decimals; trailing zeros are omitted.
    """
    if not len(values):
        return np.zeros((0, 0), np.uint8)
    size = scaled = np.abs(values)
    # Most numbers need fewer decimals, which saves time below.
    for places in range(decimals + 1) if decimals else ():
        exact = size * 10.0**places
        scaled = np.rint(exact)
        error = np.abs(exact - scaled)
        if (error <= np.maximum(0.5 * 10.0 ** (places - decimals), exact / _EXACT_DIGITS)).all():
            decimals = places
            break
    largest = int(scaled.max())
    if (decimals and largest >= _EXACT_DIGITS) or largest >= 1 << 63:
        texts = np.array([_format_long(value, decimals) for value in values.tolist()], "S")
        return np.asarray(texts.view(np.uint8).reshape(len(values), -1).T)
    remaining = scaled.astype(np.uint32 if largest < 1 << 32 else np.uint64)
    ten = remaining.dtype.type(_TEN)
    width = max(len(str(largest)), decimals + 1)
    characters = np.zeros((1 + width + bool(decimals), len(values)), np.uint8)
    characters[0] = _MINUS * ((values < 0) & (remaining > 0))
    is_shown = np.full(len(values), not decimals)
    row = len(characters) - 1
    for position in range(width):  # from the last digit to the first
        if decimals and position == decimals:
            characters[row] = _DOT * is_shown
            is_shown[:] = True
            row -= 1
        # Division and multiplication are four times as fast as divmod.
        tens = remaining // ten
        digit = (remaining - tens * ten).astype(np.uint8)
        if position < decimals:
            is_shown |= digit > 0  # omits trailing zeros
        elif position > decimals:
            is_shown = remaining > 0  # omits leading zeros
        characters[row] = (digit + np.uint8(_ZERO)) * is_shown
        remaining = tens
        row -= 1
    return characters


def _format_long(value: float, decimals: int) -> str:
    """Format a number with at most 15 digits, without an exponent."""
    rounded = round(float(f"{value:.15g}"), decimals) + 0.0  # + 0.0 turns -0 into 0
    return np.format_float_positional(rounded, trim="-")


def multiply_as_typed(values: np.ndarray, sizes: np.ndarray | float) -> np.ndarray:
    """Multiply normalized numbers by sizes, and restore the decimals that were typed.

    Args:
        values: finite numbers, float32 from records or float64 from annotation files.
        sizes: one size, or one per value.

    Returns:
        float64 of the shape of the values. Products of float32 are the shortest decimals that
        give the same float32 when divided by the sizes.
    """
    divisors = np.broadcast_to(np.asarray(sizes, np.float64), values.shape).ravel()
    normalized = values.ravel()
    products = normalized * divisors
    rows = np.arange(products.size if values.dtype == np.float32 else 0)
    for places in range(DECIMALS + 1):  # most numbers are whole
        if not rows.size:
            break
        rounded = products[rows].round(places)
        is_same = (rounded / divisors[rows]).astype(np.float32) == normalized[rows]
        products[rows[is_same]] = rounded[is_same]
        rows = rows[~is_same]
    return products.reshape(values.shape)
