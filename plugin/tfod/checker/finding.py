"""Findings: rules, their findings, how many are kept, and formatting of counts and names."""

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

from tfod.errors import truncate

_MAX_TEXT_LENGTH = 400
_MAX_REPORTED_ONCE = 1 << 14
_UNITS = ("kB", "MB", "GB", "TB")
_PLURALS = {"box": "boxes", "class": "classes"}
FAMILIES = {
    "TFR": "the framing of records in the file",
    "EXA": "the record as a tf.train.Example",
    "BOX": "boxes",
    "LAB": "classes and the label map",
    "IMG": "the encoded image",
    "NAM": "image names",
    "ZIP": "the archive around the shards",
    "SET": "shards as a set",
    "TSK": "the CVAT task for which the shards are intended",
    "CFG": "the trainer's configuration",
}
"""The first three letters of a code, and the subject of the rules of that family."""
JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | dict[str, JsonValue] | None"


class Severity(str, enum.Enum):
    """The severity of a finding. The values are used in reports and on the command line."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    rank: int
    """0 for info, 2 for error."""


Levels: TypeAlias = "Mapping[str, Severity | None]"
"""Severity of each rule (``IMG007``) and case (``IMG007:turned``); None for those that are off."""


for _rank, _severity in enumerate(Severity):
    _severity.rank = _rank


class Location(NamedTuple):
    """The location of a finding.

    Attributes:
        shard: name of the shard, label map or archive entry in the report.
        record: number of the record, from 0; None if the finding is not about a record.
        offset: byte at which the record starts in the uncompressed file; None without a record.
        item: the image's file name, or another name of the record.
    """

    shard: str = ""
    record: int | None = None
    offset: int | None = None
    item: str | None = None


class Finding(NamedTuple):
    """A problem found by a rule. :class:`Findings` completes it from the rule's declaration.

    Attributes:
        message: description of the problem with its numbers, without location and full stop.
        feature: key of the feature that causes the problem.
        value: the offending value, as JSON.
        fix: how to fix the problem, if it differs from the fix of the rule.
        case: name of the case, if the rule has several.
        shard, record, offset, item: the location, as in :class:`Location`.
        code, severity: code of the rule, and severity by the levels of the check; filled in.
        covers: other shards, or a label map, to which the finding applies.
        object_class: class of the box that the finding is about.
        cause: code of the rule whose finding explains this one; filled in by the report.
        template: the fix with placeholders, which the report fills in.
        is_repairable: whether the repair of the rule, if it has one, applies to the finding.
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
    covers: Sequence[str] = ()
    object_class: str = ""
    cause: str = ""
    template: str = ""
    is_repairable: bool = True

    def at(self, location: Location) -> Finding:
        """Return a copy of the finding with this location."""
        return self._replace(**location._asdict())

    def to_json(self) -> dict[str, JsonValue]:
        """Return the finding as a JSON object of the report."""
        document: dict[str, JsonValue] = {name: getattr(self, name) for name in _JSON_FIELDS}
        return {**document, "severity": self.severity.value, "value": _to_finite(self.value)}


_JSON_FIELDS = (
    *("code", "severity", "message", "fix"),
    *Location._fields[:3],
    *("feature", "value", "item"),
)


def _to_finite(value: JsonValue) -> JsonValue:
    """Replace NaN and infinities, which JSON does not support, with strings."""
    if isinstance(value, np.generic):  # for example from arrays of boxes
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [_to_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_finite(item) for key, item in value.items()}
    return value


class Rule(NamedTuple):
    """A rule and its documentation.

    Attributes:
        cases: severity of each case that levels can name. A finding without a case has the
            severity of the rule.
        explains: codes of rules that only find symptoms if this one has a finding in the same
            record or shard, or in a shard that the finding covers.
        on_page: instead of a fix with commands or options, for users of the service; may be empty.
        repair: how ``tfod repair`` repairs the problem; empty if it does not.
        once: whether only one finding is kept for each shard and feature key.
        of_dataset: whether the rule checks a whole dataset instead of batches of records.
        check: function that yields the findings of a :class:`~tfod.checker.analysis.batch.Batch`,
            or of a :class:`~tfod.checker.analysis.result.DatasetResult`.
    """

    code: str
    severity: Severity
    title: str
    why: str
    fix: str
    source: str
    check: Callable[[Any], Iterable[Finding]]
    cases: Mapping[str, Severity] = MappingProxyType({})
    explains: frozenset[str] = frozenset()
    on_page: str = ""
    repair: str = ""
    once: bool = False
    of_dataset: bool = False

    @property
    def family(self) -> str:
        """The three letters of the family."""
        return self.code[:3]

    def name(self, case: str) -> str:
        """Return the name of a case in levels: ``IMG007``, ``IMG007:turned``."""
        return f"{self.code}:{case}" if case else self.code


