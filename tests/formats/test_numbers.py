"""Numbers as text: what Python's own formatting gives, a column at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.formats.numbers import digits, lines_of

_REAL = st.floats(-1e9, 1e9) | st.floats(-2, 2) | st.sampled_from([0.0, 0.1, 1e-7, -1e-7, 10, 5e-7])


@given(st.lists(st.integers(-(1 << 53), 1 << 53), min_size=1))
def test_whole_numbers(values: list[int]) -> None:
    found = lines_of(b"[", digits(np.array(values, np.int64)), b"]\n").decode().splitlines()
    assert found == [f"[{value}]" for value in values]


@pytest.mark.parametrize("decimals", [2, 6, 9])
@given(st.lists(_REAL, min_size=1))
def test_real_numbers(decimals: int, values: list[float]) -> None:
    found = lines_of(digits(np.array(values, np.float64), decimals), b"\n").decode().splitlines()
    for text, value in zip(found, values, strict=True):
        assert float(text) == pytest.approx(value, abs=0.6 * 10**-decimals, rel=1e-15)
        assert text == repr(int(text)) if "." not in text else not text.endswith(("0", "."))
        assert not text.startswith((".", "-.", "00", "-00"))


def test_numbers_beyond_64_bits() -> None:
    assert lines_of(digits(np.array([0.5, -1e30]), 6), b" ").split() == [
        b"0.500000",
        b"%.6f" % -1e30,
    ]


def test_no_rows() -> None:
    assert lines_of(b"a", digits(np.zeros(0), 6), b"b") == b""
