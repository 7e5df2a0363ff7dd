"""Which of many records hold equal bytes, at 16 bytes of memory a record."""

from __future__ import annotations

import hashlib

import numpy as np

_DIGEST_BYTES = 16


class EqualValues:
    """Collects one value of each record, by its SHA-256, and finds the equal ones."""

    def __init__(self) -> None:
        self._digests = bytearray()

    def add(self, value: bytes | memoryview | None) -> None:
        """The value of the next record; None equals nothing."""
        if value is None:
            number = len(self._digests) // _DIGEST_BYTES
            self._digests += number.to_bytes(_DIGEST_BYTES, "big")
        else:
            self._digests += hashlib.sha256(value).digest()[:_DIGEST_BYTES]

    def firsts(self) -> np.ndarray:
        """For each record the number of the first one with an equal value, int64 of shape (n,)."""
        halves = np.frombuffer(bytes(self._digests), "<u8").reshape(-1, 2)
        order = np.lexsort((halves[:, 1], halves[:, 0]))  # stable: the first one stays first
        ordered = halves[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
        firsts = np.empty(len(order), np.int64)
        firsts[order] = order[begins][np.cumsum(begins) - 1]
        return firsts
