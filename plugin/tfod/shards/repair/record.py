"""A record while it is repaired, and what a repair has changed: each change, and all counted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tfod.check.findings.finding import JsonValue, Place
from tfod.check.findings.findings import shortened
from tfod.check.profiles.profile import Profile
from tfod.check.records.images import ImageFacts
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import read_image_header
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap
from tfod.example.example import Example
from tfod.example.rewrite import rewrite_example
from tfod.example.wire import Kind

_MOST_LISTED = 1000


@dataclass(frozen=True)
class Change:
    """One change of one record, or of a shard as a whole.

    Attributes:
        what: what was done, with the numbers filled in.
        feature: key of the feature that was changed; None where the whole record is concerned.
        before, after: its values, or those of the object, as JSON.
        record_dropped: whether the record is not in the result.
        code: of the rule that asks for it.
    """

    what: str
    feature: str | None = None
    before: JsonValue = None
    after: JsonValue = None
    record_dropped: bool = False
    code: str = ""

    def to_json(self, place: Place) -> dict[str, Any]:
        """The change at its location, as the report file has it."""
        own = {**vars(self), "what": shortened(self.what)}
        return {"code": own.pop("code"), "what": own.pop("what"), **place._asdict(), **own}


@dataclass
class Changes:
    """All changes counted, a bounded number of them listed, every one written.

    Attributes:
        write: takes each change as a line of JSON.
        by_code: true number of changes.
        listed: the first changes of each code, with their locations.
        records_changed: records that are in the result, but not as they were.
        records_dropped: records that are not in it any more.
    """

    write: Callable[[str], object] | None = None
    by_code: Counter[str] = field(default_factory=Counter)
    listed: dict[str, list[tuple[Place, Change]]] = field(default_factory=lambda: defaultdict(list))
    records_changed: int = 0
    records_dropped: int = 0

    def add(self, change: Change, place: Place) -> None:
        """Count, list and write a change."""
        self.by_code[change.code] += 1
        self.records_dropped += change.record_dropped
        if len(self.listed[change.code]) < _MOST_LISTED:
            self.listed[change.code].append((place, change))
        if self.write is not None:
            self.write(json.dumps(change.to_json(place), ensure_ascii=True))


@dataclass
class EditedRecord:
    """One record as it is read, and the features that replace some of it.

    Attributes:
        label_map: by which ids are corrected; None where there is none.
        is_complete: whether that has all classes of the shards it goes with.
        source_ids: gives numbers to images that have no source id, or none that may stay.
    """

    example: Example
    profile: Profile
    label_map: LabelMap | None
    is_complete: Callable[[], bool]
    source_ids: SourceIdNumbers
    _new: dict[str, bytes] = field(default_factory=dict)

    @property
    def field_mapping(self) -> FieldMapping:
        """Which key holds what."""
        return self.profile.field_mapping

    def payload(self) -> bytes:
        """The record as it is now; what was not changed keeps its bytes."""
        return rewrite_example(self.example, self._new)

    def set(self, key: str, feature: bytes) -> bool:
        """Replace or add a feature; False where another fix has already done so."""
        if key in self._new:
            return False
        self._new[key] = feature
        return True

    # The features that were read

    def kind(self, key: str) -> Kind | None:
        """Which list a feature holds; None when it is absent or holds none."""
        return self.example.kind(key)

    def count(self, key: str | None) -> int:
        """How many values a feature has."""
        return self.example.value_count(key) if key else 0

    def ints(self, key: str | None) -> list[int]:
        """Whole numbers; none where the feature holds another kind."""
        return self.example.ints(key) if key and self.kind(key) is Kind.INT64 else []

    def floats(self, key: str) -> np.ndarray:
        """Numbers, float32 of shape (n,); none where the feature holds another kind."""
        return self.example.floats(key) if self.kind(key) is Kind.FLOAT else np.zeros(0, "<f4")

    def values(self, key: str | None) -> Sequence[bytes]:
        """Texts, undecoded; none where the feature holds another kind."""
        return self.example.byte_strings(key) if key and self.kind(key) is Kind.BYTES else ()

    def text(self, key: str | None) -> str | None:
        """The only text of a feature; None where it has none, several, or no UTF-8."""
        texts = decoded(self.values(key))
        return texts[0] if texts and len(texts) == 1 else None

    @cached_property
    def header(self) -> ImageHeader | None:
        """What the header of the only image says, where it says a size."""
        values = self.values(self.field_mapping.encoded)
        found = read_image_header(values[0], 0, len(values[0])) if len(values) == 1 else None
        return found if found is not None and found.height and found.width else None

    @cached_property
    def facts(self) -> ImageFacts:
        """The image, and what the record says of it."""
        height, width = self.ints(self.field_mapping.height), self.ints(self.field_mapping.width)
        return ImageFacts(
            size=-1 if self.header else 0,
            header=self.header,
            declared_format=self.text(self.field_mapping.format),
            declared_height=height[0] if len(height) == 1 else None,
            declared_width=width[0] if len(width) == 1 else None,
        )

    @cached_property
    def boxes(self) -> np.ndarray:
        """Normalized boxes, float64 of shape (n, 4); none where the four lists do not go together.

        They may look like pixels, or not be finite.
        """
        in_pixels = self.field_mapping.has_pixel_boxes
        sides = [] if in_pixels else [self.floats(key) for key in self.field_mapping.box]
        if len({len(side) for side in sides}) != 1:
            return np.zeros((0, 4))
        return np.stack(sides, axis=1).astype(np.float64)


def decoded(values: Sequence[bytes]) -> list[str] | None:
    """Texts; None where one of them is no UTF-8."""
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return None
