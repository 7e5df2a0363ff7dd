"""Images on their way into records: their bytes as they are, and what their headers say."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from tfod.detection.image import read_image_header
from tfod.errors import TfodError
from tfod.shards.create.policy import STRICT, Policy
from tfod.shards.create.tally import Refusal, Tally

_MISSING = Refusal(
    "images that are missing",
    "put them there, take them out of the annotations, or leave them out with "
    "--skip_missing_images",
)


@dataclass(frozen=True)
class Image:
    """An image file.

    Attributes:
        data: its bytes.
        format: ``jpeg``, ``png``, …, by its bytes.
        height, width: in pixels, from its header, as it is stored.
        orientation: EXIF's, 1 to 8; 1 where it has none.
    """

    data: bytes
    format: str
    height: int
    width: int
    orientation: int = 1

    def fields(self, filename: str, source_id: str | None = None) -> dict[str, Any]:
        """The fields of a Detection that are about the image file.

        Args:
            filename: what ``image/filename`` says.
            source_id: what ``image/source_id`` says, if not the same.
        """
        return {
            "filename": filename,
            "source_id": filename if source_id is None else source_id,
            "format": self.format,
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "height": self.height,
            "width": self.width,
            "encoded": self.data,
        }


def read_image(path: str, wanted_by: str, tally: Tally, policy: Policy = STRICT) -> Image | None:
    """Read an image file; None where there is none, which the tally counts or refuses.

    Args:
        path: of the image.
        wanted_by: the file that names it, for errors.
        tally: counts images that are missing.
        policy: whether they may be left out.

    Raises:
        TfodError: it cannot be read, or is no image.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise TfodError(f"{wanted_by}: {path} is not a file")
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        if policy.skip_missing_images:
            tally.add(f"{_MISSING.what}, left out", path)
        else:
            tally.refuse(_MISSING, path)
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
    return Image(data, header.format, header.height, header.width, header.orientation)
