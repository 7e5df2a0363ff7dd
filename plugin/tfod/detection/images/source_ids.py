"""``image/source_id`` as the number that TF-Vision, Model Maker and EfficientDet take it for.

Sources: official/vision/dataloaders/utils.py, process_source_id (``tf.strings.to_number`` to
int64); google/automl: efficientdet/dataloader.py (the same to float32, which holds whole numbers up
to 2**24).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tfod.errors import TfodError

if TYPE_CHECKING:  # every command knows whom it may write for
    from tfod.detection.detection import Detection

LARGEST_INT64: Final = (1 << 63) - 1
LARGEST_FLOAT32: Final = 1 << 24
"""The largest number up to which a float32 holds every whole one."""

LARGEST_FOR: Final[Mapping[str, int | None]] = {
    "od-api": None,
    "tf-vision": LARGEST_INT64,
    "model-maker": LARGEST_INT64,
    "efficientdet": LARGEST_FLOAT32,
}
"""Whom shards can be written for, and the largest source id that each reads; None for any text."""

FORMER: Final = "former_source_id"
"""The attribute of an image that keeps a source id in whose place a number was written."""

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,19})[ \t\n\v\f\r]*")
_FAR = 1 << 53  # what images are never numbered up to
_LARGE = re.compile(r"[0-9]{8}")
_SMALL_DIGITS = len(str(LARGEST_FLOAT32)) - 1
_INT64_DIGITS = len(str(LARGEST_INT64)) - 1


def number_of(text: str) -> int | None:
    """The number that TensorFlow parses a source id to; None where it stops."""
    match = _NUMBER.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -LARGEST_INT64 - 1 <= number <= LARGEST_INT64 else None


def odd_source_ids(texts: Sequence[str | None]) -> tuple[int | None, int | None]:
    """The positions of the first that is not a number, and of the first beyond a float32.

    None where there is none; those that are not there, or empty, are neither.
    """
    known = [text for text in texts if text]
    joined = "".join(known)
    if joined.isascii() and joined.isdigit():
        longest = max(map(len, known))
        if longest <= _SMALL_DIGITS or (
            longest <= _INT64_DIGITS and max(map(int, known)) <= LARGEST_FLOAT32
        ):
            return None, None
    # Most have no number that is large, which one look at all of them shows.
    may_be_large = _LARGE.search(joined)
    text = (i for i, x in enumerate(texts) if x and number_of(x) is None)
    large = (i for i, x in enumerate(texts) if x and abs(number_of(x) or 0) > LARGEST_FLOAT32)
    return next(text, None), next(large, None) if may_be_large else None


class SourceIdNumbers:
    """Gives numbers to images, each only once in a dataset, from 1 or behind those that it has.

    Args:
        largest: source ids that are numbers up to this one stay, others are replaced; None to
            number only images that have no source id.
        find_last: finds the number behind which others are free (:func:`last_before_free`). It is
            called when the first number is given.
    """

    def __init__(self, largest: int | None, find_last: Callable[[], int]) -> None:
        self.largest = largest
        self._find_last = find_last
        self._last: int | None = None

    def stays(self, source_id: str | None) -> bool:
        """Whether an image keeps its source id."""
        return _stays(source_id, self.largest)

    def next(self) -> str:
        """A number that no image has.

        Raises:
            TfodError: there is none that is small enough.
        """
        if self._last is None:
            self._last = self._find_last()
        self._last += 1
        if self.largest is not None and self._last > self.largest:
            raise TfodError(
                f"source ids go up to {self.largest:,} and images have such numbers already; "
                "number them anew in the annotations"
            )
        return str(self._last)

    def number(self, detection: Detection) -> Detection:
        """A Detection with a source id that may stay, or a number in its place."""
        if self.stays(detection.source_id):
            return detection
        former = former_source_id(detection.source_id, detection.filename)
        extra: Mapping[str, Any] = {**detection.image_extra, **former}
        return replace(detection, source_id=self.next(), image_extra=extra)


def former_source_id(source_id: str | None, filename: str | None) -> dict[str, str]:
    """What is to be kept of a source id: nothing where it is the file name, or blank."""
    if not source_id or not source_id.strip() or source_id == filename:
        return {}
    return {FORMER: source_id}


def _stays(source_id: str | None, largest: int | None) -> bool:
    if not source_id or not source_id.strip():
        return False
    number = number_of(source_id)
    return largest is None or (number is not None and abs(number) <= largest)


def last_before_free(source_ids: Iterable[str | None], largest: int | None) -> int:
    """The largest number of a dataset, behind which all are free; 0 where none is a number.

    Numbers beyond ``largest`` (as of :class:`SourceIdNumbers`) are replaced, and do not count.
    """
    numbers = (number_of(one) or 0 for one in source_ids if one)
    most = min(largest or _FAR, _FAR)
    return max((one for one in numbers if 0 < one <= most), default=0)
