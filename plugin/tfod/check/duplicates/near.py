"""Images that are nearly the same: fingerprints that differ in few bits.

All are compared band by band: two fingerprints that are alike have, in one of the four bands of
their lowest frequencies, the same 16 bits but for one at most. In memory are all fingerprints, some
hundred bytes an image that was decoded; the time is linear, since of many images with the same
band only the last ones are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from tfod.check.duplicates.compare import Duplicate, Duplicates

MOST_BITS = 48
"""So many of 256 bits may differ: what re-encoding, resizing, a brightness changed by a third and
a crop of 2 to 5 % come to. Different images differ in more than 60."""
_BANDS = (0, 1, 4, 5)
_MOST_COMPARED = 64
_PAIRS_AT_ONCE = 1 << 16
_MIRRORED = np.uint64(0x5555555555555555)
_FLIPS = np.array([0, *(1 << bit for bit in range(16))], np.uint64) << np.uint64(32)
_INDEX = np.uint64(0xFFFFFFFF)
_NONE = np.uint64(0xFFFFFFFFFFFFFFFF)
_BITS = np.array([number.bit_count() for number in range(256)], np.uint8)


def near_duplicates(rows: np.ndarray, most: int) -> Duplicates:
    """Of each image the nearest earlier one, in its own subset and in another.

    Args:
        rows: of dtype ``LOOK_ROWS`` and shape (n,), in any order.
        most: how many are listed.
    """
    rows = rows[np.lexsort((rows["row"], rows["shard"], rows["work"]))]
    looks, images, subsets = rows["look"].copy(), rows["image"], rows["subset"]
    nearest = np.full((2, len(rows)), _NONE, np.uint64)
    for asked in (looks, looks ^ _MIRRORED):
        for later, earlier in _pairs(asked, looks):
            differing = (asked[later] ^ looks[earlier]).view(np.uint8)
            bits = _BITS[differing].sum(axis=1, dtype=np.uint64)
            is_near = (bits <= MOST_BITS) & (images[later] != images[earlier])
            later, earlier, bits = later[is_near], earlier[is_near], bits[is_near]
            elsewhere = (subsets[later] != subsets[earlier]).astype(np.int64)
            found = bits << np.uint64(32) | earlier.astype(np.uint64)
            np.minimum.at(nearest, (elsewhere, later), found)
    duplicates = Duplicates()
    for kind, found in zip((Duplicate.NEAR, Duplicate.NEAR_SHARED), nearest, strict=True):
        laters = np.flatnonzero(found != _NONE)
        earliers = (found[laters] & _INDEX).astype(np.int64)
        duplicates.add(kind, rows[laters], rows[earliers], most)
    return duplicates


def _pairs(asked: np.ndarray, looks: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Numbers of fingerprints and of earlier ones that are alike in a band, some at a time."""
    index = np.arange(len(looks), dtype=np.uint64)
    for band in _BANDS:
        values, asked_values = (
            some.view("<u2")[:, band].astype(np.uint64) << np.uint64(32) for some in (looks, asked)
        )
        ordered = np.sort(values | index)
        for flip in _FLIPS:
            value = asked_values ^ flip
            ends = np.searchsorted(ordered, value | index)
            starts = np.maximum(np.searchsorted(ordered, value), ends - _MOST_COMPARED)
            counts = ends - starts
            totals = np.cumsum(counts)
            cuts = np.arange(0, totals[-1] if len(totals) else 0, _PAIRS_AT_ONCE)
            bounds = [*np.searchsorted(totals, cuts, side="right").tolist(), len(looks)]
            for first, stop in itertools.pairwise(bounds):
                some = counts[first:stop]
                later = np.repeat(np.arange(first, stop), some)
                inside = np.arange(len(later)) - np.repeat(np.cumsum(some) - some, some)
                earlier = ordered[np.repeat(starts[first:stop], some) + inside] & _INDEX
                yield later, earlier.astype(np.int64)
