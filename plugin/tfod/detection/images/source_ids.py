"""``image/source_id`` as a number, for TF-Vision, Model Maker and EfficientDet.

Sources: official/vision/dataloaders/utils.py, process_source_id (``tf.strings.to_number`` to
int64); google/automl: efficientdet/dataloader.py (to float32, exact for whole numbers up to 2**24).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tfod.errors import TfodError

if TYPE_CHECKING:  # every command imports this module; keep it light
    from tfod.detection.detection import Detection

LARGEST_INT64: Final = (1 << 63) - 1
LARGEST_FLOAT32: Final = 1 << 24
"""The largest n such that a float32 represents all whole numbers up to n."""

LARGEST_FOR: Final[Mapping[str, int | None]] = {
    "od-api": None,
    "tf-vision": LARGEST_INT64,
    "model-maker": LARGEST_INT64,
    "efficientdet": LARGEST_FLOAT32,
}
"""Training programs, and the largest source id that they read; None for any text."""

FORMER: Final = "former_source_id"
"""Attribute of an image with the original source id, if a number replaced it."""

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,19})[ \t\n\v\f\r]*")
_MAX_COUNTED = 1 << 53  # no dataset has this many images
_EIGHT_DIGITS = re.compile(r"[0-9]{8}")
_SMALL_DIGITS = len(str(LARGEST_FLOAT32)) - 1
_INT64_DIGITS = len(str(LARGEST_INT64)) - 1


def parse_source_id(text: str) -> int | None:
    """Return the number that TensorFlow parses from a source id; None if it fails."""
    match = _NUMBER.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -LARGEST_INT64 - 1 <= number <= LARGEST_INT64 else None


def find_unusual_source_ids(texts: Sequence[str | None]) -> tuple[int | None, int | None]:
    """Return the index of the first id that is not a number, and of the first above 2**24."""
    ids = [text for text in texts if text]
    joined = "".join(ids)
    if joined.isascii() and joined.isdigit():
        longest = max(map(len, ids))
        if longest <= _SMALL_DIGITS or (
            longest <= _INT64_DIGITS and max(map(int, ids)) <= LARGEST_FLOAT32
        ):
            return None, None
    # Usually no id is large, which a single search can prove.
    may_be_large = _EIGHT_DIGITS.search(joined)
    non_numbers = (i for i, x in enumerate(texts) if x and parse_source_id(x) is None)
    large = (i for i, x in enumerate(texts) if x and abs(parse_source_id(x) or 0) > LARGEST_FLOAT32)
    return next(non_numbers, None), next(large, None) if may_be_large else None


class SourceIdNumbers:
    """An allocator of unique numbers for the images of a dataset.

    Args:
        largest: limit of the numeric source ids that are kept; None to keep all source ids.
        find_last: function like :func:`find_last_number`, called for the first new number.
    """

    def __init__(self, largest: int | None, find_last: Callable[[], int]) -> None:
        self.largest = largest
        self._find_last = find_last
        self._last: int | None = None

    def keeps(self, source_id: str | None) -> bool:
        """Return whether an image keeps its source id."""
        return _is_kept(source_id, self.largest)

    def next(self) -> str:
        """Return a number that no image has; TfodError if all numbers up to the limit are used."""
        if self._last is None:
            self._last = self._find_last()
        self._last += 1
        if self.largest is not None and self._last > self.largest:
            raise TfodError(f"all source ids up to {self.largest:,} are used; renumber the images")
        return str(self._last)

    def number(self, detection: Detection) -> Detection:
        """Return a Detection that keeps its source id or has a new number."""
        if self.keeps(detection.source_id):
            return detection
        former = former_source_id(detection.source_id, detection.filename)
        extra: Mapping[str, Any] = {**detection.image_extra, **former}
        return replace(detection, source_id=self.next(), image_extra=extra)


def former_source_id(source_id: str | None, filename: str | None) -> dict[str, str]:
    """Return the attribute that keeps a source id, empty if it is blank or the file name."""
    if not source_id or not source_id.strip() or source_id == filename:
        return {}
    return {FORMER: source_id}


def _is_kept(source_id: str | None, largest: int | None) -> bool:
    if not source_id or not source_id.strip():
        return False
    number = parse_source_id(source_id)
    return largest is None or (number is not None and abs(number) <= largest)


def find_last_number(source_ids: Iterable[str | None], largest: int | None) -> int:
    """Return the largest number in use up to ``largest``, or 0; all later numbers are free."""
    numbers = (parse_source_id(source_id) or 0 for source_id in source_ids if source_id)
    limit = min(largest or _MAX_COUNTED, _MAX_COUNTED)
    return max((number for number in numbers if 0 < number <= limit), default=0)
