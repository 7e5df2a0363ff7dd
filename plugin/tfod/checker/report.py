"""The report of a check: the verdict, the input files, the findings, and statistics of the data.

``docs/report.schema.json`` describes its JSON form, which has a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfod.checker.analysis.result import ShardResult, Undecoded, add_bounded
from tfod.checker.finding import Finding, Findings, JsonValue, Severity, select_listed
from tfod.checker.receivers import ReceiverVerdict, merge_verdicts
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.checker.baseline import Baseline

T = TypeVar("T")
REPORT_VERSION = 2
_LISTED_SIZES = 50


def sort_by_count(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    """Return the keys and counts, the highest counts first, and equal counts in key order."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


class SourceFile(NamedTuple):
    """A file that was checked; ``bytes`` is None if the size is unknown."""

    name: str
    bytes: int | None


class ChosenProfile(NamedTuple):
    """The name of the profile of a check, and why it was chosen.

    ``argument`` is the value of ``--profile`` if the user requested it.
    """

    name: str
    reason: str
    argument: str = ""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the name and the reason, as in JSON reports."""
        return {"name": self.name, "reason": self.reason}


class Counts(NamedTuple):
    """The totals, including findings that are not listed.

    Attributes:
        images: number of records with image bytes.
        decoded: number of images that were decoded.
        by_code: number of findings by rule.
        by_severity: number of findings for each of the three severities; all findings of a rule
            count as its worst.
        by_shard: number of findings by shard and rule, for shards with findings; JUnit needs it to
            distinguish shards without findings from those whose findings are not listed.
    """

    shards: int
    records: int
    images: int
    decoded: int
    boxes: int
    by_code: Mapping[str, int]
    by_severity: Mapping[Severity, int]
    by_shard: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, shards: Sequence[ShardResult], findings: Findings) -> Counts:
        """Compute the totals of shards and their findings."""
        by_code = {code: counts.total() for code, counts in sorted(findings.counts.items())}
        by_severity = dict.fromkeys(Severity, 0)
        for code, worst in findings.worst.items():
            by_severity[worst] += by_code.get(code, 0)
        by_shard: dict[str, dict[str, int]] = {}
        for code in by_code:
            for shard, count in findings.counts[code].items():
                by_shard.setdefault(shard, {})[code] = count
        return cls(
            shards=len(shards),
            records=sum(shard.records for shard in shards),
            images=sum(shard.images for shard in shards),
            decoded=sum(shard.decoded for shard in shards),
            boxes=sum(shard.boxes for shard in shards),
            by_code=by_code,
            by_severity=by_severity,
            by_shard=by_shard,
        )


@dataclass(frozen=True)
class DatasetReport:
    """The report on one dataset: the shards of a folder with its splits, or a zip.

    Attributes:
        name: name of the dataset as the user passed it.
        findings: all findings that are not in the baseline.
        fail_on: the lowest severity that makes the dataset invalid.
        classes: number of boxes of each class, by text, or by ``#id`` if there is no text.
        image_sizes: number of images by height and width in pixels.
        undecoded: why not all images were decoded, and how to decode all.
        verdicts: verdict of each receiver, if the check is for any; includes known findings.
    """

    name: str
    profile: ChosenProfile
    findings: Findings
    fail_on: Severity
    shards: Sequence[ShardResult] = ()
    classes: Counter[str] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    undecoded: Undecoded = field(default_factory=Undecoded)
    files: Sequence[SourceFile] = ()
    verdicts: Sequence[ReceiverVerdict] = ()

    @cached_property
    def counts(self) -> Counts:
        """The totals of the dataset."""
        return Counts.of(self.shards, self.findings)

    @property
    def valid(self) -> bool:
        """Whether there are records, and no findings at or above ``fail_on``."""
        return self.counts.records > 0 and self.findings.are_below(self.fail_on)

    @property
    def sources(self) -> Sequence[str]:
        """The names of the files."""
        return [file.name for file in self.files]

    @property
    def label_maps(self) -> Sequence[str]:
        """The names of the label maps that the shards were checked against."""
        return list(dict.fromkeys(shard.label_map for shard in self.shards if shard.label_map))

    def to_json(self) -> JsonValue:
        """Return the dataset as a JSON object of the report."""
        counts = self.counts
        return {
            "name": self.name,
            "valid": self.valid,
            "profile": self.profile.to_json(),
            "label_maps": list(self.label_maps),
            "sources": list(self.sources),
            "counts": {
                "shards": counts.shards,
                **_figures(counts),
                "by_severity": {level.value: counts.by_severity[level] for level in Severity},
            },
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a check; see :class:`DatasetReport` for the attributes that both have.

    Attributes:
        receiver: name of the receiver that ``valid`` refers to.
        valid: whether records were read, and there are no findings at or above ``fail_on``.
        findings: the listed findings, in the order of sources, shards, records and codes.
        total: number of findings, including those that are not listed.
        severities: the worst severity of each rule that has findings.
        profile: the profile of all datasets, or all their names if they differ.
        duration: duration of the check in seconds.
        configuration: the file that options were read from, if any.
        baseline: the known findings, which are not among ``findings``.
    """

    datasets: Sequence[DatasetReport]
    receiver: str
    fail_on: Severity
    valid: bool
    findings: Sequence[Finding]
    total: int
    severities: Mapping[str, Severity]
    counts: Counts
    profile: ChosenProfile
    sources: Sequence[SourceFile]
    shards: Sequence[ShardResult]
    classes: Counter[str]
    image_sizes: Counter[tuple[int, int]]
    undecoded: Undecoded
    verdicts: Sequence[ReceiverVerdict]
    duration: float
    configuration: str | None = None
    baseline: Baseline | None = None
    version: str = __version__

    @classmethod
    def of(
        cls,
        datasets: Sequence[DatasetReport],
        unassigned: DatasetReport | None = None,
        *,
        fail_on: Severity,
        max_listed: int,
        **more: Any,
    ) -> Report:
        """Combine the reports on datasets, and on findings that do not belong to any dataset.

        ``max_listed`` is the maximum number of findings to list, ``more`` are further attributes.
        """
        parts = [*datasets, *([unassigned] if unassigned else [])]
        findings, classes, sizes = Findings(max_listed), Counter[str](), Counter[tuple[int, int]]()
        for part in parts:
            findings.merge(part.findings)
            add_bounded(classes, part.classes)
            add_bounded(sizes, part.image_sizes)
        shards = [shard for dataset in datasets for shard in dataset.shards]
        # The severity of a rule can differ between datasets.
        totals = [part.counts.by_severity for part in parts]
        by_severity = {level: sum(counts[level] for counts in totals) for level in Severity}
        profiles = list(dict.fromkeys(dataset.profile for dataset in datasets))
        names = dict.fromkeys(profile.name for profile in profiles)
        several = ChosenProfile(", ".join(names), "the best match for each dataset")
        incomplete = [data for data in datasets if data.counts.decoded < data.counts.images]
        counts = Counts.of(shards, findings)._replace(by_severity=by_severity)
        return cls(
            datasets=datasets,
            fail_on=fail_on,
            valid=counts.records > 0 and findings.are_below(fail_on),
            findings=select_listed(findings, [shard.name for shard in shards]),
            total=findings.total,
            severities=findings.worst,
            counts=counts,
            profile=profiles[0] if len(profiles) == 1 else several,
            sources=[file for dataset in datasets for file in dataset.files],
            shards=shards,
            classes=classes,
            image_sizes=sizes,
            undecoded=Undecoded(
                *(
                    "; ".join(dict.fromkeys(filter(None, texts)))
                    for texts in zip(*(data.undecoded for data in incomplete), strict=True)
                )
            ),
            verdicts=merge_verdicts(verdict for part in parts for verdict in part.verdicts),
            **more,
        )

    def find_dataset(self, name: str) -> DatasetReport | None:
        """Return the dataset of a shard, zip entry or label map, by its name."""
        return self._datasets_by_name.get(self.find_source(name))

    def find_source(self, name: str) -> str:
        """Return the name of the file that contains a shard: the zip, or the shard itself."""
        source = name
        while source not in self._source_names and ":" in source:  # entry names may contain ":"
            source = source.rpartition(":")[0]
        return source if source in self._source_names else name

    @cached_property
    def _source_names(self) -> frozenset[str]:
        return frozenset(source.name for source in self.sources)

    @cached_property
    def _datasets_by_name(self) -> Mapping[str, DatasetReport]:
        return {
            name: dataset
            for dataset in self.datasets
            for name in (*dataset.sources, *dataset.label_maps)
        }

    def flatten(self, *fields: str) -> list[tuple[Any, ...]]:
        """Return the findings as tuples of these fields, for tests of one line."""
        return [tuple(getattr(finding, name) for name in fields) for finding in self.findings]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the report as a JSON object, with its keys in a fixed order."""
        counts, baseline, sizes = self.counts, self.baseline, sort_by_count(self.image_sizes)
        return {
            "report_version": REPORT_VERSION,
            "valid": self.valid,
            "fail_on": self.fail_on.value,
            "receiver": self.receiver,
            "receivers": [
                {
                    "name": verdict.receiver.name,
                    "verdict": verdict.verdict.value,
                    "reasons": list(verdict.reasons),
                }
                for verdict in self.verdicts
            ],
            "configuration": self.configuration,
            "profile": self.profile.to_json(),
            "datasets": [dataset.to_json() for dataset in self.datasets],
            "sources": [source._asdict() for source in self.sources],
            "shards": [{"name": shard.name, **_figures(shard)} for shard in self.shards],
            "counts": {
                "shards": counts.shards,
                **_figures(counts),
                "findings": self.total,
                "by_code": dict(sorted(counts.by_code.items())),
                "by_severity": {level.value: counts.by_severity[level] for level in Severity},
                "shards_by_code": dict(sorted(Counter(chain(*counts.by_shard.values())).items())),
                "by_shard": {
                    shard: dict(sorted(by_code.items()))
                    for shard, by_code in sorted(counts.by_shard.items())
                },
            },
            "undecoded": self.undecoded.reason,
            "severities": {code: level.value for code, level in sorted(self.severities.items())},
            "findings": [finding.to_json() for finding in self.findings],
            "statistics": {
                "classes": dict(sort_by_count(self.classes)),
                "image_sizes": [
                    {"height": height, "width": width, "images": count}
                    for (height, width), count in sizes[:_LISTED_SIZES]
                ],
                "different_image_sizes": len(sizes),
            },
            "baseline": {"file": baseline.name, "known": baseline.hidden} if baseline else None,
            "tool": {"name": "tfod", "version": self.version},
            "duration": round(self.duration, 3),
        }


def _figures(totals: Counts | ShardResult) -> dict[str, JsonValue]:
    return {name: getattr(totals, name) for name in ("records", "images", "decoded", "boxes")}
