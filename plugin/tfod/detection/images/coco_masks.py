"""COCO's outlines as masks, through pycocotools: which pixels they are is what it says they are.

Its polygons are drawn at five times the size and rounded in its own way, so that no other
rasterizer gives the same pixels (:mod:`tfod.detection.images.masks`, by pixels' centres, differs
along the edge).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfod.errors import TfodError, how_to_install

_LEAST_NUMBERS = 6  # of a polygon: three corners; pycocotools takes four numbers for a box
_FURTHEST = 8  # sides of the image: pycocotools walks along edges, and far ones overflow in it
_MOST_PIXELS = 1 << 28


def draw_segmentation(segmentation: Any, size: tuple[int, int], where: str) -> np.ndarray | None:
    """The pixels of a ``segmentation``: polygons, or runs, compressed or not.

    Args:
        segmentation: as in the JSON; polygons may be arrays.
        size: height and width of the image.
        where: for errors.

    Returns:
        uint8, 1 where the object is, of the shape of the image, or of runs their own; None where
        there is no outline.

    Raises:
        TfodError: it is none, or pycocotools is not installed.
    """
    if not segmentation:
        return None
    mask = _pycocotools()
    if size[0] * size[1] > _MOST_PIXELS:
        raise TfodError(f"{where}: a mask of {size[1]}x{size[0]} pixels is too large")
    try:
        if isinstance(segmentation, dict):
            runs = _runs(segmentation)
            is_packed = isinstance(runs["counts"], bytes)
            drawn = mask.decode([runs] if is_packed else mask.frPyObjects([runs], *runs["size"]))
        else:
            if not isinstance(segmentation, list):
                raise ValueError("it is neither polygons nor runs")
            polygons = [_polygon(one, max(size) * _FURTHEST) for one in segmentation]
            drawn = mask.decode(mask.frPyObjects(polygons, *size))
    except ValueError as error:
        raise TfodError(f"{where}: invalid segmentation ({error}); correct it") from None
    return np.asarray(drawn.max(axis=2))


def _runs(segmentation: dict[str, Any]) -> dict[str, Any]:
    """Runs that fill their size: pycocotools writes where they say, however far that is."""
    counts, own = segmentation.get("counts"), segmentation.get("size")
    is_size = isinstance(own, list) and len(own) == 2 and all(type(one) is int for one in own)
    if own is None or not is_size or min(own) < 1 or own[0] * own[1] > _MOST_PIXELS:
        raise ValueError(f"its size is {own!r:.60}, expected height and width")
    if isinstance(counts, list) and all(type(count) is int for count in counts):
        lengths = counts
    elif isinstance(counts, (str, bytes)) and counts.isascii():
        counts = counts.encode("ascii") if isinstance(counts, str) else counts
        lengths = decode_counts(counts)
    else:
        raise ValueError(f"its counts are {counts!r:.60}, expected whole numbers or a text")
    if min(lengths, default=0) < 0 or sum(lengths) != own[0] * own[1]:
        raise ValueError("its runs are not as many pixels as its size has")
    return {"size": own, "counts": counts}


def decode_counts(counts: bytes) -> list[int]:
    """Lengths of runs from COCO's compressed text.

    Six bits a character, least significant first, of which one says that more follow; from the
    fourth run on the difference to the run before the last. Source: cocoapi's maskApi.c.

    Raises:
        ValueError: the text is cut off.
    """
    lengths: list[int] = []
    value = shift = 0
    more = False
    for character in counts:
        bits = character - 48
        if not 0 <= bits < 64:
            raise ValueError("counts is not in COCO's compressed form")
        value |= (bits & 31) << shift
        shift += 5
        more = bool(bits & 32)
        if more:
            continue
        if bits & 16:
            value -= 1 << shift
        lengths.append(value + lengths[-2] if len(lengths) > 2 else value)
        value = shift = 0
    if more:
        raise ValueError("counts is cut off")
    return lengths


def _polygon(points: Sequence[float], furthest: int) -> list[float]:
    try:
        numbers = [float(value) for value in points]
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a polygon is three or more pairs of finite numbers") from None
    if len(numbers) < _LEAST_NUMBERS or len(numbers) % 2 or not np.isfinite(numbers).all():
        raise ValueError("a polygon is three or more pairs of finite numbers")
    if max(map(abs, numbers)) > furthest:
        raise ValueError("a polygon goes far beyond the image")
    return numbers


def _pycocotools() -> Any:
    try:
        from pycocotools import mask
    except ImportError:
        raise TfodError(f"COCO's masks need pycocotools; {how_to_install('coco')}") from None
    return mask
