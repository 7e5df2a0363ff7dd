"""A colour for each class, the same in every run, on which white letters can be read."""

from __future__ import annotations

import colorsys
import zlib
from functools import cache

from tfod.check.reporters.drawn import Colour

_GOLDEN = 0.6180339887498949
_FIRST_HUE = 0.36
_SATURATIONS = (0.78, 0.6, 0.95)
_LUMINANCE = 0.17
"""White on it has a contrast of 4.8 to 1; WCAG 2.2 asks for 4.5."""


def class_colour(name: str, label: int | None) -> Colour:
    """The colour of a class: by its id, whose neighbours differ most, or by its name."""
    return _colour(label if label is not None else zlib.crc32(name.encode("utf-8", "replace")))


@cache
def _colour(place: int) -> Colour:
    # Steps of the golden ratio never come near an earlier hue.
    hue = (_FIRST_HUE + place * _GOLDEN) % 1
    saturation = _SATURATIONS[place // 8 % len(_SATURATIONS)]
    low, high = 0.0, 1.0
    for _ in range(12):
        lightness = (low + high) / 2
        rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
        low, high = (low, lightness) if _luminance(rgb) > _LUMINANCE else (lightness, high)
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue, low, saturation))
    return red, green, blue


def _luminance(rgb: tuple[float, float, float]) -> float:
    """Relative luminance of sRGB, as WCAG defines it."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in rgb
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def spelled(colour: Colour) -> str:
    """``#d1242f``."""
    return "#{:02x}{:02x}{:02x}".format(*colour)
