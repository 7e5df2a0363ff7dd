"""A record while it is repaired: its features as they are now, with what is known of them; and what
a repair has changed: each change, and all of them counted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tfod.check.findings.collector import shortened
from tfod.check.findings.finding import JsonValue, Place
from tfod.check.profiles.profile import Profile
from tfod.check.records.boxes import Boxes
from tfod.check.records.column_order import ROUNDING
from tfod.check.rules.images import ImageFacts, check_size
from tfod.detection.images.image import read_image_header
from tfod.detection.images.image_header import ImageHeader
from tfod.detection.images.source_ids import SourceIdNumbers
from tfod.detection.labels.label_map import LabelMap
from tfod.example.example import (
    Example,
    bytes_feature,
    encode_example,
    float_feature,
    int64_feature,
)
from tfod.example.rewrite import rewrite_example
from tfod.example.wire import Kind

FEATURES: Mapping[Kind, Callable[[Any], bytes]] = {
    Kind.BYTES: bytes_feature,
    Kind.FLOAT: float_feature,
    Kind.INT64: int64_feature,
}
"""What encodes the values of each kind."""
_SHOWN = 80
_MOST_LISTED = 1000


@dataclass(frozen=True)
class Change:
    """One change of one record, or of a shard as a whole.

    Attributes:
        what: what was done, with the numbers filled in.
        feature: key of the feature that was changed; None where the whole record is concerned.
        before, after: its values, or those of the object, as JSON; after is None where something
            was removed.
        record_dropped: whether the record is not in the result.
        objects_dropped: how many objects of it are not.
        code: of the rule that asks for it.
    """

    what: str
    feature: str | None = None
    before: JsonValue = None
    after: JsonValue = None
    record_dropped: bool = False
    objects_dropped: int = 0
    code: str = ""

    def to_json(self, place: Place) -> dict[str, Any]:
        """The change at its location, as the report file has it."""
        own = {**vars(self), "what": shortened(self.what)}
        return {"code": own.pop("code"), "what": own.pop("what"), **vars(place), **own}


@dataclass
class Changes:
    """All changes counted, a bounded number of them listed, every one written.

    Attributes:
        write: takes each change as a line of JSON.
        by_code: true number of changes.
        listed: the first changes of each code, with their locations.
        records_changed: records that are in the result, but not as they were.
        records_dropped, objects_dropped: what is not in it any more.
    """

    write: Callable[[str], object] | None = None
    by_code: Counter[str] = field(default_factory=Counter)
    listed: dict[str, list[tuple[Place, Change]]] = field(default_factory=lambda: defaultdict(list))
    records_changed: int = 0
    records_dropped: int = 0
    objects_dropped: int = 0

    def add(self, change: Change, place: Place) -> None:
        """Count, list and write a change."""
        self.by_code[change.code] += 1
        self.records_dropped += change.record_dropped
        self.objects_dropped += change.objects_dropped
        if len(self.listed[change.code]) < _MOST_LISTED:
            self.listed[change.code].append((place, change))
        if self.write is not None:
            self.write(json.dumps(change.to_json(place), ensure_ascii=True))


class EditedRecord:
    """One record.

    Attributes:
        problems: codes of the rules that find something in the dtypes and numbers of its features,
            each with the key; None where they were not applied.
        source_ids: gives numbers to images that have no source id, or none that may stay.
    """

    def __init__(
        self,
        example: Example,
        profile: Profile,
        label_map: LabelMap | None,
        problems: Sequence[tuple[str, str]] | None = None,
        source_ids: SourceIdNumbers | None = None,
    ) -> None:
        self.example = example
        self.profile = profile
        self.field_mapping = profile.field_mapping
        self.label_map = label_map
        self.problems = problems
        self.source_ids = source_ids or SourceIdNumbers(None, lambda: 0)
        self._changes: dict[str, bytes | None] = {}
        self._changed: dict[str, Example] = {}  # of each key what it is now
        # Before anything is changed.
        self.size_is_doubtful = any(True for _ in check_size(self.facts))

    def payload(self) -> bytes:
        """The record as it is now; what was not changed keeps its bytes."""
        return rewrite_example(self.example, self._changes)

    # Features

    def names(self) -> list[str]:
        """All keys, in the order of the record, new ones behind."""
        keys = dict.fromkeys([*self.example, *self._changes])
        return [key for key in keys if self._changes.get(key, b"") is not None]

    def _now(self, key: str) -> Example:
        return self._changed.get(key, self.example)

    def kind(self, key: str | None) -> Kind | None:
        """Which list a feature holds; None when it is absent or holds none."""
        return self._now(key).kind(key) if key else None

    def count(self, key: str | None) -> int:
        """How many values a feature has."""
        return self._now(key).value_count(key) if key else 0

    def ints(self, key: str | None) -> list[int]:
        """Whole numbers; none where the feature holds another kind."""
        return self._now(key).ints(key) if key and self.kind(key) is Kind.INT64 else []

    def floats(self, key: str | None) -> np.ndarray:
        """Numbers, float32 of shape (n,); none where the feature holds another kind."""
        if key and self.kind(key) is Kind.FLOAT:
            return self._now(key).floats(key)
        return np.zeros(0, "<f4")

    def values(self, key: str | None) -> Sequence[bytes]:
        """Texts, undecoded; none where the feature holds another kind."""
        return self._now(key).byte_strings(key) if key and self.kind(key) is Kind.BYTES else ()

    def text(self, key: str | None) -> str | None:
        """The only text of a feature; None where it has none, several, or no UTF-8."""
        values = self.values(key)
        return _decoded(values[0]) if len(values) == 1 else None

    def encoded(self, key: str) -> bytes | None:
        """A feature as it is written; None where there is no list."""
        kind = self.kind(key)
        values = self.floats(key) if kind is Kind.FLOAT else [*self.values(key), *self.ints(key)]
        return FEATURES[kind](values) if kind else None

    def set(self, key: str, feature: bytes | None) -> None:
        """Replace, add or (None) remove a feature."""
        self._changes[key] = feature
        features = {} if feature is None else {key: feature}
        self._changed[key] = Example.from_bytes(encode_example(features), self.example.shard)
        for known in ("objects", "boxes_are_sound", "facts", "texts", "labels"):
            vars(self).pop(known, None)

    def change(self, key: str, feature: bytes | None, what: str = "") -> Change:
        """Replace, add or remove a feature; return what became of it."""
        before = self._shown(key)
        self.set(key, feature)
        after = self._shown(key)
        return Change(what or f"{key}: {before!r} became {after!r}", key, before, after)

    def _shown(self, key: str) -> JsonValue:
        """The values of a feature as JSON, of a long one the beginning."""
        values: list[JsonValue] = list(self.ints(key))
        kind = self.kind(key)
        if kind is None:
            return None
        if kind is Kind.BYTES:
            values = [value[:_SHOWN].decode("utf-8", "replace") for value in self.values(key)]
        elif kind is Kind.FLOAT:
            values = [value if value == value else "nan" for value in self.floats(key).tolist()]
        return values[0] if len(values) == 1 else values[:_SHOWN]

    # The image

    @cached_property
    def image(self) -> bytes | None:
        """The encoded image; None where there is none, or several that differ."""
        values = self.values(self.field_mapping.encoded)
        is_one = bool(values and values[0]) and all(one == values[0] for one in values)
        return values[0] if is_one else None

    @cached_property
    def header(self) -> ImageHeader | None:
        """What the image's own header says, where it says a size."""
        image = self.image
        found = read_image_header(image, 0, len(image)) if image else None
        return found if found is not None and found.height and found.width else None

    @cached_property
    def facts(self) -> ImageFacts:
        """The image, and what the record says of it now."""
        height, width = self.ints(self.field_mapping.height), self.ints(self.field_mapping.width)
        return ImageFacts(
            size=-1 if self.header else 0,
            header=self.header,
            declared_format=self.text(self.field_mapping.format),
            declared_height=height[0] if len(height) == 1 else None,
            declared_width=width[0] if len(width) == 1 else None,
        )

    # The objects

    @cached_property
    def objects(self) -> Boxes | None:
        """The boxes; None where there are none, or the lists of objects do not go together."""
        rows = [self.floats(key) for key in self.field_mapping.box]
        count = len(rows[0]) if self.field_mapping.stated_boxes == "xyxy" and rows else 0
        if not count or any(len(row) != count for row in rows):
            return None
        texts, labels = self.values(self.field_mapping.class_text), self.labels
        if len(texts) not in (0, count) or len(labels) not in (0, count):
            return None
        height = self.header.height if self.header else self.facts.declared_height
        width = self.header.width if self.header else self.facts.declared_width
        return Boxes(
            corners=np.stack(rows, axis=1).astype(np.float64),
            counts=np.array([count]),
            height=np.array([height or np.nan], np.float64),
            width=np.array([width or np.nan], np.float64),
            classes=[list(texts) or labels],
        )

    @property
    def boxes(self) -> Boxes:
        """Those of :attr:`objects`, of a record that has some."""
        assert self.objects is not None
        return self.objects

    @property
    def has_classes(self) -> bool:
        """Whether classes of objects can be looked up in a label map."""
        return not (self.label_map is None or self.objects is None or self.texts is None)

    @cached_property
    def boxes_are_sound(self) -> bool:
        """Whether all boxes are numbers, within the image, and have an area."""
        corners = self.boxes.corners
        inside = (corners >= -ROUNDING) & (corners <= 1 + ROUNDING)
        return bool(inside.all() and (self.boxes.size > 0).all())

    def set_boxes(self, corners: np.ndarray) -> None:
        """Write other boxes, shape (n, 4), as many as there are."""
        for side, key in enumerate(self.field_mapping.box):
            self.set(key, float_feature(corners[:, side]))

    @cached_property
    def labels(self) -> Sequence[int]:
        """The class ids of the objects."""
        return self.ints(self.field_mapping.class_label)

    @cached_property
    def texts(self) -> Sequence[str] | None:
        """The class texts of the objects; None where one of them is no UTF-8."""
        found = [_decoded(value) for value in self.values(self.field_mapping.class_text)]
        return None if None in found else [text or "" for text in found]


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None
