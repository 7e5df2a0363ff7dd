"""Columns of numbers are formatted like single numbers in Python."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tfod.formats.numbers import format_numbers, format_rows

from tests.commands import Run
from tests.formats.one_image import FORMATS

_REAL = st.floats(-1e9, 1e9) | st.floats(-2, 2) | st.sampled_from([0.0, 0.1, 1e-7, -1e-7, 10, 5e-7])


@given(st.lists(st.integers(-(1 << 53), 1 << 53), min_size=1))
def test_whole_numbers(values: list[int]) -> None:
    numbers = format_numbers(np.array(values, np.int64))
    found = format_rows(b"[", numbers, b"]\n").decode().splitlines()
    assert found == [f"[{value}]" for value in values]


@pytest.mark.parametrize("decimals", [2, 6, 9])
@given(st.lists(_REAL, min_size=1))
def test_real_numbers(decimals: int, values: list[float]) -> None:
    numbers = format_numbers(np.array(values, np.float64), decimals)
    found = format_rows(numbers, b"\n").decode().splitlines()
    for text, value in zip(found, values, strict=True):
        assert float(text) == pytest.approx(value, abs=0.6 * 10**-decimals, rel=5e-15)
        assert text == repr(int(text)) if "." not in text else not text.endswith(("0", "."))
        assert not text.startswith((".", "-.", "00", "-00"))


def test_numbers_beyond_64_bits_and_no_numbers() -> None:
    text = format_rows(format_numbers(np.array([0.5, -1e30]), 6), b" ")
    assert text.split() == [b"0.5", b"-1" + b"0" * 30]
    assert format_rows(b"a", format_numbers(np.zeros(0), 6), b"b") == b""


@pytest.mark.parametrize("target", ["coco", "voc", "csv", "cvat_xml"])
@pytest.mark.parametrize("kind", ["coco", "voc", "csv", "shards"])
def test_numbers_stay_as_typed(convert: Run, tmp_path: Path, kind: str, target: str) -> None:
    """Documents keep the text of a number, shards its single precision."""
    if kind == "voc":
        pytest.importorskip("lxml")
    box = [196.1, 63.07, 289.125, 158]
    boxes = [box] if kind == "shards" else [box, [0.1, 1 / 3, 200.0000000001, 239.123456789]]
    source, *_ = FORMATS["csv" if kind == "shards" else kind](tmp_path, (320, 240), boxes)
    if kind == "shards":
        convert(source, tmp_path / "s", "--no-images").succeeded()
        source = tmp_path / "s"
    convert(source, tmp_path / "to", "--to", target, "--no-images").succeeded()
    text = "".join(path.read_text() for path in (tmp_path / "to").rglob("*.*") if path.is_file())
    for left, top, right, bottom in boxes:
        sides = left, top, *((right - left, bottom - top) if target == "coco" else (right, bottom))
        for side in sides:
            number = f"{side:.10f}".rstrip("0").rstrip(".")
            assert re.search(rf"(?<![.\d]){re.escape(number)}(?![.\d])", text), number
