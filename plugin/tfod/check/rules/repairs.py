"""What ``tfod repair`` does about the rules, a sentence for each; the other rules it leaves alone.

``docs/recipes/repair.md`` has the same tables, and why the others are left to a person.
"""

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
    "EXA006": "The key is removed, which is what TensorFlow makes of it.",
    "EXA007": "The last one, which counts, is kept.",
    "BOX002": "The object is removed from all lists of objects.",
    "BOX004": "The box is clipped to the image; an object of which nothing is left is removed.",
    "BOX007": "The object is removed from all lists of objects.",
    "BOX012": "The objects without area are removed, as of BOX007.",
    "LAB008": "The id becomes the one that the label map gives to the text.",
    "LAB015": "The label map is rewritten in the legal spelling, without its comments.",
    "IMG004": "image/format says what the bytes are.",
    "IMG008": "The digest of the image is written.",
    "IMG014": "image/format says what the bytes are.",
}
REPAIRED_PARTLY: Final[Mapping[str, str]] = {
    "EXA003": "Format, height and width are taken from the image, its digest is computed, and "
    "the source id becomes a number. Nothing else can be made up.",
    "EXA004": "Numbers are converted where none of them changes; format, height and width are "
    "taken from the image. Texts in place of numbers stay.",
    "EXA005": "Equal values become one, and an empty list is removed where a default takes its "
    "place; format, height and width are taken from the image. Different values stay.",
    "BOX003": "The box is clipped to the image; an object of which nothing is left is removed. "
    "It stays where the record says another size than the image has, or x and y look swapped: "
    "then all boxes of the record are in doubt. Where too many are far outside, the repair is "
    "refused.",
    "BOX006": "The coordinates are put in order where that is a slip of single boxes; where too "
    "many are inverted, the repair is refused.",
    "BOX009": "The second object is removed where all its values are the same, its attributes and "
    "mask too.",
    "BOX013": "With --columns or --pixel-columns the columns of all boxes are read in that order; "
    "without, the repair is refused, since one by one the boxes would become valid and wrong.",
    "LAB001": "A label map is written where the texts and ids of the records define it: every "
    "object has both, and no two pairs contradict each other.",
    "LAB005": "Where the ids of the label map are 0, 1, 2, … without a gap, 1 is added to them and "
    "to the ids of the records. They stay where class 0 is called none or the like, and where the "
    "records may count from 1: no id is 0, no text tells, or one id is the number of classes.",
    "LAB010": "The text becomes the name of the id in the label map; an object of id 0 has no "
    "class, and stays.",
    "LAB011": "The text is spelled as in the label map, unless two of its classes are as near, or "
    "the id is that of another class.",
    "LAB014": "Where all objects have a text or all have an id, the label map gives the other. "
    "Objects with neither stay.",
    "LAB020": "Where all objects have a text that the label map has, it gives the ids.",
    "IMG006": "Height and width are taken from the image. They stay where they are those of the "
    "image turned by EXIF, where masks of numbers have the size that is said, and beside boxes "
    "far outside the image, which are in doubt for it.",
    "IMG010": "A record that is the same byte for byte is left out. With other names, boxes or "
    "classes both stay.",
    "IMG012": "Height and width are taken from the image, if it is in the record.",
    "NAM002": "A record with a file name and without an image that is the same byte for byte is "
    "left out. With other boxes or classes both stay.",
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

MAX_DROPPED: Final = 0.05
"""The share of the objects or the records that a repair removes without being asked to."""
