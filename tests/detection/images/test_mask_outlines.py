from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from tfod.detection.images.mask_images import fill_polygon
from tfod.detection.images.mask_outlines import trace_mask

_SIDES = st.integers(1, 24)


@given(npst.arrays(bool, st.tuples(_SIDES, _SIDES)))
def test_filling_the_outline_restores_parts_and_holes(mask: np.ndarray) -> None:
    outline = trace_mask(mask)
    rows, columns = np.nonzero(mask)
    assert bool(len(outline)) is bool(len(rows))
    if len(rows):
        np.testing.assert_array_equal(fill_polygon(outline.ravel().tolist(), mask.shape), mask)
        assert outline.min(axis=0).tolist() == [columns.min(), rows.min()]
        assert outline.max(axis=0).tolist() == [columns.max() + 1, rows.max() + 1]


@given(_SIDES, _SIDES)
def test_a_box_has_four_corners_and_a_slope_is_a_line(height: int, width: int) -> None:
    box = np.zeros((height + 2, width + 2))
    box[1:-1, 1:-1] = 1
    right, bottom = width + 1, height + 1
    corners = [[1, 1], [right, 1], [right, bottom], [1, bottom]]
    assert sorted(trace_mask(box).tolist()) == sorted(corners)
    assert len(trace_mask(np.tri(height + 2))) <= 8
