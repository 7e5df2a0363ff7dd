"""From findings and figures to the report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tfod.check.collector import Findings
from tfod.check.finding import Severity
from tfod.check.report import ChosenProfile, Counts, DatasetReport, Report, SourceFile
from tfod.check.statistics import Statistics
from tfod.check.tally import ShardSummary
from tfod.version import __version__


@dataclass(frozen=True)
class JudgedDataset:
    """What a check has come to for one dataset.

    Attributes:
        name: as the user has named it.
        profile: which one was expected.
        findings: all of them.
        shards: in order.
        statistics: of all records, but for the classes.
        classes: boxes of each class.
        undecoded: why not all images were decoded, if they were not.
        sources: the files that were checked.
    """

    name: str
    profile: ChosenProfile
    findings: Findings
    shards: Sequence[ShardSummary]
    statistics: Statistics
    classes: Counter[str]
    undecoded: str
    sources: Sequence[SourceFile] = ()


def conclude(
    datasets: Sequence[JudgedDataset],
    *,
    receiver: str,
    fail_on: Severity,
    began: float,
    others: Findings | None = None,
) -> Report:
    """The report.

    Args:
        datasets: one or more, in order.
        receiver: name of the one whose verdict it is.
        fail_on: the least severity that makes the verdict.
        began: when the check did, by :func:`time.monotonic`.
        others: findings that are about no dataset.
    """
    findings = Findings(datasets[0].findings.most)
    statistics = Statistics()
    by_severity: Counter[Severity] = Counter()
    for one in (*(dataset.findings for dataset in datasets), *([others] if others else [])):
        one.close()
        findings.merge(one)
        by_severity.update(one.by_severity())
    for dataset in datasets:
        statistics.merge(dataset.statistics)
        statistics.classes.update(dataset.classes)
    reports = [_report_of(dataset, fail_on) for dataset in datasets]
    shards = [shard for dataset in datasets for shard in dataset.shards]
    counts = _counts(findings, shards, {level: by_severity[level] for level in Severity})
    undecoded = dict.fromkeys(one.undecoded for one in datasets if _decoded_less(one.shards))
    return Report(
        valid=not _failures(counts.by_severity, fail_on),
        fail_on=fail_on,
        receiver=receiver,
        profile=_common_profile(reports),
        datasets=reports,
        sources=[source for dataset in datasets for source in dataset.sources],
        counts=counts,
        undecoded="; ".join(undecoded),
        severities=findings.severities,
        findings=findings.in_order([one.name for one in shards]),
        statistics=statistics,
        version=__version__,
        duration=time.monotonic() - began,
    )


def _report_of(dataset: JudgedDataset, fail_on: Severity) -> DatasetReport:
    findings = dataset.findings
    counts = _counts(findings, dataset.shards, findings.by_severity())
    label_maps = dict.fromkeys(one.label_map for one in dataset.shards if one.label_map)
    return DatasetReport(
        name=dataset.name,
        valid=not _failures(counts.by_severity, fail_on),
        profile=dataset.profile,
        label_maps=tuple(label_maps),
        sources=tuple(one.name for one in dataset.sources),
        counts=counts,
    )


def _counts(
    findings: Findings, shards: Sequence[ShardSummary], by_severity: Mapping[Severity, int]
) -> Counts:
    return Counts(
        shards=len(shards),
        records=sum(one.records for one in shards),
        images=sum(one.images for one in shards),
        decoded=sum(one.decoded for one in shards),
        boxes=sum(one.boxes for one in shards),
        by_code=findings.by_code(),
        by_severity=by_severity,
        places_by_code={code: len(counts) for code, counts in sorted(findings.counts.items())},
        by_shard=findings.by_shard(),
    )


def _failures(by_severity: Mapping[Severity, int], fail_on: Severity) -> int:
    return sum(count for level, count in by_severity.items() if level.rank >= fail_on.rank)


def _decoded_less(shards: Sequence[ShardSummary]) -> bool:
    return any(one.decoded < one.images for one in shards)


def _common_profile(datasets: Sequence[DatasetReport]) -> ChosenProfile:
    profiles = list(dict.fromkeys(one.profile for one in datasets))
    if len(profiles) == 1:
        return profiles[0]
    names = dict.fromkeys(one.name for one in profiles)
    return ChosenProfile(", ".join(names), "for each dataset what fits it best")
