"""Many numbers as text at once, for formats that are texts full of them."""

from __future__ import annotations

import numpy as np

_ZERO, _DOT, _MINUS = np.frombuffer(b"0.-", np.uint8)
_FILLER = b"\0"
_AT_ONCE = 1 << 10  # rows, which a processor's cache holds


def lines_of(*columns: bytes | np.ndarray) -> bytes:
    """One text of each row's columns behind each other: texts, and numbers by :func:`digits`.

    >>> lines_of(b"a ", digits(np.array([1, 20])), b" ", digits(np.array([0.5, -3.0]), 6), b";")
    b'a 1 0.5;a 20 -3;'
    """
    count = next(one.shape[1] for one in columns if not isinstance(one, bytes))
    found = []
    for first in range(0, count, _AT_ONCE):
        rows = slice(first, min(first + _AT_ONCE, count))
        table = np.empty((rows.stop - first, sum(map(len, columns))), np.uint8)
        place = 0
        for one in columns:
            text = np.frombuffer(one, np.uint8) if isinstance(one, bytes) else one[:, rows].T
            table[:, place : place + len(one)] = text
            place += len(one)
        found.append(table.tobytes().translate(None, _FILLER))
    return b"".join(found)


_TEN = 10
DECIMALS = 10
"""Of a pixel, as documents are written: as many as a double of thousands of pixels holds."""
_DIGITS = 1e15
"""Whole numbers below it are exact as doubles, and so are numbers of 15 digits."""


def digits(values: np.ndarray, decimals: int = 0) -> np.ndarray:
    """The characters of each number, uint8 of shape (width, n), with a filler where there are less.

    Args:
        values: whole numbers, or others with so many ``decimals``, without the zeros at their end;
            all finite.
        decimals: 0 for whole numbers.
    """
    if not len(values):
        return np.zeros((0, 0), np.uint8)
    size = scaled = np.abs(values)
    for places in range(decimals + 1) if decimals else ():  # seldom all of them
        exact = size * 10.0**places
        scaled = np.rint(exact)
        error = np.abs(exact - scaled)
        if (error <= np.maximum(0.5 * 10.0 ** (places - decimals), exact / _DIGITS)).all():
            decimals = places
            break
    largest = int(scaled.max())
    if (decimals and largest >= _DIGITS) or largest >= 1 << 63:
        texts = np.array([_positional(value, decimals) for value in values.tolist()], "S")
        return np.asarray(texts.view(np.uint8).reshape(len(values), -1).T)
    rest = scaled.astype(np.uint32 if largest < 1 << 32 else np.uint64)
    ten = rest.dtype.type(_TEN)
    width = max(len(str(largest)), decimals + 1)
    found = np.zeros((1 + width + bool(decimals), len(values)), np.uint8)
    found[0] = _MINUS * ((values < 0) & (rest > 0))
    shown = np.full(len(values), not decimals)
    at = len(found) - 1
    for place in range(width):
        if decimals and place == decimals:
            found[at] = _DOT * shown
            shown[:] = True
            at -= 1
        # Divided and multiplied, which is four times as fast as divmod.
        tens = rest // ten
        digit = (rest - tens * ten).astype(np.uint8)
        if place < decimals:
            shown |= digit > 0  # zeros at the end go
        elif place > decimals:
            shown = rest > 0  # and those at the beginning
        found[at] = (digit + np.uint8(_ZERO)) * shown
        rest = tens
        at -= 1
    return found


def _positional(value: float, decimals: int) -> str:
    """Format a number with at most 15 digits, without an exponent."""
    rounded = round(float(f"{value:.15g}"), decimals) + 0.0  # no -0
    return np.format_float_positional(rounded, trim="-")


def multiply_as_typed(values: np.ndarray, sizes: np.ndarray | float) -> np.ndarray:
    """Multiply normalized numbers by sizes; numbers of single precision become short decimals.

    Args:
        values: finite; float32 from records, float64 from documents.
        sizes: one, or as many as values.

    Returns:
        float64, of the shape of the values; of float32 the shortest decimals that give the same
        float32 when they are divided by the sizes.
    """
    divisors = np.broadcast_to(np.asarray(sizes, np.float64), values.shape).ravel()
    given = values.ravel()
    products = given * divisors
    rows = np.arange(products.size if values.dtype == np.float32 else 0)
    for places in range(DECIMALS + 1):  # most numbers are whole
        if not rows.size:
            break
        rounded = products[rows].round(places)
        is_same = (rounded / divisors[rows]).astype(np.float32) == given[rows]
        products[rows[is_same]] = rounded[is_same]
        rows = rows[~is_same]
    return products.reshape(values.shape)
