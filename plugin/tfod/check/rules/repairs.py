"""What ``tfod repair`` does about the rules, a sentence for each; the others it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REPAIRED_WHOLLY: Final[Mapping[str, str]] = {
    "TFR003": "Reading goes on at the next plausible record; the bytes between are left out.",
    "TFR004": "The record is left out.",
    "TFR005": "What is left of the last record is left out.",
    "TFR006": "The stray bytes are left out.",
    "TFR007": "Reading goes on at the next plausible record; the bytes between are left out.",
    "TFR008": "The zeros are left out.",
    "TFR009": "The record is left out.",
    "TFR011": "The records before the damage are kept, and compressed again.",
    "EXA001": "The record is left out.",
    "IMG004": "image/format says what the bytes are.",
    "IMG014": "image/format says what the bytes are.",
}
REPAIRED_PARTLY: Final[Mapping[str, str]] = {
    "EXA003": "Format, height and width are taken from the image, and the source id becomes a "
    "number. Nothing else can be made up.",
    "BOX004": "A box that reaches up to a pixel beyond the image, which rounding does, is clipped "
    "to it. Others stay.",
    "LAB008": "The id becomes the one that the label map gives to the text. All ids stay where the "
    "map misses a class of its shards: it may be that of another data set.",
    "LAB020": "Where all objects have a text, the label map gives the ids. They are not written "
    "where it misses a class of its shards.",
    "IMG006": "Height and width are taken from the image. They stay where they are those of the "
    "image turned by EXIF, where masks of numbers have the size that is said, and beside boxes "
    "far outside the image, which are in doubt for it.",
    "IMG012": "Height and width are taken from the image, if it is in the record.",
    "NAM007": "The source id becomes a number that no other image has.",
    "NAM012": "The source id becomes a number that no other image has.",
    "NAM010": "With --for tf-vision, model-maker or efficientdet the source id becomes a number "
    "that no other image has; the text is kept in tfod/attributes.",
    "NAM011": "With --for efficientdet likewise.",
}

REPAIRS: Final = {**REPAIRED_WHOLLY, **REPAIRED_PARTLY}
"""By rule what is done about what it finds."""

INEVITABLE: Final = frozenset(
    {"TFR003", "TFR004", "TFR005", "TFR006", "TFR007", "TFR008", "TFR011"}
)
"""What cannot be read cannot be copied: these are repaired whatever is asked for."""
