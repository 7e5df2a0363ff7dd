"""DAT051 to DAT099: what the images are like. Hints about good data: they ask for a look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tfod.check.findings.finding import Place, Problem
from tfod.check.records.figures.image_look import ImageLook
from tfod.check.rules.images import named_record
from tfod.check.rules.registry import rule
from tfod.detection import keys

_CLEANVISION = "cleanvision/issue_managers/image_property_issue_manager.py"
_LEAST_IMAGES = 10
_FENCE = 3.0
_ODD_RATIO = 0.35
_BLURRED = 0.25
_LEAST_ENTROPY = 3
_WHY_FEW_PIXELS = "What is to be found in it can hardly be seen, by people or by the model."
_LOOK_AT_IT = "Look at the image; leave it out if nothing can be seen in it."


@dataclass(frozen=True)
class UsualSizes:
    """The sizes of all images of a dataset: how many have each (height, width), in pixels."""

    images: Mapping[tuple[int, int], int]

    @cached_property
    def _fences(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """What is not unusual: of the logarithms of the side (root of the area) and the ratio."""
        sizes = np.log(np.array(list(self.images), np.float64))
        counts = np.fromiter(self.images.values(), np.int64)
        return _fence(sizes.mean(axis=1), counts), _fence(sizes[:, 1] - sizes[:, 0], counts)

    @property
    def most_common(self) -> tuple[int, int]:
        """The size of most images."""
        return max(self.images, key=lambda size: (self.images[size], size))

    def odd(self, heights: np.ndarray, widths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which images are of an unusual size, and which of an unusual ratio, as masks.

        Args:
            heights: in pixels, int of shape (n,); those that are not known are not positive.
            widths: likewise.
        """
        known = (heights > 0) & (widths > 0)
        if sum(self.images.values()) < _LEAST_IMAGES:
            return np.zeros_like(known), np.zeros_like(known)
        high, wide = (np.log(np.maximum(one, 1)) for one in (heights, widths))
        sides, ratios = self._fences
        side, ratio = (high + wide) / 2, wide - high
        is_long = np.abs(ratio) > -np.log(_ODD_RATIO)
        return (
            known & ((side < sides[0]) | (side > sides[1])),
            known & is_long & ((ratio < ratios[0]) | (ratio > ratios[1])),
        )


