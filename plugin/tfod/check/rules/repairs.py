"""What ``tfod repair`` does about each rule of ``tfod check``: the one table of it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tfod.check.rules.registry import all_rules

MAX_DROPPED = 0.05
"""A repair is refused where a larger share of the objects or the records would be removed."""


class Extent(enum.Enum):
    """How much of what a rule finds is repaired."""

    WHOLLY = "repaired"
    PARTLY = "where it is certain"
    NOT = "left to a person"


@dataclass(frozen=True)
class Handling:
    """What is done about a rule, or why nothing is."""

    extent: Extent
    sentence: str


_WHOLLY: Mapping[str, str] = {
    "TFR003": "Reading goes on at the next plausible record; what lies between is left out.",
    "TFR004": "The record is left out.",
    "TFR005": "What is left of the last record is left out.",
    "TFR006": "The stray bytes are left out.",
    "TFR007": "Reading goes on at the next plausible record; what lies between is left out.",
    "TFR008": "The zeros are left out.",
    "TFR009": "The record is left out.",
    "TFR011": "The records before the damage are kept, and packed anew.",
    "EXA001": "The record is left out.",
    "EXA006": "The key is removed, which is what TensorFlow makes of it.",
    "EXA007": "The last one, which counts, is kept.",
    "BOX002": "The object is removed from all lists of objects.",
    "BOX004": "The box is clipped to the image; an object of which nothing is left is removed.",
    "BOX007": "The object is removed from all lists of objects.",
    "BOX012": "The objects without area are removed, as of BOX007.",
    "LAB008": "The id becomes the one that the label map gives to the text.",
    "LAB015": "The label map is written anew in the legal spelling, without its comments.",
    "IMG004": "image/format says what the bytes are.",
    "IMG008": "The digest of the image is written.",
    "IMG014": "image/format says what the bytes are.",
}
_PARTLY: Mapping[str, str] = {
    "EXA003": "Format, height and width are taken from the image, its digest is computed, and "
    "the source id becomes the file name. Nothing else can be made up.",
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
    "LAB010": "The text becomes the name of the id in the label map; an object of id 0 has no "
    "class, and stays.",
    "LAB011": "The text is spelled as in the label map, unless two of its classes are as near, or "
    "the id is that of another class.",
    "LAB014": "Where all objects have a text or all have an id, the label map gives the other. "
    "Objects with neither stay.",
    "IMG006": "Height and width are taken from the image. They stay where they are those of the "
    "image turned by EXIF, where masks of numbers have the size that is said, and beside boxes "
    "far outside the image, which are in doubt for it.",
    "IMG010": "A record that is the same byte for byte is left out. With other names, boxes or "
    "classes both stay.",
    "IMG012": "Height and width are taken from the image, if it is in the record.",
    "NAM002": "A record with a file name and without an image that is the same byte for byte is "
    "left out. With other boxes or classes both stay.",
    "NAM007": "The source id becomes the file name, as the OD API's own scripts have it.",
}
_NOT: Mapping[str, str] = {
    "TFR001": "It is copied as it is: nobody knows what it was to be.",
    "TFR002": "It is copied as it is: what was to be in it is not known.",
    "TFR010": "Files keep their names and their compression.",
    "TFR012": "Such a record is not read; the repair stops, and --max-record-bytes raises the "
    "limit.",
    "TFR013": "What cannot be read cannot be copied; the repair stops.",
    "TFR014": "Files keep their names and their compression.",
    "EXA002": "Which of its frames belong to an image is not known.",
    "EXA008": "A key that means nothing here may mean something elsewhere.",
    "EXA009": "In which encoding it was written is not known.",
    "EXA010": "Nothing is known about what the records should hold.",
    "EXA011": "What TensorFlow refuses has another rule's reason, which may be repaired.",
    "EXA012": "Which of the two readings is meant is not known.",
    "EXA013": "What the attributes were is not known.",
    "BOX001": "Which value belongs to which object is not known.",
    "BOX005": "Pixels of this image, of a larger one, percent or thousandths: the numbers do not "
    "tell.",
    "BOX008": "Small objects exist; only looking at it helps (tfod show).",
    "BOX010": "The boxes are right; the training's configuration is to be changed.",
    "BOX011": "The numbers only look swapped; only looking at it helps (tfod show).",
    "BOX014": "Which number belongs to which object is not known.",
    "BOX015": "Which pixel belongs to which object is not known.",
    "BOX016": "Which point belongs to which object is not known.",
    "LAB002": "What the file was to say is not known.",
    "LAB003": "Which of the classes has the id is not known.",
    "LAB004": "Which of the ids the class has is not known.",
    "LAB005": "New ids would change what trained models and other shards mean.",
    "LAB006": "Whether the map lacks a class or the text has a slip is not known.",
    "LAB007": "Which class is meant is not known.",
    "LAB009": "Which class is meant is not known.",
    "LAB012": "New ids would change what trained models and other shards mean.",
    "LAB013": "Nothing is wrong.",
    "LAB016": "Which spelling is meant is not known; a label map that has one of them decides.",
    "LAB018": "Which class is meant is not known without a label map.",
    "NAM009": "What the image is called is not known.",
    "LAB017": "Which id the text has is not known without a label map that has it.",
    "LAB019": "Which value belongs to which class is not known.",
    "IMG001": "The image is elsewhere.",
    "IMG002": "The image is elsewhere.",
    "IMG003": "The image is to be taken from its source again.",
    "IMG005": "Encoding it anew changes its pixels.",
    "IMG007": "Whether the boxes were drawn on the turned image is not known.",
    "IMG009": "The image is to be taken from its source again.",
    "IMG011": "In which subset it belongs is not known.",
    "IMG013": "Encoding it anew changes the file.",
    "IMG015": "The image is elsewhere.",
    "NAM001": "What the image is called is not known.",
    "NAM003": "Annotations elsewhere may be found by this name.",
    "NAM004": "Annotations elsewhere may be found by this name.",
    "NAM005": "Annotations elsewhere may be found by this name.",
    "NAM006": "Annotations elsewhere may be found by this name.",
    "NAM008": "Which of the two has the id is not known; see NAM002 and IMG010 for equal records.",
    "SET001": "The shards are elsewhere.",
    "SET002": "Which of the two exports is meant is not known.",
    "SET003": "Which of the two kinds of records is meant is not known.",
    "SET004": "tfod merge gives several shards one label map.",
    "SET005": "What was to be in it is not known.",
    "SET006": "What was to be in them is not known; a set of several is refused.",
    "SET007": "What was meant is not known; a repair takes one source.",
}
_FAMILIES_LEFT: Mapping[str, str] = {
    "ZIP": "The shards of a zip are repaired into a folder; what is wrong with the zip is told.",
    "TSK": "It is about the CVAT task: correct the task, or the names and classes.",
    "FID": "It is about what the shards were made from: make them again.",
}


def handlings() -> dict[str, Handling]:
    """What is done about each rule, in the order of the rules."""
    said = {code: Handling(Extent.NOT, text) for code, text in _NOT.items()}
    said |= {code: Handling(Extent.PARTLY, text) for code, text in _PARTLY.items()}
    said |= {code: Handling(Extent.WHOLLY, text) for code, text in _WHOLLY.items()}
    left = {family: Handling(Extent.NOT, text) for family, text in _FAMILIES_LEFT.items()}
    return {code: said.get(code) or left[code[:3]] for code in all_rules()}


REPAIRED: Final = frozenset({*_WHOLLY, *_PARTLY})
"""The rules about which something is done."""

INEVITABLE: Final = frozenset(
    {"TFR003", "TFR004", "TFR005", "TFR006", "TFR007", "TFR008", "TFR011"}
)
"""What cannot be read cannot be copied: these are repaired whatever is asked for."""


def markdown_tables() -> str:
    """The table as the page about repairs has it: a part for each extent."""
    rules, parts = all_rules(), []
    for extent in Extent:
        rows = [
            f"| {code} | {rules[code].title} | {one.sentence} |"
            for code, one in handlings().items()
            if one.extent is extent and code[:3] not in _FAMILIES_LEFT
        ]
        families = _FAMILIES_LEFT.items() if extent is Extent.NOT else ()
        lines = [*rows, *(f"| {family} | | {text} |" for family, text in families)]
        head = f"### {extent.value.capitalize()}\n\n| rule | finds | what is done |\n|---|---|---|"
        if extent is Extent.NOT:
            head = head.replace("what is done", "why")
        parts.append("\n".join([head, *lines]))
    return "\n\n".join(parts) + "\n"
