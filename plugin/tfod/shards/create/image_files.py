"""Images on their way into records: their bytes, their headers, and how they were annotated.

Browsers, CVAT and labelme turn an image as its EXIF says, other tools show the pixels as they are
stored; TensorFlow's decoders read no EXIF. The size that the annotation gives tells the two apart
where the image is not square and is turned by a quarter (tensorflow#49834, labelImg#376).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tfod.detection.images.image import QUARTER, UPRIGHT, read_image_header
from tfod.errors import TfodError
from tfod.shards.create.problems import ExifOrientation, Problems, Refusal

MISSING = Refusal(
    "images that are missing",
    "put them there, take them out of the annotations, or leave them out with "
    "--skip-missing-images",
)
_TURNED_BACK = (
    "images annotated as their EXIF orientation shows them, their annotations turned back to the "
    "stored pixels"
)
_AMBIGUOUS = Refusal(
    "images with an EXIF orientation, and their sizes do not tell whether they were annotated "
    "as it shows them",
    "look at one in the tool that made the annotations, then say --exif-orientation=applied if it "
    "is shown upright there, else --exif-orientation=ignored",
)
_EXCHANGED = Refusal(
    "images whose annotation exchanges their height and width, and no EXIF orientation says how "
    "they were turned",
    "export images and annotations together again, or, if only the sizes are wrong, say "
    "--exif-orientation=ignored",
)
_CONTRADICTORY = Refusal(
    "images whose boxes fit them only as their EXIF orientation shows them, though their "
    "annotation gives the stored size",
    "correct the annotation's size, or turn the pixels (PIL.ImageOps.exif_transpose) and annotate "
    "them again",
)
_ROUNDING = 1e-3  # of the image's side: boxes may pass its edge by sloppiness, not by a turn

Size: TypeAlias = "tuple[int, int]"
"""Height and width in pixels."""
AnnotatedSize: TypeAlias = "tuple[int | None, int | None]"
"""Height and width that an annotation gives; None where it does not."""


@dataclass(frozen=True)
class ImageFile:
    """An image file: its bytes, and what they say of format, stored size, and EXIF orientation."""

    data: bytes
    format: str
    height: int
    width: int
    orientation: int = UPRIGHT

    def fields(self, filename: str, source_id: str | None = None) -> dict[str, Any]:
        """The fields of a Detection that are about the image file, which may have no id yet."""
        return {
            "filename": filename,
            "source_id": source_id,
            "format": self.format,
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "height": self.height,
            "width": self.width,
            "encoded": self.data,
        }


def read_image(path: str, wanted_by: str, problems: Problems) -> ImageFile | None:
    """Read an image file that another file names; None where there is none, which is counted.

    Raises:
        TfodError: it cannot be read, or is no image.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise TfodError(f"{wanted_by}: {path} is not a file")
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        problems.add_missing(MISSING, path)
        return None
    except OSError as error:
        raise TfodError(
            f"{wanted_by}: the image {path} cannot be read ({error.strerror})"
        ) from None
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold
        raise TfodError(
            f"{wanted_by}: {ascii(path)[1:-1]} is not a valid file name; correct it"
        ) from None
    header = read_image_header(data, 0, len(data))
    if header is None or not header.height or not header.width:
        raise TfodError(
            f"{wanted_by}: {path} is not a readable image (JPEG, PNG, GIF, BMP, TIFF, WebP)"
        )
    return ImageFile(data, header.format, header.height, header.width, header.orientation)


@dataclass(frozen=True)
class Frame:
    """The image as it was annotated.

    Attributes:
        orientation: EXIF's, that was applied; 1 where the annotation is of the stored pixels.
        own: the image's size in this frame, by its header.
        size: as the annotation gives it, where it does.
    """

    orientation: int
    own: Size
    size: Size


def frame_of(
    image: ImageFile,
    annotated: AnnotatedSize,
    boxes: Sequence[Sequence[float]],
    where: str,
    problems: Problems,
) -> Frame:
    """Find out in which frame an image was annotated; images turned or refused are counted.

    Boxes are xmin, ymin, xmax, ymax in the pixels of the annotated size, else of the image; of an
    image without any nothing has to be found out.
    """
    choice = problems.policy.exif_orientation
    stored, turn = (image.height, image.width), image.orientation
    exchanged = stored[::-1]
    follows = _agrees(annotated, stored), _agrees(annotated, exchanged)
    by_quarter = turn >= QUARTER
    is_turned = False
    if not len(boxes):
        return Frame(UPRIGHT, stored, stored)
    if stored[0] != stored[1] and follows == (False, True) and not by_quarter:
        if choice is not ExifOrientation.IGNORED:
            problems.add(_EXCHANGED, f"{where}: {by(exchanged)}, the file {by(stored)}")
        return Frame(UPRIGHT, stored, stored)
    if turn == UPRIGHT:
        pass
    elif by_quarter and follows == (False, True):
        is_turned = True
    elif by_quarter and follows == (True, False):
        if _fit(boxes, exchanged) and not _fit(boxes, stored):
            problems.add(_CONTRADICTORY, where)
    elif choice is ExifOrientation.AUTO:
        problems.add(_AMBIGUOUS, f"{where}: orientation {turn}, {by(stored)}")
    else:
        is_turned = choice is ExifOrientation.APPLIED
    if is_turned:
        problems.add(_TURNED_BACK, f"{where}: orientation {turn}")
    own = exchanged if is_turned and by_quarter else stored
    size = annotated[0] or own[0], annotated[1] or own[1]
    return Frame(turn if is_turned else UPRIGHT, own, size)


def _agrees(annotated: AnnotatedSize, size: Size) -> bool:
    pairs = zip(annotated, size, strict=True)
    return any(annotated) and all(one in (None, own) for one, own in pairs)


def _fit(boxes: Sequence[Sequence[float]], size: Size) -> bool:
    right, bottom = np.array(boxes, np.float64).reshape(-1, 4)[:, 2:].max(axis=0)
    return bool(right <= size[1] * (1 + _ROUNDING) and bottom <= size[0] * (1 + _ROUNDING))


def by(size: Size) -> str:
    """A size as messages have it: width first."""
    return f"{size[1]}x{size[0]}"
