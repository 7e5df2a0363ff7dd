"""Collects findings: every one is counted, a bounded number of each code is kept."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tfod.check.findings.finding import Finding, Fingerprint, Place, Problem, Severity
from tfod.check.findings.fingerprints import KnownFingerprints, Recognised, fingerprint_of
from tfod.check.profiles.policy import Policy
from tfod.check.rules.registry import Rule, problems_of

_NOWHERE = Place()
_LONGEST_TEXT = 400
_MOST_ONCE = 1 << 14


@dataclass
class Findings:
    """Findings of a part of the data; parts are merged in the order of the data.

    Attributes:
        listed: findings of each code, at most as many as may be listed in all.
        counts: how many there really are, by code and shard.
        severities: of each code that fired, the worst.
        once: findings that are said once for each code, shard and feature, not counted yet.
        recognised: those that a baseline may have. They are counted, and not listed.
    """

    most: int
    listed: dict[str, list[Finding]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    severities: dict[str, Severity] = field(default_factory=dict)
    once: dict[tuple[str, str, str | None], Finding] = field(default_factory=dict)
    recognised: dict[Fingerprint, Recognised] = field(default_factory=dict)

    def merge(self, other: Findings) -> None:
        """Add the findings of what comes next in the data."""
        for code, findings in other.listed.items():
            mine = self.listed[code]
            mine.extend(findings[: self.most - len(mine)])
        for code, counts in other.counts.items():
            self.counts[code].update(counts)
        for code, severity in other.severities.items():
            self._keep_worst(code, severity)
        for key, finding in other.once.items():
            if len(self.once) < _MOST_ONCE:
                self.once.setdefault(key, finding)
        for fingerprint, recognised in other.recognised.items():
            self.recognised.setdefault(fingerprint, Recognised()).add(recognised, self.most)

    def keep(self, finding: Finding) -> None:
        """Count a finding, and list it if there is room."""
        self.count(finding.code, finding.severity, finding.shard, 1)
        if finding.fingerprint is not None:
            known = self.recognised.setdefault(finding.fingerprint, Recognised())
            known.add_one(finding, self.most)
        elif self.room(finding.code) > 0:
            self.listed[finding.code].append(finding)

    def count(self, code: str, severity: Severity, shard: str, number: int) -> None:
        """Count findings that are not listed."""
        self.counts[code][shard] += number
        self._keep_worst(code, severity)

    def _keep_worst(self, code: str, severity: Severity) -> None:
        known = self.severities.get(code)
        if known is None or known.rank < severity.rank:
            self.severities[code] = severity

    def room(self, code: str) -> int:
        """How many more findings of this code would be listed."""
        return self.most - len(self.listed.get(code, ()))

    def close(self) -> None:
        """Count what was to be said once; call when all parts are merged."""
        for finding in self.once.values():
            self.keep(finding)
        self.once.clear()

    def tidy(self, code: str) -> None:
        """After findings were taken out: the severities of a code are those of what is left."""
        left = self.counts[code] = +self.counts[code]
        listed = self.listed[code]
        if not left:
            del self.counts[code], self.listed[code]
            self.severities.pop(code, None)
        elif len(listed) == left.total():  # which is usual
            self.severities[code] = max((one.severity for one in listed), key=lambda one: one.rank)

    @property
    def has_defects(self) -> bool:
        """Whether there are any but infos."""
        said = (*self.severities.values(), *(one.severity for one in self.once.values()))
        return any(one is not Severity.INFO for one in said)

    def by_code(self) -> dict[str, int]:
        """True number of findings of each code."""
        return {code: sum(counts.values()) for code, counts in sorted(self.counts.items())}

    def by_shard(self) -> dict[str, dict[str, int]]:
        """True number of findings of each code, by shard."""
        found: dict[str, dict[str, int]] = {}
        for code, counts in sorted(self.counts.items()):
            for shard, count in counts.items():
                found.setdefault(shard, {})[code] = count
        return found

    def by_severity(self) -> dict[Severity, int]:
        """True number of findings of each severity."""
        totals = dict.fromkeys(Severity, 0)
        for code, counts in self.counts.items():
            totals[self.severities[code]] += counts.total()
        return totals

    def choose(self) -> dict[str, list[Finding]]:
        """The findings to list: no code hides another, the severe ones have precedence.

        Each code gets an equal share of the places; what a code does not need, others get.
        """
        codes = sorted(self.listed, key=lambda code: (-self.severities[code].rank, code))
        left, waiting = self.most, len(codes)
        shares: dict[str, int] = {}
        # Filling the smallest needs first gives the rest to those that need more.
        for need, place in sorted((len(self.listed[code]), at) for at, code in enumerate(codes)):
            fair, extra = divmod(left, waiting)
            shares[codes[place]] = min(need, fair + (1 if place < extra else 0))
            left -= shares[codes[place]]
            waiting -= 1
        return {code: self.listed[code][: shares[code]] for code in codes}

    def in_order(self, shards: Sequence[str]) -> list[Finding]:
        """The findings to list, in the order of the shards, their records and the codes."""
        places = {name: place for place, name in enumerate(shards)}

        def key(finding: Finding) -> tuple[int, int, str]:
            place = places.get(finding.shard, -1)
            return place, -1 if finding.record is None else finding.record, finding.code

        chosen = [one for findings in self.choose().values() for one in findings]
        return sorted(chosen, key=key)


class Collector:
    """Turns what rules say into findings, under a policy of severities.

    With the fingerprints of a baseline every finding is put into words, to be recognised.
    """

    def __init__(self, policy: Policy, most: int, known: KnownFingerprints | None = None) -> None:
        self.policy = policy
        self._known = known
        self.findings = Findings(most)
        self._severities: dict[tuple[str, Severity | None], Severity | None] = {}

    def check(self, subject: object, place: Place = _NOWHERE) -> None:
        """Let every rule for this kind of subject look at it; keep what they say."""
        self.add_all(problems_of(subject), place)

    def add_all(self, said: Iterable[tuple[Rule, Problem]], place: Place = _NOWHERE) -> None:
        """Keep what rules have said about one place."""
        for rule, problem in said:
            self.add(rule, problem, place)

    def count(self, rule: Rule, shard: str, number: int) -> None:
        """Count findings of a rule that are not listed."""
        severity = self._severity(rule)
        if severity is not None and number:
            severity = self.findings.severities.get(rule.code, severity)
            self.findings.count(rule.code, severity, shard, number)

    def room(self, rule: Rule, wanted: int) -> int:
        """How many of so many further findings of a rule have to be put into words."""
        return wanted if self._known is not None else min(wanted, self.findings.room(rule.code))

    def applies(self, rule: Rule, problem: Problem) -> bool:
        """Whether the rule is on for this problem."""
        return self._severity(rule, problem.severity) is not None

    def add(self, rule: Rule, problem: Problem, place: Place = _NOWHERE) -> None:
        """Keep one problem. The problem's own place is stronger."""
        place = problem.place or place
        severity = self._severity(rule, problem.severity)
        if severity is None:
            return
        if not problem.once and not self.room(rule, 1):
            self.findings.count(rule.code, severity, place.shard, 1)  # of a million findings most
            return
        finding = Finding(
            code=rule.code,
            severity=severity,
            message=shortened(problem.message),
            fix=problem.fix or rule.fix,
            shard=place.shard,
            record=place.record,
            offset=place.offset,
            feature=shortened(problem.feature) if problem.feature else problem.feature,
            value=shortened(problem.value) if isinstance(problem.value, str) else problem.value,
            item=shortened(place.item) if place.item else None,
            amount=0 if problem.once and place.record is not None else problem.amount,
        )
        if self._known is not None:
            fingerprint = fingerprint_of(finding, rule.title, problem.identity)
            if fingerprint in self._known:
                finding = replace(finding, fingerprint=fingerprint)
        if not problem.once:
            self.findings.keep(finding)
        elif len(self.findings.once) < _MOST_ONCE:
            key = (rule.code, place.shard, problem.feature)
            self.findings.once.setdefault(key, finding)

    def _severity(self, rule: Rule, of_case: Severity | None = None) -> Severity | None:
        key = rule.code, of_case
        if key not in self._severities:
            self._severities[key] = self.policy.severity(
                replace(rule, severity=of_case) if of_case else rule
            )
        return self._severities[key]


def shortened(text: str) -> str:
    """Texts from shards may be megabytes long."""
    if len(text) <= _LONGEST_TEXT:
        return text
    return text[: _LONGEST_TEXT - 1] + "…"
