"""KITTI's label files: one text file an image, one line an object.

Source: the object development kit's readme.txt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tfod.errors import TfodError

# A sixteenth, the score of a detection, may follow.
FIELDS = (
    *("truncated", "occluded", "alpha", "xmin", "ymin", "xmax", "ymax"),
    *("3d_bbox_height", "3d_bbox_width", "3d_bbox_length"),
    *("3d_bbox_x", "3d_bbox_y", "3d_bbox_z", "3d_bbox_rot_y"),
)
"""The numbers behind the class, in their order."""
BOX = slice(FIELDS.index("xmin"), FIELDS.index("ymax") + 1)
_LONGEST_QUOTE = 40


@dataclass(frozen=True)
class KittiObject:
    """One line: the class in lower case, as the OD API's script has it, and :data:`FIELDS`."""

    name: str
    line: int
    values: tuple[float, ...]

    @property
    def box(self) -> tuple[float, ...]:
        """xmin, ymin, xmax, ymax in pixels, which need not be finite."""
        return self.values[BOX]


def read_kitti(path: str) -> list[KittiObject]:
    """Read the objects of a label file.

    Raises:
        TfodError: it cannot be read, or a line is not one of KITTI's; with the line.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except OSError as error:
        raise TfodError(f"{path} cannot be read ({error.strerror}); each image has one") from None
    except UnicodeDecodeError:
        raise TfodError(f"{path} is not a KITTI label file: it is not UTF-8") from None
    found = []
    for number, line in enumerate(lines, start=1):
        name, *texts = line.split() or ("",)
        if name:
            found.append(
                KittiObject(name.lower(), number, _values(texts, f"{path}, line {number}"))
            )
    return found


def _values(texts: Sequence[str], where: str) -> tuple[float, ...]:
    values = tuple(_number(text, where) for text in texts[: len(FIELDS)])
    others = (*values[: BOX.start], *values[BOX.stop :])
    if len(values) < len(FIELDS) or not all(map(math.isfinite, others)):
        raise TfodError(
            f"{where}: {len(texts)} numbers behind the class, expected {len(FIELDS)} finite ones "
            "(KITTI's label fields)"
        )
    return values


def _number(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TfodError(
            f"{where}: {text[:_LONGEST_QUOTE]!r} where a number is expected (KITTI's label "
            "fields); correct it"
        ) from None
