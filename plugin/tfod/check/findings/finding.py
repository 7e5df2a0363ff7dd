"""A rule, what it finds, which the report lists, and how both write numbers of things."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

_UNITS = ("kB", "MB", "GB", "TB")
_PLURALS = {"box": "boxes", "class": "classes"}
FAMILIES = {
    "TFR": "framing: the file as a sequence of records",
    "EXA": "the record as a tf.train.Example",
    "BOX": "boxes",
    "LAB": "classes and the label map",
    "IMG": "the encoded image",
    "NAM": "names of images",
    "ZIP": "the archive around the shards",
    "SET": "shards as a set",
    "TSK": "the CVAT task it is meant for",
    "CFG": "the trainer's configuration",
}
"""The first three letters of a code, and what the rules of that family look at."""
JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"


class Severity(str, enum.Enum):
    """How bad a finding is; the values are the words of the report and the command line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """0 for info, 2 for error."""
        return _RANKS[self]


_RANKS = {Severity.INFO: 0, Severity.WARNING: 1, Severity.ERROR: 2}


class Place(NamedTuple):
    """Where a finding is.

    Attributes:
        shard: the shard, label map or archive entry, as the report names it.
        record: number of the record, from 0; None where no record is concerned.
        offset: byte at which the record starts in the uncompressed file; None likewise.
        item: the image's file name, or what else people know the record by.
    """

    shard: str = ""
    record: int | None = None
    offset: int | None = None
    item: str | None = None


class Finding(NamedTuple):
    """What a rule has found: an entry of the report.

    A rule says the message and the place, and of the rest what differs from case to case; what is
    in the rule's declaration is filled in where findings are kept
    (:class:`tfod.check.findings.findings.Findings`).

    Attributes:
        message: what is wrong with the numbers filled in, without place and full stop.
        feature: key of the feature that is to blame.
        value: the offending value, as JSON.
        fix: what to do, where this case needs another fix than the rule's own.
        of_case: the severity of this case, where it is another than the rule's.
        shard, record, offset, item: where, as :class:`Place` has it.
        code, severity: the rule's, which a rule need not say; in a report what the policy makes of
            the severity.
    """

    message: str
    feature: str | None = None
    value: JsonValue = None
    fix: str = ""
    of_case: Severity | None = None
    shard: str = ""
    record: int | None = None
    offset: int | None = None
    item: str | None = None
    code: str = ""
    severity: Severity = Severity.ERROR

    def at(self, place: Place) -> Finding:
        """The same at a place."""
        return self._replace(**place._asdict())

    def to_json(self) -> dict[str, JsonValue]:
        """The finding as the report's JSON has it."""
        found: dict[str, JsonValue] = {name: getattr(self, name) for name in _IN_JSON}
        return {**found, "severity": self.severity.value, "value": _finite(self.value)}


_IN_JSON = ("code", "severity", "message", "fix", *Place._fields[:3], "feature", "value", "item")


def _finite(value: JsonValue) -> JsonValue:
    """A value without what JSON cannot say: NaN and the infinities become strings."""
    if isinstance(value, np.generic):  # slips in unseen from arrays of boxes
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return value


class Rule(NamedTuple):
    """A rule and all that is said about it.

    Attributes:
        repair: what ``tfod repair`` does about what it finds; empty where it leaves that alone.
        once: whether it speaks once for each shard and feature key, however many records it finds.
        of_dataset: whether it looks at a data set, and not at each batch of records.
        check: finds what is wrong with a :class:`~tfod.check.records.batch.Batch`, or with a
            :class:`~tfod.check.records.result.DatasetResult`.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str
    check: Callable[[Any], Iterable[Finding]]
    repair: str = ""
    once: bool = False
    of_dataset: bool = False

    @property
    def family(self) -> str:
        """The family's three letters."""
        return self.code[:3]


def plural(count: int, noun: str) -> str:
    """``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"


def size(count: int | None) -> str:
    """Bytes for people: ``1.2 MB``; nothing for None."""
    if count is None or count < 1000:
        return "" if count is None else f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def first_of(names: Sequence[str], most: int, count: int | None = None) -> str:
    """``a, b and 3 more``: the first names, and how many more there are.

    Args:
        names: all of them, or the first.
        most: how many are named.
        count: of all; None where ``names`` are all.
    """
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
