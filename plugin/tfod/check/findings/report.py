"""The report: the verdict, what was looked at, what was found, and the figures of the data.

Its JSON form is versioned and described by ``docs/report.schema.json``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from tfod.check.findings.finding import Finding, JsonValue, Severity
from tfod.check.findings.findings import Findings, choose
from tfod.check.profiles.policy import Policy
from tfod.check.receivers import ReceiverVerdict, worst_of
from tfod.check.records.result import ShardResult, add_bounded
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.check.findings.baseline import Comparison

T = TypeVar("T")
REPORT_VERSION = 2
_LISTED_SIZES = 50


@dataclass
class Statistics:
    """What is in the data.

    Attributes:
        classes: boxes of each class, by its text, or by ``#id`` where there is no text.
        image_sizes: images of each ``(height, width)``, pixels.
    """

    classes: Counter[str] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)

    def merge(self, other: Statistics) -> None:
        """Add the figures of another dataset."""
        add_bounded(self.classes, other.classes)
        add_bounded(self.image_sizes, other.image_sizes)

    def to_json(self) -> JsonValue:
        """As the report has it."""
        sizes = most_first(self.image_sizes)
        return {
            "classes": dict(most_first(self.classes)),
            "image_sizes": [
                {"height": height, "width": width, "images": count}
                for (height, width), count in sizes[:_LISTED_SIZES]
            ],
            "different_image_sizes": len(sizes),
        }


def most_first(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    """Kinds and counts, the most frequent kinds first, those of one count in order."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


@dataclass(frozen=True)
class SourceFile:
    """A file that was checked.

    ``bytes`` is None where it could not be read, ``sha256`` also where hashing was turned off.
    """

    name: str
    bytes: int | None
    sha256: str | None


@dataclass(frozen=True)
class ChosenProfile:
    """The expected feature description, and why it is this one."""

    name: str
    reason: str


@dataclass(frozen=True)
class Counts:
    """True totals, whatever part of the findings is listed.

    Attributes:
        shards, records, images, boxes: what was read; an image is a record whose image has
            bytes.
        decoded: how many of the images were decoded.
        by_code: findings by rule.
        by_severity: findings by severity, those of a rule as its worst; all three are there.
        by_shard: findings by shard and rule, of the shards that have any; JUnit needs it to know
            a clean shard from one whose findings are not listed.
    """

    shards: int
    records: int
    images: int
    decoded: int
    boxes: int
    by_code: Mapping[str, int]
    by_severity: Mapping[Severity, int]
    by_shard: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class DatasetReport:
    """What is said of one dataset: the shards of a folder with its splits, or a zip.

    Attributes:
        name: as the user has named it.
        valid: nothing was found in it at or above the level that fails.
        label_maps: names of those that its shards are checked by.
        sources: names of its files.
    """

    name: str
    valid: bool
    profile: ChosenProfile
    label_maps: Sequence[str]
    sources: Sequence[str]
    counts: Counts


