"""What does not fit its image, or is not there: what to do with it, and how it is counted."""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import NamedTuple

from tfod.errors import TfodError

_MOST_PLACES = 10


class OddBoxes(enum.Enum):
    """What becomes of a box that is inverted, flat, not finite, or reaches outside its image.

    Whatever is chosen, a box that passes an edge by rounding alone is clipped without a word.

    Attributes:
        REFUSE: nothing is written, and the boxes are named.
        CLIP: what reaches outside is clipped to the image; what then is no box is left out.
        DROP: the object is left out.
    """

    REFUSE = "refuse"
    CLIP = "clip"
    DROP = "drop"


class ExifOrientation(enum.Enum):
    """Whether coordinates are of the image as it is stored, or as its EXIF orientation shows it.

    TensorFlow decodes the pixels as they are stored, so coordinates of the other frame are turned
    back. Tools differ, and one tool's versions do (labelImg, issue 376), so sizes decide: the
    annotation's size against that in the image's header.

    Attributes:
        AUTO: where sizes do not tell, nothing is written, and the images are named.
        APPLIED: where sizes do not tell, the annotations are of the turned image.
        IGNORED: where sizes do not tell, the annotations are of the stored pixels.
    """

    AUTO = "auto"
    APPLIED = "applied"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Policy:
    """What to do with what does not fit.

    Attributes:
        odd_boxes: with boxes that cannot be written as they are.
        exif_orientation: with images that have an orientation.
        skip_missing_images: leave out images that are not there; else nothing is written.
    """

    odd_boxes: OddBoxes = OddBoxes.REFUSE
    exif_orientation: ExifOrientation = ExifOrientation.AUTO
    skip_missing_images: bool = False


STRICT = Policy()
"""Nothing that does not fit is written."""


class Refusal(NamedTuple):
    """A reason for which nothing is written, said when all that it is true of is known.

    Attributes:
        what: a plural without its number, such as "images that are missing".
        fix: what to do about it.
    """

    what: str
    fix: str


_When = tuple[int, bool, int]
"""Which record, whether it is made by then or only read, and which problem of it."""


class Problems:
    """What does not fit, counted by sentence; nothing is left out without one.

    Attributes:
        annotated: how many objects the annotations of the images have.
        furthest: the largest coordinate in pixels of all boxes, whatever its sign; 0 without any.
    """

    def __init__(self) -> None:
        self.annotated = 0
        self.furthest = 0.0
        self._counts: Counter[str] = Counter()
        self._first: dict[str, tuple[_When, str]] = {}
        self._refused: Counter[Refusal] = Counter()
        self._places: defaultdict[Refusal, list[tuple[_When, str]]] = defaultdict(list)
        self._now: _When = (-1, False, 0)

    def begin(self, item: int, is_made: bool = False) -> None:
        """Say what the following belongs to, where several processes count at once.

        Args:
            item: which record, counted from 0.
            is_made: whether it is made now; else it is read before that, by another process.
        """
        self._now = (item, is_made, 0)

    def add(self, what: str, where: str) -> None:
        """Count one more of something.

        Args:
            what: a plural without its number, such as "objects without <bndbox>, left out".
            where: file and, where there is one, line.
        """
        self._counts[what] += 1
        self._first.setdefault(what, (self._step(), where))

    def refuse(self, why: Refusal, where: str) -> None:
        """Count one more of something for which nothing may be written."""
        self._refused[why] += 1
        self._note(why, [(self._step(), where)])

    def _step(self) -> _When:
        self._now = (*self._now[:2], self._now[2] + 1)
        return self._now

    def raise_refusals(self) -> None:
        """End here if anything was refused.

        Raises:
            TfodError: with how many there are, the first places of each, and what to do; or no
                box in pixels reaches beyond 1.
        """
        if 0 < self.furthest <= 1:
            raise TfodError(
                "nothing is written: all boxes lie within 0 to 1: they are normalized, not pixels; "
                "multiply them by the image's size"
            )
        if not self._refused:
            return
        said = []
        for why, places in sorted(self._places.items(), key=lambda one: one[1][0]):
            left = self._refused[why] - len(places)
            listed = "; ".join(where for _, where in places) + (f"; {left} more" if left else "")
            said.append(f"{why.what}: {self._refused[why]} ({listed}); {why.fix}")
        raise TfodError("nothing is written: " + ". ".join(said))

    def require_records(self, images: int, objects: int) -> None:
        """End here if nothing was made of what there is.

        Args:
            images: how many were made.
            objects: how many were made.

        Raises:
            TfodError: there is no image, or no object though the annotations have some; with
                all sentences.
        """
        if not images:
            missing = "no image is left"
        elif self.annotated and not objects:
            missing = f"none of {self.annotated} annotated objects is left"
        else:
            return
        raise TfodError("; ".join([f"nothing is written: {missing}", *self.sentences()]))

    def _note(self, why: Refusal, places: list[tuple[_When, str]]) -> None:
        self._places[why] = sorted([*self._places[why], *places])[:_MOST_PLACES]

    def merge(self, other: Problems) -> None:
        """Add what another process has counted."""
        self.annotated += other.annotated
        self.furthest = max(self.furthest, other.furthest)
        self._counts.update(other._counts)
        self._refused.update(other._refused)
        for why, places in other._places.items():
            self._note(why, places)
        for what, first in other._first.items():
            self._first[what] = min(first, self._first.get(what, first))

    def sentences(self) -> list[str]:
        """One sentence a matter, in the order in which they were met."""
        return [
            f"{self._counts[what]} {what} (the first: {where})"
            for what, (_, where) in sorted(self._first.items(), key=lambda one: one[1])
        ]
