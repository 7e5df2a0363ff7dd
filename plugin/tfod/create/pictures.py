"""Pictures on their way into records: their bytes as they are, and what their headers say."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from tfod.errors import TfodError
from tfod.picture import read_picture_header


@dataclass(frozen=True)
class Picture:
    """A picture file.

    Attributes:
        data: its bytes.
        format: ``jpeg``, ``png``, …, by its bytes.
        height, width: in pixels, from its header.
    """

    data: bytes
    format: str
    height: int
    width: int

    def fields(self, filename: str, source_id: str | None = None) -> dict[str, Any]:
        """The fields of a Detection that are about the picture file.

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


def read_picture(path: str, wanted_by: str) -> Picture:
    """Read a picture file.

    Args:
        path: of the picture.
        wanted_by: the file that names it, for errors.

    Raises:
        TfodError: it cannot be read, or is no picture.
    """
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            raise TfodError(f"{wanted_by}: {path} is no file")
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise TfodError(
            f"{wanted_by}: the picture {path} cannot be read ({error.strerror}); put it there, or "
            "take it out of the annotations"
        ) from None
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can hold
        raise TfodError(
            f"{wanted_by}: {ascii(path)[1:-1]} is no name that a file can have; correct it"
        ) from None
    header = read_picture_header(data, 0, len(data))
    if header is None or not header.height or not header.width:
        raise TfodError(
            f"{wanted_by}: {path} is no picture that can be read (JPEG, PNG, GIF, BMP, TIFF, WebP)"
        )
    return Picture(data, header.format, header.height, header.width)