@dataclass(frozen=True)
class Report:
    """All that a check has to say.

    Attributes:
        valid: nothing was found at or above the level that fails.
        fail_on: that level.
        receiver: name of the one for whom it is valid or not.
        findings: in the order of sources, shards, records and codes; at most as many as asked for.
        statistics: figures of the data.
        version: of tfod.
        duration: seconds.
        severities: of each rule that fired, as it was applied.
        undecoded: why not all images were decoded; empty where they were.
        profile: of all datasets, with all their names where they differ.
        datasets: each for itself, in order.
        verdicts: of each receiver, where the check is for any; on all findings, also known ones.
        baseline: with what is known, which is not among the findings.
        shards: what was read of each.
        configuration: the file that options were read from, if any.
    """

    valid: bool
    fail_on: Severity
    receiver: str
    profile: ChosenProfile
    sources: Sequence[SourceFile]
    counts: Counts
    findings: Sequence[Finding]
    statistics: Statistics
    version: str
    duration: float
    severities: Mapping[str, Severity] = field(default_factory=dict)
    undecoded: str = ""
    datasets: Sequence[DatasetReport] = ()
    verdicts: Sequence[ReceiverVerdict] = ()
    baseline: Comparison | None = None
    shards: Sequence[ShardResult] = ()
    configuration: str | None = None

    @property
    def total(self) -> int:
        """How many findings there are, listed or not."""
        return sum(self.counts.by_code.values())

    def dataset_of(self, name: str) -> DatasetReport | None:
        """The dataset that a shard, an entry of a zip or a label map belongs to, by its name."""
        found = self._datasets_by_name.get(name)
        while found is None and ":" in name:  # the name of an entry may have colons, too
            name = name.rpartition(":")[0]
            found = self._datasets_by_name.get(name)
        return found

    def source_of(self, name: str) -> str:
        """The file that was checked which a shard's name is of; its own, unless it is in a zip."""
        found = name
        while found not in self._source_names and ":" in found:  # also in the name of an entry
            found = found.rpartition(":")[0]
        return found if found in self._source_names else name

    @property
    def _known(self) -> JsonValue:
        one = self.baseline
        return {"file": one.file, "known": one.known} if one else None

    @cached_property
    def _source_names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.sources)

    @cached_property
    def _datasets_by_name(self) -> Mapping[str, DatasetReport]:
        return {name: one for one in self.datasets for name in (*one.sources, *one.label_maps)}

    def flatten(self, *fields: str) -> list[tuple[Any, ...]]:
        """The findings as tuples of some of their fields, which makes a test one line."""
        return [tuple(getattr(one, name) for name in fields) for one in self.findings]

    def to_json(self) -> dict[str, JsonValue]:
        """The report as JSON; keys in a fixed order."""
        counts = self.counts
        return {
            "report_version": REPORT_VERSION,
            "valid": self.valid,
            "fail_on": self.fail_on.value,
            "receiver": self.receiver,
            "receivers": [
                {
                    "name": one.receiver.name,
                    "verdict": one.verdict.value,
                    "reasons": list(one.reasons),
                }
                for one in self.verdicts
            ],
            "configuration": self.configuration,
            "profile": asdict(self.profile),
            "datasets": [_dataset_to_json(one) for one in self.datasets],
            "sources": [asdict(one) for one in self.sources],
            "shards": [{"name": one.name, **_figures(one)} for one in self.shards],
            "counts": {
                "shards": counts.shards,
                **_figures(counts),
                "findings": self.total,
                "by_code": dict(sorted(counts.by_code.items())),
                "by_severity": {one.value: counts.by_severity[one] for one in Severity},
                "shards_by_code": dict(sorted(Counter(chain(*counts.by_shard.values())).items())),
                "by_shard": {
                    shard: dict(sorted(by_code.items()))
                    for shard, by_code in sorted(counts.by_shard.items())
                },
            },
            "undecoded": self.undecoded,
            "severities": {code: one.value for code, one in sorted(self.severities.items())},
            "findings": [one.to_json() for one in self.findings],
            "statistics": self.statistics.to_json(),
            "baseline": self._known,
            "tool": {"name": "tfod", "version": self.version},
            "duration": round(self.duration, 3),
        }


def _figures(one: Counts | ShardResult) -> dict[str, JsonValue]:
    return {name: getattr(one, name) for name in ("records", "images", "decoded", "boxes")}


def _dataset_to_json(dataset: DatasetReport) -> JsonValue:
    counts = dataset.counts
    return {
        "name": dataset.name,
        "valid": dataset.valid,
        "profile": asdict(dataset.profile),
        "label_maps": list(dataset.label_maps),
        "sources": list(dataset.sources),
        "counts": {
            "shards": counts.shards,
            **_figures(counts),
            "by_severity": {one.value: counts.by_severity[one] for one in Severity},
        },
    }


@dataclass(frozen=True)
class CheckedDataset:
    """What a check has found in one dataset.

    Attributes:
        name: as the user has named it.
        profile: which one was expected.
        policy: how severe its findings are.
        findings: all of them.
        shards: in order.
        statistics: of all records.
        undecoded: why not all images were decoded, if they were not.
        sources: the files that were checked.
        verdicts: of each receiver, where it was checked for any.
    """

    name: str
    profile: ChosenProfile
    policy: Policy
    findings: Findings
    shards: Sequence[ShardResult] = ()
    statistics: Statistics = field(default_factory=Statistics)
    undecoded: str = ""
    sources: Sequence[SourceFile] = ()
    verdicts: Sequence[ReceiverVerdict] = ()


