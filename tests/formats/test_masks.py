"""Outlines of COCO as masks, compared with pycocotools, and masks that need scaling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from pycocotools import mask as coco_mask
from tfod.detection.images.mask_images import (
    decode_counts,
    decode_mask_png,
    draw_segmentation,
    encode_mask_png,
    fill_box,
    is_box_png,
)

from tests.commands import Run
from tests.formats.conftest import by_filename
from tests.formats.one_image import NAME
from tests.image_kinds import plain_image
from tests.records import encode, image, objects, write_shard

SIDES = st.integers(1, 40)
MASKS = npst.arrays(np.uint8, st.tuples(SIDES, SIDES), elements=st.integers(0, 1))


def runs_of(mask: np.ndarray) -> list[int]:
    """Return the runs of COCO: down the columns, beginning with the outside."""
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
def test_polygons(polygons: list[Polygon]) -> None:
    flat = [[value for point in polygon for value in point] for polygon in polygons]
    expected = coco_mask.decode(coco_mask.merge(coco_mask.frPyObjects(flat, 30, 40)))
    drawn = draw_segmentation(flat, (30, 40), "x")
    assert drawn is not None and np.array_equal(drawn, expected)


SIZE = (100, 200)  # of the image
SMALL = (25, 100)  # of the mask: a quarter as high, half as wide
LARGE = (200, 400)
TRIANGLE = [[20, 40, 80, 40, 80, 160]]  # in LARGE
WHAT = "masks whose size differs from their image"


def coco(folder: Path, size: tuple[int, int], segmentation: Any, *more: Any) -> Path:
    """Objects of the same box, the first one with this segmentation, on an image of SIZE."""
    (folder / NAME).write_bytes(plain_image(SIZE[::-1]))
    entries = [
        {"id": i, "image_id": 1, "category_id": 1, "bbox": box, "area": 9, "segmentation": outline}
        for i, outline in enumerate((segmentation, *more), 1)
        for box in ([10, 20, 30, 60],)
    ]
    entry = {"id": 1, "file_name": NAME, "height": size[0], "width": size[1]}
    categories = [{"id": 1, "name": "cat"}]
    found = {"images": [entry], "categories": categories, "annotations": entries}
    (folder / "a.json").write_text(json.dumps(found))
    return folder / "a.json"


def shards(folder: Path) -> Path:
    """Two objects. The mask of the first one is too small."""
    box = [0.1, 0.2, 0.4, 0.8]
    fits = encode_mask_png(np.eye(100, 200))
    masks = {"image/object/mask": [encode_mask_png(small_mask()), fits]}
    features = image(NAME) | objects([box, box], ["cat", "cat"], [1, 1]) | masks
    record = encode(features | {"image/encoded": plain_image(SIZE[::-1])})
    return Path(write_shard(folder, "train", record)).parent


def small_mask() -> np.ndarray:
    mask = np.zeros(SMALL, np.uint8)
    mask[5:20, 10:40] = np.tri(15, 30)
    return mask


def runs(mask: np.ndarray) -> dict[str, Any]:
    return {"size": list(mask.shape), "counts": runs_of(mask)}


def stretched(mask: np.ndarray) -> np.ndarray:
    return mask.repeat(SIZE[0] // mask.shape[0], 0).repeat(SIZE[1] // mask.shape[1], 1)


def masks_in(folder: Path) -> list[np.ndarray | None]:
    """Return the masks of the only image in shards, None for a mask that is a box."""
    one = by_filename(folder)[NAME]
    found: list[np.ndarray | None] = []
    for mask, box in zip(one.masks or (), one.boxes, strict=True):
        assert mask is not None  # the decoder of the OD API stops at an empty mask
        pixels = decode_mask_png(mask.data)
        assert pixels.shape == SIZE
        is_box = is_box_png(mask.data)
        filled = fill_box((box * (*SIZE[::-1], *SIZE[::-1])).tolist(), SIZE)
        assert not is_box or np.array_equal(pixels, filled)
        found.append(None if is_box else pixels)
    return found


@pytest.mark.parametrize("target", ["shards", "coco", "cvat_xml"])
def test_of_shards(convert: Run, tmp_path: Path, target: str) -> None:
    source = shards(tmp_path / "s")
    says = convert(source, tmp_path / "out", "--to", target).refused()
    assert f"{WHAT}: 1 ({NAME}: 100x25 in 200x100); choose --odd-masks scale or" in says
    assert not (tmp_path / "out").exists()
    for choice, what in (("scale", "scaled to it"), ("drop", "left out")):
        out, back = tmp_path / choice, tmp_path / f"{choice}-back"
        says = convert(source, out, "--to", target, f"--odd-masks={choice}").succeeded()
        assert f"{WHAT}, {what}: 1 (the first: {NAME}: 100x25 in 200x100)" in says
        convert(out, back, "--to=shards", *["--masks"] * (target != "shards")).succeeded()
        odd, fits = masks_in(back)
        assert fits is not None and np.array_equal(fits, np.eye(100, 200))
        expected = stretched(small_mask()) if choice == "scale" else None
        assert (odd is None) if expected is None else np.array_equal(odd, expected)


@pytest.mark.parametrize(
    ("size", "segmentation", "spelled"),
    [(LARGE, TRIANGLE, "400x200"), (SIZE, runs(small_mask()), "100x25")],
    ids=["outlines of another size of the image", "runs of another size"],
)
def test_of_coco(
    convert: Run, tmp_path: Path, size: tuple[int, int], segmentation: Any, spelled: str
) -> None:
    source, where = coco(tmp_path, size, segmentation, []), f"{NAME}: {spelled} in 200x100"
    says = convert(source, tmp_path / "out", "--masks").refused()
    assert f"{WHAT}: 1 ({where}); choose --odd-masks" in says
    assert WHAT not in convert(source, tmp_path / "boxes").succeeded()
    says = convert(source, tmp_path / "scale", "--masks", "--odd-masks=scale").succeeded()
    assert f"{WHAT}, scaled to it: 1 (the first: {where})" in says
    scaled, box = masks_in(tmp_path / "scale")
    if spelled == "100x25":
        expected = stretched(small_mask())
    else:  # every second pixel of the large mask
        drawn = draw_segmentation(TRIANGLE, LARGE, "x")
        assert drawn is not None
        expected = drawn[1::2, 1::2]
    assert box is None and scaled is not None and np.array_equal(scaled, expected)
    says = convert(source, tmp_path / "drop", "--masks", "--odd-masks=drop").succeeded()
    assert f"{WHAT}, left out: 1 (the first: {where})" in says
    assert masks_in(tmp_path / "drop") == [None, None]


def test_runs_that_fit_the_image_but_not_its_size_in_the_json(convert: Run, tmp_path: Path) -> None:
    mask = np.eye(*SIZE, dtype=np.uint8)
    source = coco(tmp_path, LARGE, runs(mask))
    assert WHAT not in convert(source, tmp_path / "out", "--masks").succeeded()
    (found,) = masks_in(tmp_path / "out")
    assert found is not None and np.array_equal(found, mask)
