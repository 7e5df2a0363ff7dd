"""The findings of a report by rule, severest first, with the true totals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.report import Report
from tfod.check.rules.registry import FAMILIES, Rule, all_rules

_VARYING = re.compile(r"0x[0-9a-fA-F]+|'[^']*'|\"[^\"]*\"|-?\d[\d.,]*(?:e[+-]?\d+)?")
"""Numbers and quoted texts in a message."""


@dataclass(frozen=True)
class Group:
    """All that is known of one rule's findings.

    Attributes:
        code, severity, title, why, source: the rule's; empty texts where the rule is unknown.
        fix: what all or most of the findings ask for.
        total: how many there are, listed or not.
        findings: those that are listed, in the report's order.
        by_shard: how many there are in each file that has any.
    """

    code: str
    severity: Severity
    title: str
    why: str
    source: str
    fix: str
    total: int
    findings: Sequence[Finding]
    by_shard: Mapping[str, int]

    @property
    def heading(self) -> str:
        """Code, severity and title in a line, and how many there are: ``(212 in 6 shards)``."""
        title = f": {self.title}" if self.title else ""
        extent = f" ({self._in_places(self.total, len(self.by_shard))})" if self.total > 1 else ""
        return f"{self.code} {self.severity.value}{title}{extent}"

    def examples(self, most: int) -> list[Finding]:
        """Listed findings that differ most in what they say, in the report's order."""
        shapes: dict[tuple[str, str], int] = {}
        for number, finding in enumerate(self.findings):
            shapes.setdefault((finding.fix, _VARYING.sub("#", finding.message)), number)
        chosen = list(shapes.values())[:most]
        others = (number for number in range(len(self.findings)) if number not in chosen)
        chosen += [number for number, _ in zip(others, range(most - len(chosen)), strict=False)]
        return [self.findings[number] for number in sorted(chosen)]

    def rest(self, shown: Sequence[Finding]) -> str:
        """``and 211 more in 6 shards``; empty when all are shown."""
        left = self.total - len(shown)
        if left <= 0:
            return ""
        # A shard whose only finding is shown has no more.
        names = [one.shard for one in shown]
        places = sum(count > names.count(shard) for shard, count in self.by_shard.items())
        return f"and {self._in_places(left, places, ' more')}"

    def _in_places(self, count: int, places: int, what: str = "") -> str:
        # Findings without a record may be about label maps or entries of an archive.
        in_records = any(one.record is not None for one in self.findings)
        noun = "shard" if in_records or not self.findings else "file"
        return f"{count:,}{what} in {plural(places, noun)}"


def group_findings(report: Report) -> list[Group]:
    """The groups of a report."""
    known = all_rules()
    listed: dict[str, list[Finding]] = {code: [] for code in report.counts.by_code}
    for finding in report.findings:
        listed.setdefault(finding.code, []).append(finding)
    shards: dict[str, dict[str, int]] = {}
    for shard, by_code in report.counts.by_shard.items():
        for code, count in by_code.items():
            shards.setdefault(code, {})[shard] = count
    order = {family: number for number, family in enumerate(FAMILIES)}
    groups = []
    for code, findings in listed.items():
        rule = known.get(code) or Rule(code, Severity.ERROR, "", "", "", "", object, iter)
        usual = findings[0].severity if findings else rule.severity
        fixes = list(dict.fromkeys(one.fix for one in findings))
        is_usual = code in known and (rule.fix in fixes or len(fixes) != 1)
        groups.append(
            Group(
                code=code,
                severity=report.severities.get(code) or usual,
                title=rule.title,
                why=rule.why,
                source=rule.source,
                fix=rule.fix if is_usual else next(iter(fixes), ""),
                total=report.counts.by_code.get(code, 0),
                findings=findings,
                by_shard=shards.get(code, {}),
            )
        )
    return sorted(
        groups,
        key=lambda one: (-one.severity.rank, order.get(one.code[:3], len(order)), one.code),
    )