def make_report(
    datasets: Sequence[CheckedDataset],
    others: CheckedDataset,
    *,
    receiver: str,
    fail_on: Severity,
    began: float,
    most: int,
    configuration: str | None = None,
    baseline: Comparison | None = None,
) -> Report:
    """The report.

    Args:
        datasets: in order.
        others: what was found that is about none of them.
        receiver: name of the one whose verdict it is.
        fail_on: the least severity that makes the verdict.
        began: when the check did, by :func:`time.monotonic`.
        most: how many findings are listed.
        configuration: the file that options were read from, if any.
        baseline: after what is known has been removed.
    """
    findings = Findings(most)
    statistics = Statistics()
    by_severity: Counter[Severity] = Counter()
    reports = []
    for one in (*datasets, others):
        judged = _judged(one.findings, one.policy)
        findings.merge(judged)
        by_severity.update(_by_severity(judged))
        statistics.merge(one.statistics)
        reports.append(_report_of(one, judged, fail_on))
    reports.pop()
    shards = [shard for dataset in datasets for shard in dataset.shards]
    counts = _counts(findings, shards, {level: by_severity[level] for level in Severity})
    undecoded = dict.fromkeys(one.undecoded for one in datasets if _decoded_less(one.shards))
    return Report(
        valid=not _failures(counts.by_severity, fail_on),
        fail_on=fail_on,
        receiver=receiver,
        configuration=configuration,
        profile=_common_profile(reports),
        datasets=reports,
        verdicts=worst_of(one for each in (*datasets, others) for one in each.verdicts),
        sources=[source for dataset in datasets for source in dataset.sources],
        counts=counts,
        undecoded="; ".join(undecoded),
        severities=findings.worst,
        findings=choose(findings, [one.name for one in shards]),
        statistics=statistics,
        version=__version__,
        duration=time.monotonic() - began,
        baseline=baseline,
        shards=shards,
    )


def _judged(findings: Findings, policy: Policy) -> Findings:
    """Findings as severe as the policy says."""
    found = Findings(findings.most, counts=findings.counts)
    for code, worst in findings.worst.items():
        found.worst[code] = policy.severity(code, worst) or worst
    for code, listed in findings.listed.items():
        levels = {one: policy.severity(code, one) or one for one in Severity}
        is_kept = all(one is level for one, level in levels.items())
        judged = listed if is_kept else [replace(x, severity=levels[x.severity]) for x in listed]
        found.listed[code] = judged
    return found


def _by_severity(findings: Findings) -> dict[Severity, int]:
    """True number of findings of each severity; of a rule all are as severe as the worst."""
    totals = dict.fromkeys(Severity, 0)
    for code, counts in findings.counts.items():
        if counts:
            totals[findings.worst[code]] += counts.total()
    return totals


def _report_of(dataset: CheckedDataset, findings: Findings, fail_on: Severity) -> DatasetReport:
    counts = _counts(findings, dataset.shards, _by_severity(findings))
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
    findings: Findings, shards: Sequence[ShardResult], by_severity: Mapping[Severity, int]
) -> Counts:
    return Counts(
        shards=len(shards),
        records=sum(one.records for one in shards),
        images=sum(one.images for one in shards),
        decoded=sum(one.decoded for one in shards),
        boxes=sum(one.boxes for one in shards),
        by_code=findings.by_code(),
        by_severity=by_severity,
        by_shard=findings.by_shard(),
    )


def _failures(by_severity: Mapping[Severity, int], fail_on: Severity) -> int:
    return sum(count for level, count in by_severity.items() if level.rank >= fail_on.rank)


def _decoded_less(shards: Sequence[ShardResult]) -> bool:
    return any(one.decoded < one.images for one in shards)


def _common_profile(datasets: Sequence[DatasetReport]) -> ChosenProfile:
    profiles = list(dict.fromkeys(one.profile for one in datasets))
    if len(profiles) == 1:
        return profiles[0]
    names = dict.fromkeys(one.name for one in profiles)
    return ChosenProfile(", ".join(names), "for each dataset what fits it best")
