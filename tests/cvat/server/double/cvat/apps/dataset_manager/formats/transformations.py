"""Masks of CVAT and of Datumaro into one another, and the transformations that formats use.

Facts: CVAT's mask is run lengths of 0 and 1 in turn, within its box, whose four integers follow
(the last row and column included). ``MaskToPolygonTransformation`` converts unless
``conv_mask_to_poly`` is false.
"""

from __future__ import annotations

from typing import Any

import cv2
import datumaro as dm
import numpy as np
from pycocotools import mask as coco_mask


class MaskConverter:
    @staticmethod
    def cvat_rle_to_dm_rle(points: list[float], height: int, width: int, **common: Any) -> Any:
        left, top, right, bottom = (int(value) for value in points[-4:])
        runs = [int(value) for value in points[:-4]]
        bits = np.repeat(np.arange(len(runs)) % 2, runs).astype(np.uint8)
        full = np.zeros((height, width), np.uint8)
        box = (bottom - top + 1, right - left + 1)
        full[top : bottom + 1, left : right + 1] = bits.reshape(box)
        return dm.RleMask(rle=coco_mask.encode(np.asfortranarray(full)), **common)

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


class EllipsesToMasks:
    @staticmethod
    def convert_ellipse(
        points: list[float], rotation: float, height: int, width: int, **common: Any
    ) -> Any:
        x, y, right, top = points
        axes = (round(right - x), round(y - top))
        drawn = np.zeros((height, width), np.uint8)
        cv2.ellipse(drawn, (round(x), round(y)), axes, rotation, 0, 360, 255, thickness=-1)
        return dm.RleMask(rle=coco_mask.encode(np.asfortranarray(drawn)), **common)


class MaskToPolygonTransformation:
    @classmethod
    def declare_arg_names(cls) -> list[str]:
        return ["conv_mask_to_poly"]

    @classmethod
    def convert_dataset(cls, dataset: Any, **kwargs: Any) -> Any:
        if kwargs.get("conv_mask_to_poly", True):
            dataset.transform("masks_to_polygons")
        return dataset
