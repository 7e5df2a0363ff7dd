"""Many numbers as text at once, for formats that are texts full of them."""

from __future__ import annotations

import numpy as np

_ZERO, _DOT, _MINUS = b"0.-"
_FILLER = b"\0"


def lines_of(*columns: bytes | np.ndarray) -> bytes:
    """One text of each row's columns behind each other: texts, and numbers as they are.

    Whole numbers are int64, others float64 and are given with six decimals at most, without the
    zeros at their end. All have to be finite.

    >>> lines_of(b"a ", np.array([1, 20]), b" ", np.array([0.5, -3.0]), b";")
    b'a 1 0.5;a 20 -3;'
    """
    count = next(len(one) for one in columns if not isinstance(one, bytes))
    if not count:
        return b""
    parts = [
        np.broadcast_to(np.frombuffer(one, np.uint8)[:, None], (len(one), count))
        if isinstance(one, bytes)
        else _digits(one)
        for one in columns
    ]
    table: bytes = np.concatenate(parts).T.tobytes()
    return table.translate(None, _FILLER)


_DECIMALS = 6


def _digits(values: np.ndarray) -> np.ndarray:
    """The characters of each number, uint8 of shape (width, n), the filler where there are less."""
    decimals = 0 if values.dtype.kind in "iu" else _DECIMALS
    rest = np.rint(np.abs(values) * 10.0**decimals).astype(np.uint64) if decimals else abs(values)
    largest = int(rest.max())
    rest = rest.astype(np.uint32 if largest < 1 << 32 else np.uint64)
    width = max(len(str(largest)), decimals + 1)
    found = np.zeros((1 + width + bool(decimals), len(values)), np.uint8)
    is_less = (values < 0) & (rest > 0)
    seen = np.full(len(values), not decimals)  # whether a digit that is shown lies behind
    at = len(found) - 1
    for place in range(width):
        if place == decimals and decimals:
            found[at] = np.where(seen, _DOT, 0)
            seen[:] = True
            at -= 1
        rest, digit = np.divmod(rest, np.asarray(10, rest.dtype))
        # Behind the point zeros at the end go, in front of it those at the beginning.
        seen |= digit > 0
        shown = seen if place <= decimals else (digit > 0) | (rest > 0)
        found[at] = np.where(shown, digit + _ZERO, 0)
        at -= 1
    found[0] = np.where(is_less, _MINUS, 0)
    return found
