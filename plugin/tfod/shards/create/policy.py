"""What to do with annotations that do not fit their images; chosen by whoever creates shards."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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
