"""Near duplicates: fingerprints against a few lines that compare all with all."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tfod.check.duplicates.compare import Duplicate
from tfod.check.duplicates.near import MOST_BITS, near_duplicates
from tfod.check.duplicates.row_blocks import LOOK_ROWS
from tfod.check.records.figures.image_look import ImageLook, look_of, missing_hash
from tfod.check.records.images.image_bytes import decode
from tfod.check.rules.hints.images import UsualSizes, bright, dark

from tests.mutants.make import all_mutants
from tests.mutants.pixels import saved, scene


def rows_of(looks: np.ndarray, subsets: np.ndarray) -> np.ndarray:
    rows = np.zeros(len(looks), LOOK_ROWS)
    rows["look"], rows["subset"] = looks, subsets
    rows["image"] = rows["row"] = np.arange(len(looks))
    return rows


def changed(look: np.ndarray, bits: int, random: np.random.Generator) -> np.ndarray:
    """A fingerprint with so many other bits, a quarter of them in the bands."""
    octets = np.unpackbits(look.view(np.uint8))
    octets[random.choice(256, bits, replace=False)] ^= 1
    return np.packbits(octets).view("<u8")


@given(st.integers(0, 1 << 32), st.lists(st.integers(0, 60), max_size=12))
def test_nearest_of_all(seed: int, differences: list[int]) -> None:
    random = np.random.default_rng(seed)
    looks = [random.integers(0, 1 << 63, 4, np.uint64)]
    looks += [changed(looks[int(random.integers(len(looks)))], one, random) for one in differences]
    rows = rows_of(np.array(looks), random.integers(0, 2, len(looks)))
    found = near_duplicates(random.permutation(rows), 1000)
    bits = np.unpackbits(rows["look"].copy().view(np.uint8).reshape(len(rows), 32), axis=1)
    for kind, elsewhere in ((Duplicate.NEAR, False), (Duplicate.NEAR_SHARED, True)):
        for later, first, _ in found.listed.get(kind, []):
            distance = (bits[later.row] != bits[first.row]).sum()
            assert first.row < later.row and distance <= MOST_BITS
            assert (rows["subset"][later.row] != rows["subset"][first.row]) == elsewhere
        listed = {later.row for later, *_ in found.listed.get(kind, [])}
        for later in range(len(rows)):
            others = rows["subset"][:later] != rows["subset"][later]
            earlier = bits[:later][others == elsewhere]
            # As many differ in one of the four bands as 7 bits do at most.
            if len(earlier) and (earlier != bits[later]).sum(axis=1).min() <= 7:
                assert later in listed


def test_many_that_are_all_alike() -> None:
    found = near_duplicates(rows_of(np.full((20_000, 4), 7, "<u8"), np.zeros(20_000)), 10)
    assert found.counts.total() == 19_999 and len(found.listed[Duplicate.NEAR]) == 10


def test_sixteen_bits_a_pixel_are_not_cut_off() -> None:
    values = np.linspace(0, 65535, 96 * 64).reshape(64, 96).astype(np.uint16)
    look = decode(saved(Image.fromarray(values)), with_look=True)
    assert isinstance(look, ImageLook) and look.contrast > 200 and look.bright_end < 1


def test_a_damaged_image_is_a_failure_also_when_it_is_measured() -> None:
    data = saved(scene(0, (300, 200)), "JPEG")
    assert decode(data[: len(data) // 2]) == decode(data[: len(data) // 2], with_look=True)


def test_without_image_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "ImageHash" in missing_hash() and "[stats]" in missing_hash()
    monkeypatch.setitem(sys.modules, "imagehash", None)
    assert look_of(scene(0).copy()).fingerprint == b""


def test_nothing_is_loaded_that_is_not_needed(mutants: str) -> None:
    one = next(one for one in all_mutants() if one.code == "IMG011")
    script = "import sys; from tfod.check.check import Options, check_sources as check; "
    script += "check(sys.argv[1:], Options(hints=HINTS)); sys.exit('imagehash' in sys.modules)"
    for hints in (False, True):
        command = [sys.executable, "-c", script.replace("HINTS", str(hints)), one.path(mutants)]
        assert subprocess.run(command, check=False).returncode == hints


def test_few_images_are_none_unusual() -> None:
    usual = UsualSizes({(480, 640): 8, (20, 20): 1})
    small, long = usual.odd(np.array([20]), np.array([20]))
    assert not small.any() and not long.any()


def test_brightness_is_said_as_a_percentage_that_can_be() -> None:
    def messages(*ends: float) -> str:
        look = ImageLook(*ends, contrast=255, entropy=5.0, sharpness=1.0)
        return " ".join(one.message for rule in (dark, bright) for _, one in rule(look))

    assert "95 % of it reaches 99 % of full brightness" in messages(0.996, 1.0)
    assert "95 % of it reaches 100 % of full brightness" in messages(1.0, 1.0)
    assert "99 % of it has less than 1 % of full brightness" in messages(0.0, 0.0)
    assert "99 % of it has less than 32 % of full brightness" in messages(0.1, 0.319)
