"""What does not fit its image, or is not there: what to do with it, and how it is counted."""

from __future__ import annotations

import enum
from collections import Counter
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
        KEEP: what is flat or reaches outside stays as it is, to be compared; the rest as REFUSE.
    """

    REFUSE = "refuse"
    CLIP = "clip"
    DROP = "drop"
    KEEP = "keep"


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
    """What to do with boxes, images with an orientation, and missing images that do not fit.

    Without ``skip_missing_images`` nothing is written where an image is missing.
    """

    odd_boxes: OddBoxes = OddBoxes.REFUSE
    exif_orientation: ExifOrientation = ExifOrientation.AUTO
    skip_missing_images: bool = False


STRICT = Policy()
"""Nothing that does not fit is written."""


class Refusal(NamedTuple):
    """A reason for which nothing is written, reported when all that it is true of is known.

    Attributes:
        what: a plural without its number, such as "images that are missing".
        fix: what to do about it.
    """

    what: str
    fix: str


class Problems:
    """What does not fit, counted by sentence; nothing is left out without one.

    Attributes:
        policy: what to do with it.
        annotated: how many objects the annotations of the images have.
        furthest: the largest coordinate in pixels of all boxes, whatever its sign; 0 without any.
    """

    def __init__(self, policy: Policy = STRICT) -> None:
        self.policy = policy
        self.annotated = 0
        self.furthest = 0.0
        self._end = "not compared" if policy.odd_boxes is OddBoxes.KEEP else "nothing is written"
        self._counts: Counter[str | Refusal] = Counter()
        self._places: dict[str | Refusal, list[str]] = {}

    def add(self, what: str | Refusal, where: str) -> None:
        """Count one more of something, at a file and, where there is one, a line.

        ``what`` is a plural without its number, such as "objects without <bndbox>, left out"; with
        a refusal nothing may be written.
        """
        self._counts[what] += 1
        places = self._places.setdefault(what, [])
        if len(places) < _MOST_PLACES:
            places.append(where)

    def add_missing(self, why: Refusal, where: str) -> None:
        """Count something that belongs to a missing image."""
        self.add(f"{why.what}, left out" if self.policy.skip_missing_images else why, where)

    def raise_refusals(self) -> None:
        """End here if anything was refused, or no box in pixels reaches beyond 1.

        Raises:
            TfodError: with how many there are, the first places of each, and what to do.
        """
        if 0 < self.furthest <= 1:
            raise TfodError(
                f"{self._end}: all boxes lie within 0 to 1: they are normalized, not pixels; "
                "multiply them by the image's size"
            )
        refused = []
        for why, places in self._places.items():
            if isinstance(why, Refusal):
                left = self._counts[why] - len(places)
                listed = "; ".join(places) + (f"; {left} more" * bool(left))
                refused.append(f"{why.what}: {self._counts[why]} ({listed}); {why.fix}")
        if refused:
            raise TfodError(f"{self._end}: " + ". ".join(refused))

    def require_records(self, images: int, objects: int) -> None:
        """End here if no image was made, or no object of those that the annotations have.

        Raises:
            TfodError: with all sentences.
        """
        if not images:
            missing = "no image is left"
        elif self.annotated and not objects:
            missing = f"none of {self.annotated} annotated objects is left"
        else:
            return
        raise TfodError("; ".join([f"nothing is written: {missing}", *self.sentences()]))

    def sentences(self) -> list[str]:
        """What was counted, in the order in which it was met."""
        return [
            f"{self._counts[what]} {what} (the first: {places[0]})"
            for what, places in self._places.items()
            if isinstance(what, str)
        ]
