"""``image/source_id`` as the number that TF-Vision, Model Maker and EfficientDet take it for.

Sources: official/vision/dataloaders/utils.py, process_source_id (``tf.strings.to_number`` to
int64); google/automl: efficientdet/dataloader.py (the same to float32, which holds whole numbers up
to 2**24).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

LARGEST_INT64: Final = (1 << 63) - 1
LARGEST_FLOAT32: Final = 1 << 24
"""The largest number up to which a float32 holds every whole one."""

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]{1,19})[ \t\n\v\f\r]*")
_SMALL_DIGITS = len(str(LARGEST_FLOAT32)) - 1


def number_of(text: str) -> int | None:
    """The number that TensorFlow parses a source id to; None where it stops."""
    match = _NUMBER.fullmatch(text)
    number = int(match[1] + match[2]) if match else None
    return number if number is not None and -LARGEST_INT64 - 1 <= number <= LARGEST_INT64 else None


def are_small_numbers(texts: Sequence[str | None]) -> bool:
    """Whether all of them are numbers that a float32 holds; those that are not there count as such.

    Plain ones are seen at once; for others the answer may be no.
    """
    known = [text for text in texts if text]
    joined = "".join(known)
    if not joined:
        return True
    return joined.isascii() and joined.isdigit() and max(map(len, known)) <= _SMALL_DIGITS


def first_text(texts: Sequence[str | None]) -> int | None:
    """The place of the first that is not a number; None where there is none."""
    return next((i for i, x in enumerate(texts) if x and number_of(x) is None), None)


def first_large(texts: Sequence[str | None]) -> int | None:
    """The place of the first number that a float32 does not hold; None where there is none."""
    numbers = ((i, number_of(x)) for i, x in enumerate(texts) if x)
    return next((i for i, x in numbers if x is not None and abs(x) > LARGEST_FLOAT32), None)
