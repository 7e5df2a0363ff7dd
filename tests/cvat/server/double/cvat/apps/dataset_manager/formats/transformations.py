"""Masks of Datumaro as CVAT's.

Fact: CVAT's mask is run lengths of 0 and 1 in turn, within its box, whose four integers follow
(the last row and column included).
"""

from __future__ import annotations

from typing import Any

import numpy as np


class MaskConverter:
    @staticmethod
    def dm_mask_to_cvat_rle(mask: Any) -> list[int]:
        """Convert a mask; one without a pixel fails as NumPy does, and as in CVAT."""
        x, y, width, height = mask.get_bbox()
        left, top = int(x), int(y)
        right, bottom = int(max(x, x + width - 1)), int(max(y, y + height - 1))
        bits = np.asarray(mask.image)[top : bottom + 1, left : right + 1].reshape(-1).astype(bool)
        changes = np.flatnonzero(bits[1:] != bits[:-1]) + 1
        runs = np.diff([0, *changes, len(bits)]).tolist()
        return [*([0] if bits[0] else []), *runs, left, top, right, bottom]
