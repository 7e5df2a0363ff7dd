"""Records that are read again, for what is not kept of all: the pixels of images."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterator

import numpy as np

from tfod.convert.dataset import Dataset
from tfod.detection.detection import Detection
from tfod.detection.images.masks import decode_pixels

CAN_DECODE = importlib.util.find_spec("PIL") is not None
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF")


def records_again(
    read: Callable[[], Dataset], wanted: Collection[int]
) -> Iterator[tuple[int, Detection]]:
    """The records of these numbers, as they come; each is valid until the next one."""
    rows = np.array(sorted(wanted), np.int64)
    first = 0
    for batches in read().subsets.values() if len(rows) else ():
        for batch in batches:
            places = np.searchsorted(rows, (first, first + len(batch.detections)))
            for row in rows[slice(*places)].tolist():
                yield row, batch.detections[row - first]
            first += len(batch.detections)
            if first > rows[-1]:
                return


def pixel_hash(one: Detection) -> int | None:
    """A hash of the pixels of a record's image, however they are encoded; None of a broken one."""
    try:
        pixels = decode_pixels(one.encoded or b"", _FORMATS)
    except ValueError:
        return None
    if pixels.ndim == 3 and (pixels == pixels[..., :1]).all():
        pixels = pixels[..., 0]  # a grey image in colour
    return hash((pixels.shape, pixels.tobytes()))