def _fence(values: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Three times the distance of the quartiles beyond them, and a factor of 2 at least."""
    order = np.argsort(values)
    below = np.cumsum(counts[order])
    first, middle, third = values[order][
        np.searchsorted(below, below[-1] * np.array([1, 2, 3]) / 4)
    ]
    margin = _FENCE * (third - first)
    return min(first - margin, middle - np.log(2)), max(third + margin, middle + np.log(2))


@rule(
    "DAT051 info: dark image",
    why=_WHY_FEW_PIXELS,
    fix=_LOOK_AT_IT,
    source=f"{_CLEANVISION}: dark, 0.32",
)
def dark(look: ImageLook) -> Iterator[Problem]:
    """99 % of the pixels have less than 32 % of full brightness."""
    if _is_dark(look):
        percent = math.floor(look.bright_end * 100) + 1
        message = f"the image is dark: 99 % of it has less than {percent} % of full brightness"
        yield Problem(message, keys.ENCODED, value=round(look.bright_end, 3))


@rule(
    "DAT052 info: bright image",
    why=_WHY_FEW_PIXELS,
    fix=_LOOK_AT_IT,
    source=f"{_CLEANVISION}: light, 0.05",
)
def bright(look: ImageLook) -> Iterator[Problem]:
    """95 % of the pixels have more than 95 % of full brightness."""
    if _is_bright(look):
        percent = math.floor(look.dark_end * 100)
        message = f"the image is bright: 95 % of it reaches {percent} % of full brightness"
        yield Problem(message, keys.ENCODED, value=round(look.dark_end, 3))


@rule(
    "DAT053 info: blurred image",
    why="The edges that the model is to learn are not in it, and its boxes are guesses.",
    fix="Look at the image; leave it out, unless the model is to see such images, too.",
    source="Pech-Pacheco et al., Diatom autofocusing in brightfield microscopy (ICPR 2000): the "
    "variance of the Laplacian; here relative to that of the image, which has at most 128 pixels a "
    "side",
)
def blurred(look: ImageLook) -> Iterator[Problem]:
    """Neighbouring pixels differ much less than distant ones."""
    if look.sharpness < _BLURRED and not _has_little(look):
        message = f"the image is blurred: its sharpness is {look.sharpness:.2f}"
        yield Problem(f"{message}, below {_BLURRED}", keys.ENCODED, value=round(look.sharpness, 3))


@rule(
    "DAT054 warning: image of one colour",
    why="Nothing can be learned from it; mostly a camera or a script has failed.",
    fix="Take the image from its source again, or leave the record out.",
    source="tfod.check.records.figures.image_look",
)
def blank(look: ImageLook) -> Iterator[Problem]:
    """All pixels have the same colour, but for the noise of JPEG."""
    if look.is_blank:
        yield Problem("all pixels of the image have the same colour", keys.ENCODED)


@rule(
    "DAT055 info: image with little information",
    why=_WHY_FEW_PIXELS,
    fix=_LOOK_AT_IT,
    source=f"{_CLEANVISION}: low_information, 0.3 of 10 bits",
)
def little_information(look: ImageLook) -> Iterator[Problem]:
    """The entropy of the pixels' values is below 3 bits."""
    if look.entropy < _LEAST_ENTROPY and not (look.is_blank or _is_dark(look) or _is_bright(look)):
        message = f"the image has little information: {look.entropy:.1f} bits a value"
        yield Problem(message, keys.ENCODED, value=round(look.entropy, 2))


def _is_dark(look: ImageLook) -> bool:
    return look.bright_end < 0.32 and not look.is_blank


def _is_bright(look: ImageLook) -> bool:
    return look.dark_end > 0.95 and not look.is_blank


def _has_little(look: ImageLook) -> bool:
    return look.is_blank or _is_dark(look) or _is_bright(look) or look.entropy < _LEAST_ENTROPY


@rule(
    "DAT056 info: image of unusual size",
    why="Scaled to the model's input its objects are much larger or smaller than the others.",
    fix="Look at the image: a thumbnail or an icon may have got among the images.",
    source=f"{_CLEANVISION}: odd_size, 3 times the distance of the quartiles",
)
def odd_size(height: int, width: int, usual: tuple[int, int]) -> Iterator[Problem]:
    """The root of the area is far from the usual, and by a factor of 2 at least.

    ``usual`` is the height and width of most images of the dataset.
    """
    large = "large" if height * width > usual[0] * usual[1] else "small"
    yield Problem(f"the image is unusually {large}: {_beside(height, width, usual)}")


@rule(
    "DAT057 info: image of unusual ratio",
    why="Resized to the model's input it is squashed, and its objects with it.",
    fix="Look at the image; resize with padding (keep_aspect_ratio_resizer), or leave it out.",
    source=f"{_CLEANVISION}: odd_aspect_ratio, 0.35",
)
def odd_ratio(height: int, width: int, usual: tuple[int, int]) -> Iterator[Problem]:
    """One side is less than 0.35 of the other, and most images of the dataset are not so long."""
    shape = "wide" if width > height else "high"
    yield Problem(f"the image is unusually {shape}: {_beside(height, width, usual)}")


def _beside(height: int, width: int, usual: tuple[int, int]) -> str:
    return f"{width} x {height} pixels, most common are {usual[1]} x {usual[0]}"


@rule(
    "DAT058 info: nearly the same image",
    why="The scene counts as often as it is there, and not more is learned from it.",
    fix="Keep one of the images, unless the copies are meant as augmentation.",
    source="ImageHash: phash of 256 bits, of which at most 48 differ; mirrored images, too",
)
def near_image(first: Place) -> Iterator[Problem]:
    """An earlier record of the subset has nearly the same image: re-encoded, resized, cropped."""
    yield Problem(f"the image is nearly that of {named_record(first)}", keys.ENCODED)


@rule(
    "DAT059 warning: nearly the same image in two subsets",
    why="The model is evaluated with what it was trained with: the figures are too good.",
    fix="Keep copies, frames and augmentations of an image in one subset: split by scene, and "
    "augment afterwards.",
    source="ImageHash: phash of 256 bits, of which at most 48 differ; mirrored images, too",
)
def near_shared_image(subsets: tuple[str, str], first: Place) -> Iterator[Problem]:
    """An earlier record of another subset (the first one) has nearly the same image."""
    message = f"nearly the same image is in {subsets[1]} and in {subsets[0]}: {named_record(first)}"
    yield Problem(f"{message} has it", keys.ENCODED, [*subsets])
