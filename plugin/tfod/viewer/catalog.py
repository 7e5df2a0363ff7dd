"""The catalog of a viewer: the records of all shards, and the findings about them, so far."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

from tfod.checker.analysis.examine import Step
from tfod.checker.finding import Finding, Findings, Severity
from tfod.checker.report import Report
from tfod.checker.reporters.escaping import visible
from tfod.checker.rules.registry import all_rules
from tfod.sources.resolved import ResolvedSources
from tfod.viewer.index import ShardIndex

Json: TypeAlias = "dict[str, Any]"
ANY_RULE = "any"
"""Stands for all rules in a request."""
_MAX_ROWS = 200


class Catalog:
    """The records of some shards.

    Attributes:
        shards: index of each shard, in order.
        findings: findings about records, by number of the shard and of the record.
    """

    def __init__(self, sources: ResolvedSources) -> None:
        self.shards: list[ShardIndex] = []
        self._numbers: dict[str, int] = {}
        for dataset in sources.datasets:
            for shard in dataset.shards:
                file = dataset.get_label_map(shard)
                self._numbers.setdefault(shard.name, len(self.shards))
                self.shards.append(ShardIndex(shard, file.label_map if file else None))
        self.findings: dict[tuple[int, int], list[Finding]] = {}
        self._by_rule: dict[str, dict[int, set[int]]] = {}
        self._severities: dict[str, Severity] = {}
        self._unlisted: set[str] = set()  # codes
        self._classes: Counter[str] = Counter()
        self._of_shard, self._taken = Findings(0), Counter[str]()

    def add(self, step: Step) -> None:
        """Add the records and the new findings of a step."""
        if step.detections is not None:
            number = self._numbers[step.detections.examples.records.shard]
            self.shards[number].add(step.detections, self._classes)
        if step.findings is not None:
            if step.findings is not self._of_shard:
                self._of_shard, self._taken = step.findings, Counter()
            for code, listed in step.findings.listed.items():
                for finding in listed[self._taken[code] :]:
                    self._note(finding)
                self._taken[code] = len(listed)
            self._note_unlisted(step.findings)

    def finish(self, report: Report) -> None:
        """Take the findings of the report, which has causes and those of whole datasets."""
        completed = {_identify(finding): finding for finding in report.findings}
        self.findings, self._by_rule, self._severities = {}, {}, {}
        for dataset in report.datasets:
            for finding in dataset.findings.all():
                self._note(completed.get(_identify(finding), finding))
            self._note_unlisted(dataset.findings)

    def _note(self, finding: Finding) -> None:
        shard, number = self._numbers.get(finding.shard), finding.record
        if shard is None:
            return
        if number is None:
            if finding.severity is not Severity.ERROR or self.shards[shard].has_batches:
                return
            number = 0  # so that the page shows why nothing can be read
        self.shards[shard].put(number)
        self.findings.setdefault((shard, number), []).append(finding)
        self._by_rule.setdefault(finding.code, {}).setdefault(shard, set()).add(number)
        severities = (self._severities.get(finding.code), finding.severity)
        self._severities[finding.code] = max(filter(None, severities), key=_get_rank)

    def _note_unlisted(self, findings: Findings) -> None:
        for code, listed in findings.listed.items():
            if findings.counts[code].total() > len(listed):
                self._unlisted.add(code)

    def count(self) -> Json:
        """Return the numbers of records, and of those with each class, subset and rule.

        A check lists only the first findings of a rule; ``has_more`` is whether there are others.
        """
        subsets: Counter[str] = Counter()
        for index in self.shards:
            subsets[index.shard.subset] += len(index.offsets)
        codes = sorted(self._by_rule, key=lambda code: (-self._severities[code].rank, code))
        return {
            "records": subsets.total(),
            "classes": [{"name": name, "records": n} for name, n in self._classes.most_common()],
            "subsets": [{"name": name, "records": n} for name, n in (+subsets).items()],
            "rules": [
                {
                    "code": code,
                    "title": all_rules()[code].title,
                    "severity": self._severities[code].value,
                    "records": sum(map(len, self._by_rule[code].values())),
                    "has_more": code in self._unlisted,
                }
                for code in codes
            ],
        }

    def select(
        self,
        class_name: str | None = None,
        subset: str | None = None,
        rule: str | None = None,
        start: int | None = None,
        count: int = 50,
        shard: int = 0,
        number: int = 0,
    ) -> Json:
        """Return some of the records that match.

        Args:
            class_name: name of a class; None for any.
            subset: name of a subset; None for any.
            rule: code of a rule, or `ANY_RULE`; None for records with or without findings.
            start: position of the first record to return; None for the part of the record below.
            count: number of records in a part.
            shard: number of a shard.
            number: number of a record in it, whose position is returned, or that of the next one.
        """
        count = max(1, min(count, _MAX_ROWS))
        matches = [
            (index, self._match(index, class_name, rule))
            for index, known in enumerate(self.shards)
            if subset is None or known.shard.subset == subset
        ]
        ends = list(accumulate((len(numbers) for _, numbers in matches), initial=0))
        position, is_match = ends[-1], False
        for before, (index, numbers) in zip(ends, matches, strict=False):
            row = bisect_left(numbers, number) if index == shard else 0
            is_match = index == shard and row < len(numbers) and numbers[row] == number
            if index > shard or (index == shard and row < len(numbers)):
                position = before + row
                break
        start = position // count * count if start is None else max(0, start)
        rows = [
            self._describe(index, item)
            for before, (index, numbers) in zip(ends, matches, strict=False)
            for item in numbers[max(0, start - before) : max(0, start + count - before)]
        ]
        return {
            "total": ends[-1],
            "start": start,
            "rows": rows,
            "position": position,
            "is_match": is_match,
        }

    def _match(self, shard: int, class_name: str | None, rule: str | None) -> Sequence[int]:
        known = self.shards[shard]
        numbers: Sequence[int] = range(len(known.offsets))
        if class_name is not None:
            numbers = known.by_class.get(class_name, ())
        if rule is not None:
            codes = self._by_rule if rule == ANY_RULE else [rule]
            by_shard = (self._by_rule.get(code, {}) for code in codes)
            with_rule = set[int]().union(*(records.get(shard, ()) for records in by_shard))
            numbers = sorted(with_rule if class_name is None else with_rule.intersection(numbers))
        return numbers

    def _describe(self, shard: int, number: int) -> Json:
        findings = self.findings.get((shard, number), ())
        severity = max((finding.severity for finding in findings), key=_get_rank, default=None)
        return {
            "shard": shard,
            "number": number,
            "name": visible(self.shards[shard].get_name(number)),
            "severity": severity.value if severity else "",
        }


def _identify(finding: Finding) -> tuple[object, ...]:
    """Return the fields of a finding that the report does not change."""
    return finding.code, finding.shard, finding.record, finding.feature, finding.message


def _get_rank(severity: Severity) -> int:
    return severity.rank
