"""COCO's outlines as masks, against pycocotools and the PNG that comes of it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from PIL import Image
from pycocotools import mask as coco_mask
from tfod.convert.coco_masks import decode_counts, draw_segmentation
from tfod.detection.images.masks import encode_mask_png
from tfod.errors import TfodError

SIDES = st.integers(1, 40)
MASKS = npst.arrays(np.uint8, st.tuples(SIDES, SIDES), elements=st.integers(0, 1))


def runs_of(mask: np.ndarray) -> list[int]:
    """COCO's runs: down the columns, beginning with the outside."""
    flat = mask.T.ravel()
    edges = np.flatnonzero(np.diff(flat)) + 1
    runs: list[int] = np.diff([0, *edges, len(flat)]).tolist()
    return [0, *runs] if flat[0] else runs


@given(MASKS)
def test_runs(mask: np.ndarray) -> None:
    size = mask.shape
    compressed = coco_mask.encode(np.asfortranarray(mask))["counts"]
    assert decode_counts(compressed) == runs_of(mask)
    for counts in (runs_of(mask), compressed.decode(), compressed):
        drawn = draw_segmentation({"size": list(size), "counts": counts}, size, "x")
        assert drawn is not None and np.array_equal(drawn, mask)


Polygon = list[tuple[float, float]]
POINTS = st.lists(st.tuples(*[st.floats(-20, 60, width=32)] * 2), min_size=3, max_size=8)


@given(st.lists(POINTS, min_size=1, max_size=3))
def test_polygons_are_drawn_as_pycocotools_draws_them(
    polygons: list[list[tuple[float, float]]],
) -> None:
    flat = [[value for point in polygon for value in point] for polygon in polygons]
    expected = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(flat, 30, 40)))
    drawn = draw_segmentation(flat, (30, 40), "x")
    assert drawn is not None and np.array_equal(drawn, expected)


@given(MASKS)
def test_png(mask: np.ndarray) -> None:
    with Image.open(io.BytesIO(encode_mask_png(mask))) as image:
        assert image.mode == "L" and np.array_equal(np.asarray(image), mask)


def test_nothing_is_no_mask() -> None:
    assert draw_segmentation([], (5, 5), "x") is None
    assert draw_segmentation(None, (5, 5), "x") is None


def test_sizes_beyond_reason() -> None:
    with pytest.raises(TfodError, match="too large"):
        draw_segmentation([[0, 0, 1, 1, 0, 1]], (1 << 20, 1 << 20), "x")
