"""A rule, what it finds, how many of that are kept, and how numbers of things are written."""

from __future__ import annotations

import enum
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

_LONGEST_TEXT, _LONGEST_NAME = 400, 80
_MOST_SAID_ONCE = 1 << 14
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

    rank: int
    """0 for info, 2 for error."""


Levels: TypeAlias = "Mapping[str, Severity | None]"
"""Severity of each rule (``IMG007``) and case (``IMG007:turned``); None for those that are off."""


for _rank, _severity in enumerate(Severity):
    _severity.rank = _rank


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
    (:class:`Findings`).

    Attributes:
        message: what is wrong with the numbers filled in, without place and full stop.
        feature: key of the feature that is to blame.
        value: the offending value, as JSON.
        fix: what to do, where this case needs another fix than the rule's own.
        case: case of the rule that this is, if it has several.
        shard, record, offset, item: where, as :class:`Place` has it.
        code, severity: code of the rule, and severity by the levels of the check; filled in.
    """

    message: str
    feature: str | None = None
    value: JsonValue = None
    fix: str = ""
    case: str = ""
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
        cases: severity of each case that levels can name; a finding without a case is none of them.
        repair: what ``tfod repair`` does about what it finds; empty where it leaves that alone.
        once: whether it speaks once for each shard and feature key, however many records it finds.
        of_dataset: whether it looks at a data set, and not at each batch of records.
        check: finds what is wrong with a :class:`~tfod.checker.analysis.batch.Batch`, or with a
            :class:`~tfod.checker.analysis.result.DatasetResult`.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str
    check: Callable[[Any], Iterable[Finding]]
    cases: Mapping[str, Severity] = MappingProxyType({})
    repair: str = ""
    once: bool = False
    of_dataset: bool = False

    @property
    def family(self) -> str:
        """The family's three letters."""
        return self.code[:3]

    def name(self, case: str) -> str:
        """Return what levels call a case: ``IMG007``, ``IMG007:turned``."""
        return f"{self.code}:{case}" if case else self.code


@dataclass
class Findings:
    """Findings, in the order of the data.

    Attributes:
        most: how many may be listed in all, and so of each rule.
        levels: severity of each rule and case, None for those that are off.
        listed: the first findings of each rule, by code.
        counts: how many there really are, by code and shard.
        names: rules and cases that fired, also those that are off.
        worst: of each code that fired the severity, of its worst case.
    """

    most: int
    levels: Levels = field(default_factory=dict)
    listed: dict[str, list[Finding]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    names: set[str] = field(default_factory=set)
    worst: dict[str, Severity] = field(default_factory=dict)
    _said: set[tuple[str, str, str | None]] = field(default_factory=set, repr=False)

    def add(self, rule: Rule, found: Iterable[Finding]) -> None:
        """Keep what a rule has found; of one that speaks once, the first of a shard and feature."""
        for one in found:
            if rule.once:
                if not one.message:
                    continue  # of such a rule only the first counts, which has a message
                key = (rule.code, one.shard, one.feature)
                if key in self._said or len(self._said) >= _MOST_SAID_ONCE:
                    continue
                self._said.add(key)
            name = rule.name(one.case)
            self.names.add(name)
            severity = self.levels[name]
            if severity is None:
                continue
            self.counts[rule.code][one.shard] += 1
            if self.worst.get(rule.code) is not severity:
                self._keep_worst(rule.code, severity)
            listed = self.listed.setdefault(rule.code, [])
            if len(listed) < self.most:
                listed.append(_filled_in(one, rule, severity))

    def merge(self, following: Findings) -> None:
        """Add the findings of what comes next in the data."""
        for code, findings in following.listed.items():
            mine = self.listed.setdefault(code, [])
            mine.extend(findings[: self.most - len(mine)])
        for code, counts in following.counts.items():
            self.counts[code].update(counts)
        self.names |= following.names
        for code, severity in following.worst.items():
            self._keep_worst(code, severity)

    def _keep_worst(self, code: str, severity: Severity) -> None:
        known = self.worst.get(code)
        if known is None or known.rank < severity.rank:
            self.worst[code] = severity

    def all(self) -> Iterator[Finding]:
        """Those that are listed."""
        return itertools.chain.from_iterable(self.listed.values())

    def keep(self, some: Iterable[Finding]) -> None:
        """Forget all but some of those that are listed, in the same order."""
        self.listed, self.worst = {}, {}
        self.counts.clear()
        for one in some:
            self.listed.setdefault(one.code, []).append(one)
            self.counts[one.code][one.shard] += 1
            self._keep_worst(one.code, one.severity)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(counts.total() for counts in self.counts.values())

    def are_below(self, severity: Severity) -> bool:
        """Whether all are less severe."""
        return all(one.rank < severity.rank for one in self.worst.values())


def select_listed(findings: Findings, shards: Sequence[str]) -> list[Finding]:
    """The findings to list: no code hides another, the severe ones have precedence.

    Each code gets an equal share of the places; what a code does not need, others get.

    Args:
        findings: all of them.
        shards: in whose order, then in that of records and codes, they are listed.
    """
    codes = sorted(findings.listed, key=lambda code: (-findings.worst[code].rank, code))
    left, waiting = findings.most, len(codes)
    chosen: list[Finding] = []
    # Filling the smallest needs first gives the rest to those that need more.
    for need, place in sorted((len(findings.listed[code]), at) for at, code in enumerate(codes)):
        fair, extra = divmod(left, waiting)
        share = min(need, fair + (1 if place < extra else 0))
        chosen += findings.listed[codes[place]][:share]
        left -= share
        waiting -= 1
    places = {name: place for place, name in enumerate(shards)}

    def key(finding: Finding) -> tuple[int, int, str]:
        place = places.get(finding.shard, -1)
        return place, -1 if finding.record is None else finding.record, finding.code

    return sorted(chosen, key=key)


def _filled_in(finding: Finding, rule: Rule, severity: Severity) -> Finding:
    """A finding with what its rule says, and without the megabytes that texts may have."""
    value, feature = finding.value, finding.feature
    return finding._replace(
        code=rule.code,
        severity=severity,
        message=shortened(finding.message),
        fix=finding.fix or rule.fix,
        feature=_short_name(feature) if feature else feature,
        value=_short_name(value) if isinstance(value, str) else value,
        item=_short_name(finding.item) if finding.item else None,
    )


def shortened(text: str) -> str:
    """Return a message with at most 400 letters: a name in it may be megabytes long."""
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _short_name(name: str) -> str:
    """Return a name from data with at most 80 letters; an escaped one counts as four."""
    if len(name) <= _LONGEST_NAME and (name.isprintable() or len(repr(name)) <= _LONGEST_NAME + 2):
        return name
    start = name[: _LONGEST_NAME - 1]
    return (start if start.isprintable() else repr(start)[1:_LONGEST_NAME]) + "…"


def plural(count: int, noun: str) -> str:
    """``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"


def size(count: int | None) -> str:
    """Bytes for people: ``1.2 MB``; nothing for None."""
    if count is None or count < 1000:
        return "" if count is None else f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def join_names(names: Sequence[str], most: int, count: int | None = None) -> str:
    """``a, b and 3 more``: the first names, and how many more there are.

    Args:
        names: all of them, or the first.
        most: how many are named.
        count: of all; None where ``names`` are all.
    """
    shown = [*map(_short_name, names[:most])]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
