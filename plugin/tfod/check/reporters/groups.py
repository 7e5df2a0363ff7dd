"""The findings of a report by rule, severest first, with the true totals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.check.findings.finding import Finding, Severity, plural
from tfod.check.findings.report import Report
from tfod.check.findings.rule import FAMILIES
from tfod.check.rules.registry import all_rules


@dataclass(frozen=True)
class Group:
    """All that is known of one rule's findings.

    Attributes:
        code, severity, title, why, source: the rule's; empty texts where the rule is unknown.
        fix: the rule's, or the one that all listed findings ask for in place of it.
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
        """So many listed findings, of each fix, feature and shard one before the second."""
        first: dict[tuple[str, str | None, str], int] = {}
        for number, one in enumerate(self.findings):
            first.setdefault((one.fix, one.feature, one.shard), number)
        chosen = dict.fromkeys((*first.values(), *range(len(self.findings))))
        return [self.findings[one] for one in sorted(list(chosen)[:most])]

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
    listed: dict[str, list[Finding]] = {code: [] for code in report.counts.by_code}
    for finding in report.findings:
        listed.setdefault(finding.code, []).append(finding)
    groups = [_group(report, code, findings) for code, findings in listed.items()]
    order = {family: number for number, family in enumerate(FAMILIES)}
    return sorted(
        groups,
        key=lambda one: (-one.severity.rank, order.get(one.code[:3], len(order)), one.code),
    )


def _group(report: Report, code: str, findings: Sequence[Finding]) -> Group:
    rule = all_rules().get(code)
    fixes = {one.fix for one in findings}
    shards = report.counts.by_shard.items()
    return Group(
        code=code,
        severity=report.severities[code],
        title=rule.title if rule else "",
        why=rule.why if rule else "",
        source=rule.source if rule else "",
        fix=fixes.pop() if len(fixes) == 1 else rule.fix if rule else "",
        total=report.counts.by_code.get(code, 0),
        findings=findings,
        by_shard={shard: by_code[code] for shard, by_code in shards if code in by_code},
    )
