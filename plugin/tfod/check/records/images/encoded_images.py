"""The encoded images of a batch: what can be said of them only while their bytes are in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tfod.check.records.images.decoding import Decoding
from tfod.check.records.images.image_bytes import looks_like, why_not_decoded
from tfod.detection.detections import Detections
from tfod.detection.images.image_header import ImageHeader
from tfod.kernel import hash_spans


class EncodedImage(NamedTuple):
    """An image that a record has.

    Attributes:
        length: bytes.
        header: what its header says; None where there is none that is known.
        looks: what bytes without a header look like; may be empty.
        sha256: its digest, where the record has one to be compared with.
        decoded: whether it was decoded.
        failure: why that failed; empty where it did not.
    """

    length: int
    header: ImageHeader | None
    looks: str
    sha256: str
    decoded: bool
    failure: str


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
    def of(cls, found: Detections, decoding: Decoding, place: int) -> EncodedImages:
        """Those of a batch that has its bytes.

        Args:
            found: the batch.
            decoding: which images are decoded.
            place: any number that tells the shard from others.

        Raises:
            TfodError: images are to be decoded, and Pillow is not installed.
        """
        spans = np.stack((found.encoded[:, 0], found.encoded[:, 1] - found.encoded[:, 0]), axis=1)
        rows = np.flatnonzero(spans[:, 1] > 0)
        hashes = np.zeros(len(found), np.uint64)
        hashes[rows] = hash_spans(found.examples.buffer, spans[rows])
        first = found.examples.records.first
        bounds = zip(rows.tolist(), found.encoded[rows].tolist(), strict=True)
        by_row = {
            row: _encoded_image(
                found, row, start, end, decoding if decoding.has(place, first + row) else None
            )
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
    found: Detections, row: int, start: int, end: int, decoding: Decoding | None
) -> EncodedImage:
    buffer, header = found.examples.buffer, found.headers[row]
    looks = looks_like(buffer, start, end) if header is None else ""
    sha256 = ""
    if found.sha256s[row]:
        sha256 = hashlib.sha256(memoryview(buffer)[start:end]).hexdigest()
    # One of many pixels for its bytes costs much more to decode than they are worth.
    failure, decoded = "", False
    if decoding and header and decoding.is_cheap(header.height, header.width, end - start):
        decoded = True
        failure = why_not_decoded(memoryview(buffer)[start:end])
    return EncodedImage(end - start, header, looks, sha256, decoded, failure)
