"""In which frame an image was annotated: as its EXIF orientation shows it, or as it is stored.

Browsers, CVAT and labelme turn an image as its EXIF says, other tools show the pixels as they are
stored; TensorFlow's decoders read no EXIF. The size that the annotation gives tells the two apart
where the image is not square and is turned by a quarter (tensorflow#49834, labelImg#376).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tfod.detection.image import QUARTER, UPRIGHT
from tfod.shards.create.images import Image
from tfod.shards.create.policy import ExifOrientation
from tfod.shards.create.tally import Refusal, Tally

_TURNED_BACK = (
    "images annotated as their EXIF orientation shows them, their annotations turned back to the "
    "stored pixels"
)
_AMBIGUOUS = Refusal(
    "images with an EXIF orientation, and their sizes do not tell whether they were annotated "
    "as it shows them",
    "look at one in the tool that made the annotations, then say --exif_orientation=applied if it "
    "is shown upright there, else --exif_orientation=ignored",
)
_EXCHANGED = Refusal(
    "images whose annotation exchanges their height and width, and no EXIF orientation says how "
    "they were turned",
    "export images and annotations together again, or, if only the sizes are wrong, say "
    "--exif_orientation=ignored",
)


_CONTRADICTORY = Refusal(
    "images whose boxes fit them only as their EXIF orientation shows them, though their "
    "annotation gives the stored size",
    "correct the annotation's size, or turn the pixels (PIL.ImageOps.exif_transpose) and annotate "
    "them again",
)
_ROUNDING = 1e-3  # of the image's side: boxes may pass its edge by sloppiness, not by a turn


@dataclass(frozen=True)
class Frame:
    """The image as it was annotated.

    Attributes:
        orientation: EXIF's, that was applied; 1 where the annotation is of the stored pixels.
        own: the image's height and width in this frame, by its header.
        size: height and width as the annotation gives them, where it does.
    """

    orientation: int
    own: tuple[int, int]
    size: tuple[int, int]


def frame_of(
    image: Image,
    said: tuple[int | None, int | None],
    boxes: Sequence[Sequence[float]],
    choice: ExifOrientation,
    where: str,
    tally: Tally,
) -> Frame:
    """Find out in which frame an image was annotated.

    Args:
        image: the image.
        said: height and width that the annotation gives; None where it does not.
        boxes: xmin, ymin, xmax, ymax in the pixels of ``said``, else of the image; of an image
            without any nothing has to be found out.
        choice: what to do where sizes do not tell.
        where: the annotation, for messages.
        tally: counts images that are turned, and those that are refused.
    """
    stored, turn = (image.height, image.width), image.orientation
    exchanged = stored[::-1]
    follows = _agrees(said, stored), _agrees(said, exchanged)
    by_quarter = turn >= QUARTER
    is_turned = False
    if stored[0] != stored[1] and follows == (False, True) and not by_quarter and len(boxes):
        if choice is not ExifOrientation.IGNORED:
            tally.refuse(_EXCHANGED, f"{where}: {_by(exchanged)}, the file {_by(stored)}")
        return Frame(UPRIGHT, stored, stored)
    if turn == UPRIGHT or not len(boxes):
        pass
    elif by_quarter and follows == (False, True):
        is_turned = True
    elif by_quarter and follows == (True, False):
        if _fit(boxes, exchanged) and not _fit(boxes, stored):
            tally.refuse(_CONTRADICTORY, where)
    elif choice is ExifOrientation.AUTO:
        tally.refuse(_AMBIGUOUS, f"{where}: orientation {turn}, {_by(stored)}")
    else:
        is_turned = choice is ExifOrientation.APPLIED
    if is_turned:
        tally.add(_TURNED_BACK, f"{where}: orientation {turn}")
    own = exchanged if is_turned and by_quarter else stored
    return Frame(turn if is_turned else UPRIGHT, own, (said[0] or own[0], said[1] or own[1]))


def count_other_size(frame: Frame, where: str, tally: Tally) -> None:
    """Count an image that has another size than its annotation gives, which its boxes are of."""
    if frame.size != frame.own:
        tally.add(
            "images of another size than their annotation says; their boxes are divided by "
            "the annotation's",
            f"{where}: {_by(frame.size)}, the image {_by(frame.own)}",
        )


def _agrees(said: tuple[int | None, int | None], size: tuple[int, int]) -> bool:
    """Whether an annotation gives this size, or a part of it."""
    return any(said) and all(one in (None, own) for one, own in zip(said, size, strict=True))


def _fit(boxes: Sequence[Sequence[float]], size: tuple[int, int]) -> bool:
    right, bottom = np.array(boxes, np.float64).reshape(-1, 4)[:, 2:].max(axis=0)
    return bool(right <= size[1] * (1 + _ROUNDING) and bottom <= size[0] * (1 + _ROUNDING))


def _by(size: tuple[int, int]) -> str:
    return f"{size[1]}x{size[0]}"
