"""One record of any keys, by the mapping that says which key holds what."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tfod.detection.columns import Detections
from tfod.detection.detection import Detection
from tfod.detection.roles import Roles
from tfod.example.example import Example


@dataclass(frozen=True)
class MappedRecord:
    """A record of any keys.

    Attributes:
        example: the record itself.
        detection: what it says of its picture.
        image_id: of the picture; None where the format has none.
        annotation_ids: one for each object, or none at all.
    """

    example: Example
    detection: Detection
    image_id: int | str | None = None
    annotation_ids: Sequence[int] = ()


def decode_mapped(example: Example, roles: Roles, repeating: Collection[str] = ()) -> MappedRecord:
    """Read an Example by the roles of its keys. Copies no pictures and no masks.

    Args:
        example: the record.
        roles: which key holds what.
        repeating: keys that only repeat what others say, such as the number of channels.

    Raises:
        RecordError: a feature has the wrong kind, lists of one object differ in length, or boxes
            in pixels come without the picture's size.
    """
    found, row = Detections(example.batch, roles, repeating), example.row
    detection = found[row]
    return MappedRecord(example, detection, found.image_ids[row], found.annotation_ids(row))
