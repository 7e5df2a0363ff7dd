"""The findings of a report, grouped by rule and cause, in the order in which reports list them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfod.checker.advice import (
    Causes,
    fill_in,
    fit_to_page,
    name_tool,
    split_command,
    strip_command,
)
from tfod.checker.finding import FAMILIES, Finding, Rule, Severity
from tfod.checker.report import Report
from tfod.checker.rules.registry import all_rules


class Group(NamedTuple):
    """The findings of a rule.

    Attributes:
        severity: the severity of the rule in this check.
        fix: the fix of all listed findings if they have the same one, else the fix of the rule,
            with its first image.
        total: number of findings, including those that are not listed.
        cause: code of the rule that explains the findings; empty if none does.
        findings: the listed findings, starting with one of each fix, feature and shard. Their fix
            is empty if it is that of the group.
    """

    rule: Rule
    severity: Severity
    fix: str
    total: int = 0
    files: int = 0
    findings: Sequence[Finding] = ()
    cause: str = ""

    @property
    def anchor(self) -> str:
        """The name of the group in a page: ``BOX013``, ``BOX006-BOX013`` if that explains it."""
        return f"{self.code}-{self.cause}" if self.cause else self.code

    @property
    def code(self) -> str:
        """The code of the rule."""
        return self.rule.code

    @property
    def is_repairable(self) -> bool:
        """Whether a repair removes some of the findings."""
        return bool(self.rule.repair) and any(item.is_repairable for item in self.findings)


def group_findings(report: Report, *, on_page: bool = False) -> list[Group]:
    """Group the findings of a report by rule and cause, the most severe first, then by family.

    The findings that another rule explains follow it. ``on_page`` is for users of the service, who
    have no command line.
    """
    listed: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        listed.setdefault((finding.code, finding.cause), []).append(finding)
    totals, files = _count_by_cause(report, listed)
    groups = [
        _make_group(report, *key, listed.get(key, []), on_page)._replace(total=n, files=files[key])
        for key, n in totals.items()
    ]
    order = list(FAMILIES)

    def sort_key(group: Group) -> tuple[int, int, str]:
        return -group.severity.rank, order.index(group.code[:3]), group.code

    groups.sort(key=sort_key)
    codes = {group.code for group in groups if not group.cause}
    roots = [group for group in groups if group.cause not in codes]
    families = [[root, *(item for item in groups if item.cause == root.code)] for root in roots]
    families.sort(key=lambda family: min(map(sort_key, family)))
    return [group for family in families for group in family]


def _count_by_cause(
    report: Report, listed: Mapping[tuple[str, str], Sequence[Finding]]
) -> tuple[Counter[tuple[str, str]], Counter[tuple[str, str]]]:
    """Count the findings and files for each rule and cause, including unlisted findings."""
    totals, files = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    causes = Causes(report)
    by_shard: dict[tuple[str, str], Counter[str]] = {}
    for (code, cause), findings in listed.items():
        for finding in findings:
            by_shard.setdefault((code, finding.shard), Counter())[cause] += 1
    for shard, counts in report.counts.by_shard.items():
        for code, count in counts.items():
            by_cause = by_shard.get((code, shard)) or Counter([causes.find(code, shard)])
            # Unlisted findings have the cause of the listed ones, if there is only one.
            rest = next(iter(by_cause)) if len(by_cause) == 1 else ""
            by_cause[rest] += count - by_cause.total()
            for cause, number in by_cause.items():
                if number:
                    totals[code, cause] += number
                    files[code, cause] += 1
    return totals, files


def _make_group(
    report: Report, code: str, cause: str, findings: Sequence[Finding], on_page: bool
) -> Group:
    """Make a group without its counts."""
    rule, first, following = all_rules()[code], dict[tuple[str, str | None, str], Finding](), []
    templates = [finding.template or finding.fix for finding in findings]
    usual = name_tool(report, rule.fix)
    common = (text for text in templates if split_command(text)[0] == split_command(usual)[0])
    template = templates[0] if len({*templates}) == 1 else next(common, strip_command(usual))

    def format_fix(template: str, findings: Sequence[Finding]) -> str:
        return fill_in(fit_to_page(template, rule) if on_page else template, findings)

    for finding, own in zip(findings, templates, strict=True):
        key = (own, finding.feature, finding.shard)
        fix = "" if own == template else format_fix(own, [finding])
        if key in first:
            following.append(finding._replace(fix=fix))
        else:
            first[key] = finding._replace(fix=fix)
    return Group(
        rule,
        report.severities[code],
        format_fix(template, findings),
        findings=[*first.values(), *following],
        cause=cause,
    )
