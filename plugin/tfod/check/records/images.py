"""The encoded images of a batch: what can be said of them only while their bytes are in memory."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfod.check.records.image_bytes import (
    can_decode,
    looks_like,
    strict_pillow,
    why_not_decoded,
)
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.images.image import FORMAT_OF_EXTENSION, ImageHeader
from tfod.kernel import hash_spans

MOST_DECODED = 200
"""So many images of each shard are decoded unless another number is asked for: a second for images
of a megapixel. To decode takes ten times as long as all else."""
_PIXELS_OF_A_BYTE = 256
_SMALL = 1 << 18
_SLOPPY = 0.02  # of a side: so far boxes reach outside by carelessness


def read_most_decoded(text: str) -> int | None:
    """What ``all``, ``none`` or a number means: so many images of each shard, None for all.

    Raises:
        ValueError: it is something else.
    """
    if text in ("all", "none"):
        return None if text == "all" else 0
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{text!r} is not all, none or a whole number")
    return int(text)


def why_not_all_decoded(most: int | None, codes: frozenset[str]) -> str:
    """Why a check with the rules of these codes does not decode all images."""
    if most == 0:
        return "not asked for"
    if not can_decode():
        return "Pillow is not installed: pip install Pillow"
    if "IMG003" not in codes:
        return "IMG003 is off"
    if most is not None:
        return f"the first {most:,} of each shard; choose to decode all for every one"
    return "the others are not images"


class Decoder:
    """Decodes the first images of a shard, in threads: Pillow lets others work meanwhile.

    Args:
        most: so many of them; None for all. Unless all are asked for, images are passed over that
            have many more pixels than bytes: one may take a second for each kilobyte.
        threads: how many at a time; None for as many as there are cores.
    """

    def __init__(self, most: int | None, threads: int | None = None) -> None:
        self._every = most is None
        self._left = (math.inf if most is None else most) if can_decode() else 0
        self._threads = threads or os.cpu_count() or 1

    def failures(self, found: Detections, rows: Sequence[int]) -> dict[int, str]:
        """Of the first of these records why their images do not decode; empty for those that do."""
        chosen: list[int] = []
        spans: list[memoryview] = []
        for row in rows:
            if self._left < 1:
                break
            header, (start, end) = found.headers[row], found.encoded[row].tolist()
            cheap = max(_SMALL, (end - start) * _PIXELS_OF_A_BYTE)
            if header and (self._every or header.height * header.width <= cheap):
                chosen.append(row)
                spans.append(memoryview(found.examples.buffer)[start:end])
                self._left -= 1
        if not spans:
            return {}
        with strict_pillow():
            if min(len(spans), self._threads) < 2:
                return dict(zip(chosen, map(why_not_decoded, spans), strict=True))
            from concurrent.futures import ThreadPoolExecutor  # for images alone

            with ThreadPoolExecutor(self._threads) as pool:
                return dict(zip(chosen, pool.map(why_not_decoded, spans), strict=True))


class EncodedImage(NamedTuple):
    """An image that a record has.

    Attributes:
        length: bytes.
        looks: what bytes without a header look like; may be empty.
        sha256: its digest, where the record has one to be compared with.
        failure: why it could not be decoded; empty where it could, None where it was not tried.
    """

    length: int
    looks: str
    sha256: str
    failure: str | None


@dataclass(frozen=True, eq=False)
class EncodedImages:
    """The images of a batch of records.

    Attributes:
        by_row: of the records that have one.
        headers: of every record, None where there is none.
        hashes: of every record, 0 where there is no image; uint64 of shape (records,).
    """

    by_row: Mapping[int, EncodedImage]
    headers: Sequence[ImageHeader | None]
    hashes: np.ndarray

    @classmethod
    def of(cls, found: Detections, decoder: Decoder) -> EncodedImages:
        """Those of a batch that has its bytes."""
        spans = np.stack((found.encoded[:, 0], found.encoded[:, 1] - found.encoded[:, 0]), axis=1)
        rows = np.flatnonzero(spans[:, 1] > 0)
        hashes = np.zeros(len(found), np.uint64)
        hashes[rows] = hash_spans(found.examples.buffer, spans[rows])
        failures = decoder.failures(found, rows.tolist())
        bounds = zip(rows.tolist(), found.encoded[rows].tolist(), strict=True)
        by_row = {
            row: _encoded_image(found, row, start, end, failures.get(row))
            for row, (start, end) in bounds
        }
        return cls(by_row, found.headers, hashes)

    @classmethod
    def joined(cls, parts: Sequence[EncodedImages]) -> EncodedImages:
        """Those of batches that follow each other."""
        by_row: dict[int, EncodedImage] = {}
        headers: list[ImageHeader | None] = []
        for part in parts:
            by_row |= {len(headers) + row: one for row, one in part.by_row.items()}
            headers += part.headers
        return cls(by_row, headers, np.concatenate([part.hashes for part in parts]))


def _encoded_image(
    found: Detections, row: int, start: int, end: int, failure: str | None
) -> EncodedImage:
    buffer = found.examples.buffer
    looks = looks_like(buffer, start, end) if found.headers[row] is None else ""
    sha256 = ""
    if found.sha256s[row]:
        sha256 = hashlib.sha256(memoryview(buffer)[start:end]).hexdigest()
    return EncodedImage(end - start, looks, sha256, failure)


class ImageFacts(NamedTuple):
    """What a record has for an image and says about it; equal facts are checked once.

    ``header`` is what the image's own header says, and where there is none ``size`` is the number
    of the encoded bytes and ``looks_like`` what they resemble; beside a header it is -1. The others
    are what the record says, sizes in pixels. ``boxes_need_a_turn``: see :func:`needs_a_turn`.
    """

    size: int
    header: ImageHeader | None = None
    looks_like: str = ""
    declared_format: str | None = None
    declared_height: int | None = None
    declared_width: int | None = None
    boxes_need_a_turn: bool = False

    @property
    def says_raw(self) -> bool:
        """Whether encoded bytes are said to be pixels."""
        return self.header is not None and self.declared_format in ("raw", "RAW")

    @property
    def says_another_format(self) -> bool:
        """Whether the bytes are of one format, and the record says another."""
        if self.header is None or not self.declared_format or self.says_raw:
            return False
        name = self.declared_format.strip().lower().removeprefix("image/").removeprefix(".")
        return FORMAT_OF_EXTENSION.get(f".{name}", name) != self.header.format

    @property
    def other_sides(self) -> Sequence[str]:
        """The keys of the height and width that the record says, and that are not the image's."""
        header = self.header
        found: list[str] = []
        if header is not None and header.height and header.width:
            sides = (
                (keys.HEIGHT, self.declared_height, header.height),
                (keys.WIDTH, self.declared_width, header.width),
            )
            found = [key for key, said, own in sides if said and said > 0 and said != own]
        return found

    @property
    def no_sides(self) -> Mapping[str, int]:
        """What the record says for a height or width that can be none, by its key."""
        said = {keys.HEIGHT: self.declared_height, keys.WIDTH: self.declared_width}
        return {key: one for key, one in said.items() if one is not None and one <= 0}


def needs_a_turn(corners: np.ndarray, header: ImageHeader) -> bool:
    """Whether boxes reach outside the image as it is stored, and all fit it turned by a quarter.

    ``corners`` are ``xmin, ymin, xmax, ymax`` of all boxes, float64 of shape (n, 4).
    """
    furthest = corners[:, 2:].max(axis=0, initial=0)
    if not corners.min(initial=0) >= -_SLOPPY or not furthest.max() > 1 + _SLOPPY:
        return False
    stored = np.array([header.width, header.height], np.float64)
    return bool((furthest * stored <= stored[::-1] * (1 + _SLOPPY)).all())