@dataclass
class Findings:
    """Findings, in the order of the data.

    Attributes:
        max_listed: maximum number of findings to list, in total and per rule.
        levels: severity of each rule and case, None for those that are off.
        listed: the first findings of each rule, by code.
        counts: total number of findings, by code and shard.
        names: names of the rules and cases that have findings, including those that are off.
        worst: the highest severity of each rule with findings, by code.
    """

    max_listed: int
    levels: Levels = field(default_factory=dict)
    listed: dict[str, list[Finding]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    names: set[str] = field(default_factory=set)
    worst: dict[str, Severity] = field(default_factory=dict)
    _reported: set[tuple[str, str, str | None]] = field(default_factory=set, repr=False)

    def add(self, rule: Rule, findings: Iterable[Finding]) -> None:
        """Add the findings of a rule. If it reports once, only the first per shard and feature."""
        for finding in findings:
            if rule.once:
                if not finding.message:
                    continue  # only the first finding of such a rule counts, and it has a message
                key = (rule.code, finding.shard, finding.feature)
                if key in self._reported or len(self._reported) >= _MAX_REPORTED_ONCE:
                    continue
                self._reported.add(key)
            name = rule.name(finding.case)
            self.names.add(name)
            severity = self.levels[name]
            if severity is None:
                continue
            self.counts[rule.code][finding.shard] += 1
            if self.worst.get(rule.code) is not severity:
                self._update_worst(rule.code, severity)
            listed = self.listed.setdefault(rule.code, [])
            if len(listed) < self.max_listed:
                listed.append(_fill_in(finding, rule, severity))

    def merge(self, following: Findings) -> None:
        """Add the findings of the next part of the data."""
        for code, findings in following.listed.items():
            listed = self.listed.setdefault(code, [])
            listed.extend(findings[: self.max_listed - len(listed)])
        for code, counts in following.counts.items():
            self.counts[code].update(counts)
        self.names |= following.names
        for code, severity in following.worst.items():
            self._update_worst(code, severity)

    def _update_worst(self, code: str, severity: Severity) -> None:
        worst = self.worst.get(code)
        if worst is None or worst.rank < severity.rank:
            self.worst[code] = severity

    def all(self) -> Iterator[Finding]:
        """Return an iterator over the listed findings."""
        return itertools.chain.from_iterable(self.listed.values())

    def keep(self, findings: Iterable[Finding]) -> None:
        """Remove all findings except for these listed ones, which are in the same order."""
        self.listed, self.worst = {}, {}
        self.counts.clear()
        for finding in findings:
            self.listed.setdefault(finding.code, []).append(finding)
            self.counts[finding.code][finding.shard] += 1
            self._update_worst(finding.code, finding.severity)

    @property
    def total(self) -> int:
        """The total number of findings."""
        return sum(counts.total() for counts in self.counts.values())

    def are_below(self, severity: Severity) -> bool:
        """Return whether all findings are less severe."""
        return all(worst.rank < severity.rank for worst in self.worst.values())


def select_listed(findings: Findings, shards: Sequence[str]) -> list[Finding]:
    """Select the findings to list, ordered by shard, record and code.

    Each code gets an equal share of the list. Codes with fewer findings leave the rest of their
    share to the others, first to the most severe ones.
    """
    codes = sorted(findings.listed, key=lambda code: (-findings.worst[code].rank, code))
    remaining, remaining_codes = findings.max_listed, len(codes)
    selected: list[Finding] = []
    # In this order, codes with few findings come first and leave more to the others.
    needs = sorted((len(findings.listed[code]), index) for index, code in enumerate(codes))
    for need, index in needs:
        fair, extra = divmod(remaining, remaining_codes)
        share = min(need, fair + (1 if index < extra else 0))
        selected += findings.listed[codes[index]][:share]
        remaining -= share
        remaining_codes -= 1
    indices = {name: index for index, name in enumerate(shards)}

    def key(finding: Finding) -> tuple[int, int, str]:
        index = indices.get(finding.shard, -1)
        return index, -1 if finding.record is None else finding.record, finding.code

    return sorted(selected, key=key)


def _fill_in(finding: Finding, rule: Rule, severity: Severity) -> Finding:
    """Add the fields that the rule declares, and truncate texts, which can be megabytes long."""
    value, feature = finding.value, finding.feature
    return finding._replace(
        code=rule.code,
        severity=severity,
        message=shorten(finding.message),
        fix=finding.fix or rule.fix,
        feature=truncate(feature) if feature else feature,
        value=truncate(value) if isinstance(value, str) else value,
        item=truncate(finding.item) if finding.item else None,
    )


def shorten(text: str, suffix: str = "") -> str:
    """Truncate a message to 400 characters and a suffix: a name in it can be megabytes long."""
    limit = _MAX_TEXT_LENGTH
    return (text if len(text) <= limit else text[: limit - 1] + "…") + suffix


def plural(count: int, noun: str) -> str:
    """Format a count with its noun: ``1 shard``, ``1,204 shards``."""
    return f"{count:,} {noun if count == 1 else _PLURALS.get(noun, noun + 's')}"


def size(count: int | None) -> str:
    """Format a number of bytes: ``1.2 MB``; empty for None."""
    if count is None or count < 1000:
        return "" if count is None else f"{count} B"
    power = min((len(str(count)) - 1) // 3, len(_UNITS))
    return f"{count / 1000**power:.1f} {_UNITS[power - 1]}"


def join_names(names: Sequence[str], limit: int, count: int | None = None) -> str:
    """Join the first names: ``a, b and 3 more``; ``count`` is the total if not all are given."""
    shown = [*map(truncate, names[:limit])]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")
