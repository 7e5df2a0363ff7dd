"""The findings of a shard or a data set: every one is counted, a bounded number is kept."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tfod.check.findings.finding import Finding, Rule, Severity

_LONGEST_TEXT = 400
_MOST_SAID_ONCE = 1 << 14


@dataclass
class Findings:
    """Findings, in the order of the data.

    Attributes:
        most: how many may be listed in all, and so of each rule.
        listed: the first findings of each rule, by code.
        counts: how many there really are, by code and shard.
        worst: of each code that fired the severity, of its worst case.
    """

    most: int
    listed: dict[str, list[Finding]] = field(default_factory=dict)
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    worst: dict[str, Severity] = field(default_factory=dict)
    _said: set[tuple[str, str, str | None]] = field(default_factory=set, repr=False)

    def add(self, rule: Rule, found: Iterable[Finding]) -> None:
        """Keep what a rule has found; of one that speaks once, the first of a shard and feature."""
        for one in found:
            if rule.once:
                if not one.message:
                    continue  # it is there to be counted, which is done
                key = (rule.code, one.shard, one.feature)
                if key in self._said or len(self._said) >= _MOST_SAID_ONCE:
                    continue
                self._said.add(key)
            severity = one.of_case or rule.severity
            self.counts[rule.code][one.shard] += 1
            self._keep_worst(rule.code, severity)
            listed = self.listed.setdefault(rule.code, [])
            if len(listed) < self.most:
                listed.append(_filled_in(one, rule, severity))

    def room(self, code: str) -> int:
        """How many more findings of a rule would be listed."""
        return self.most - len(self.listed.get(code, ()))

    def merge(self, following: Findings) -> None:
        """Add the findings of what comes next in the data."""
        for code, findings in following.listed.items():
            mine = self.listed.setdefault(code, [])
            mine.extend(findings[: self.most - len(mine)])
        for code, counts in following.counts.items():
            self.counts[code].update(counts)
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

    def by_severity(self) -> dict[Severity, int]:
        """True number of findings of each severity; of a rule all are as severe as the worst."""
        totals = dict.fromkeys(Severity, 0)
        for code, counts in self.counts.items():
            if counts:
                totals[self.worst[code]] += counts.total()
        return totals

    def by_code(self) -> dict[str, int]:
        """True number of findings of each code."""
        return {code: counts.total() for code, counts in sorted(self.counts.items())}

    def by_shard(self) -> dict[str, dict[str, int]]:
        """True number of findings of each code, by shard."""
        found: dict[str, dict[str, int]] = {}
        for code, counts in sorted(self.counts.items()):
            for shard, count in counts.items():
                found.setdefault(shard, {})[code] = count
        return found


def choose(findings: Findings, shards: Sequence[str]) -> list[Finding]:
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
        of_case=None,
        message=shortened(finding.message),
        fix=finding.fix or rule.fix,
        feature=shortened(feature) if feature else feature,
        value=shortened(value) if isinstance(value, str) else value,
        item=shortened(finding.item) if finding.item else None,
    )


def shortened(text: str) -> str:
    """Texts from shards may be megabytes long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return text[: _LONGEST_TEXT - 1] + "…"
