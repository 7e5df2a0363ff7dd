"""What a repair has changed: each change, and all of them counted."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tfod.check.findings.collector import shortened
from tfod.check.findings.finding import JsonValue, Place

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
