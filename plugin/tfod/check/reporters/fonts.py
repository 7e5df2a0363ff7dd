"""Fonts of this machine, with the letters that a text needs."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from PIL import ImageFont

Font: TypeAlias = "ImageFont.FreeTypeFont | ImageFont.ImageFont"
_FILES = (
    "DejaVuSans.ttf",  # Latin, Greek, Cyrillic, Arabic, and many signs
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "wqy-microhei.ttc",
    "wqy-zenhei.ttc",
    "DroidSansFallbackFull.ttf",
    "Arial Unicode.ttf",  # macOS
    "PingFang.ttc",
    "AppleSDGothicNeo.ttc",
    "segoeui.ttf",  # Windows
    "msyh.ttc",
    "malgun.ttf",
    "Nirmala.ttf",
    "LeelawUI.ttf",
    *(
        f"NotoSans{script}-Regular.ttf"
        for script in (
            *("Arabic", "Hebrew", "Devanagari", "Bengali", "Tamil", "Telugu", "Thai", "Georgian"),
            *("Armenian", "Ethiopic", "Khmer", "Lao", "Myanmar", "Sinhala", "Gujarati", "Kannada"),
        )
    ),
    "unifont.otf",
)
"""The first that has all letters of a text is taken, so the usual ones are first."""
_NO_CHARACTER = "\U0010ffff"


def font_for(text: str, size: int) -> Font:
    """The first font with all letters of a text, of so many pixels.

    Where no font has them it is the first font, which shows boxes in their place
    (:func:`can_show` says so); where this machine has none of the fonts, Pillow's own.
    """
    for file in () if text.isascii() else _FILES:
        font = _load(file, size)
        if font is not None and _has_all(file, text):
            return font
    return default_font(size)


def can_show(text: str) -> bool:
    """Whether one font here has all letters of a text."""
    return text.isascii() or any(_has_all(file, text) for file in _FILES)


@cache
def default_font(size: int) -> Font:
    """A font of the system with many scripts, or else Pillow's own."""
    from PIL import ImageFont

    return _load(_FILES[0], size) or ImageFont.load_default(size)


@cache
def _load(file: str, size: int) -> ImageFont.FreeTypeFont | None:
    from PIL import ImageFont

    with contextlib.suppress(OSError):
        return ImageFont.truetype(file, size)
    return None


def _has_all(file: str, text: str) -> bool:
    return all(_has(file, letter) for letter in dict.fromkeys(text))


@cache
def _has(file: str, letter: str) -> bool:
    """A letter that a font lacks looks as what is no character at all."""
    font = _load(file, 16)
    if font is None or letter.isspace():
        return font is not None
    shown, nothing = font.getmask(letter), font.getmask(_NO_CHARACTER)
    return (shown.size, bytes(shown)) != (nothing.size, bytes(nothing))
