"""The report: the verdict, what was looked at, what was found, and the figures of the data.

Its JSON form is versioned and described by ``docs/report.schema.json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfod.checker.analysis.result import ShardResult, add_bounded
from tfod.checker.finding import Finding, Findings, JsonValue, Severity, select_listed
from tfod.checker.receivers import ReceiverVerdict, worst_of
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.checker.baseline import Baseline

T = TypeVar("T")
REPORT_VERSION = 2
_LISTED_SIZES = 50


def most_first(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    """Kinds and counts, the most frequent kinds first, those of one count in order."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


class SourceFile(NamedTuple):
    """A file that was checked; ``bytes`` is None where its size is not known."""

    name: str
    bytes: int | None


class ChosenProfile(NamedTuple):
    """The expected feature description, and why it is this one."""

    name: str
    reason: str


class Counts(NamedTuple):
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

    @classmethod
    def of(cls, shards: Sequence[ShardResult], findings: Findings) -> Counts:
        """Those of some shards and of what was found in them."""
        by_code = {code: counts.total() for code, counts in sorted(findings.counts.items())}
        by_severity = dict.fromkeys(Severity, 0)
        for code, count in by_code.items():
            if count:
                by_severity[findings.worst[code]] += count
        by_shard: dict[str, dict[str, int]] = {}
        for code in by_code:
            for shard, count in findings.counts[code].items():
                by_shard.setdefault(shard, {})[code] = count
        return cls(
            shards=len(shards),
            records=sum(one.records for one in shards),
            images=sum(one.images for one in shards),
            decoded=sum(one.decoded for one in shards),
            boxes=sum(one.boxes for one in shards),
            by_code=by_code,
            by_severity=by_severity,
            by_shard=by_shard,
        )


@dataclass(frozen=True)
class DatasetReport:
    """What a check has found in one data set: the shards of a folder with its splits, or a zip.

    Attributes:
        name: as the user has named it.
        profile: which one was expected.
        findings: all of them, as severe as the policy says, without those of a baseline.
        fail_on: the least severity that makes the verdict.
        shards: in order.
        classes: boxes of each class, by its text, or by ``#id`` where there is no text.
        image_sizes: images of each ``(height, width)``, pixels.
        undecoded: why not all images were decoded, if they were not.
        files: that were checked.
        verdicts: of each receiver, where it was checked for any; on all findings, also known ones.
    """

    name: str
    profile: ChosenProfile
    findings: Findings
    fail_on: Severity
    shards: Sequence[ShardResult] = ()
    classes: Counter[str] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    undecoded: str = ""
    files: Sequence[SourceFile] = ()
    verdicts: Sequence[ReceiverVerdict] = ()

    @cached_property
    def counts(self) -> Counts:
        """True totals."""
        return Counts.of(self.shards, self.findings)

    @property
    def valid(self) -> bool:
        """Whether it has records, and no finding at or above the level that fails."""
        return self.counts.records > 0 and self.findings.are_below(self.fail_on)

    @property
    def sources(self) -> Sequence[str]:
        """Names of its files."""
        return [one.name for one in self.files]

    @property
    def label_maps(self) -> Sequence[str]:
        """Names of those that its shards are checked by."""
        return list(dict.fromkeys(one.label_map for one in self.shards if one.label_map))

    def to_json(self) -> JsonValue:
        """As the report has it."""
        counts = self.counts
        return {
            "name": self.name,
            "valid": self.valid,
            "profile": self.profile._asdict(),
            "label_maps": list(self.label_maps),
            "sources": list(self.sources),
            "counts": {
                "shards": counts.shards,
                **_figures(counts),
                "by_severity": {one.value: counts.by_severity[one] for one in Severity},
            },
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a check has to say.

    Attributes:
        datasets: each for itself, in order.
        receiver: name of the one for whom it is valid or not.
        fail_on: the least severity that makes the verdict.
        valid: whether records were read, and nothing was found at or above that level.
        findings: in the order of sources, shards, records and codes; at most as many as asked for.
        total: how many findings there are, listed or not.
        severities: of each rule that fired, as it was applied.
        counts: true totals.
        profile: of all data sets, with all their names where they differ.
        sources: the files that were checked.
        shards: what was read of each.
        classes: boxes of each class.
        image_sizes: images of each ``(height, width)``, pixels.
        undecoded: why not all images were decoded; empty where they were.
        verdicts: of each receiver, where the check is for any; on all findings, also known ones.
        duration: seconds.
        configuration: the file that options were read from, if any.
        baseline: with what is known, which is not among the findings.
        version: of tfod.
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
    undecoded: str
    verdicts: Sequence[ReceiverVerdict]
    duration: float
    configuration: str | None = None
    baseline: Baseline | None = None
    version: str = __version__

    @classmethod
    def of(
        cls,
        datasets: Sequence[DatasetReport],
        rest: DatasetReport | None = None,
        *,
        fail_on: Severity,
        most: int,
        **more: Any,
    ) -> Report:
        """The report of some data sets.

        Args:
            datasets: each for itself, in order.
            rest: what was found that is about none of them.
            fail_on: the least severity that makes the verdict.
            most: how many findings are listed.
            more: the attributes of which a data set says nothing.
        """
        parts = [*datasets, *([rest] if rest else [])]
        findings, classes, sizes = Findings(most), Counter[str](), Counter[tuple[int, int]]()
        for one in parts:
            findings.merge(one.findings)
            add_bounded(classes, one.classes)
            add_bounded(sizes, one.image_sizes)
        shards = [shard for one in datasets for shard in one.shards]
        # A rule may be more severe in one data set than in another.
        levels = [one.counts.by_severity for one in parts]
        by_severity = {level: sum(one[level] for one in levels) for level in Severity}
        profiles = list(dict.fromkeys(one.profile for one in datasets))
        names = dict.fromkeys(one.name for one in profiles)
        several = ChosenProfile(", ".join(names), "for each dataset what fits it best")
        lacking = [one for one in datasets if one.counts.decoded < one.counts.images]
        counts = Counts.of(shards, findings)._replace(by_severity=by_severity)
        return cls(
            datasets=datasets,
            fail_on=fail_on,
            valid=counts.records > 0 and findings.are_below(fail_on),
            findings=select_listed(findings, [one.name for one in shards]),
            total=findings.total,
            severities=findings.worst,
            counts=counts,
            profile=profiles[0] if len(profiles) == 1 else several,
            sources=[source for one in datasets for source in one.files],
            shards=shards,
            classes=classes,
            image_sizes=sizes,
            undecoded="; ".join(dict.fromkeys(one.undecoded for one in lacking)),
            verdicts=worst_of(verdict for one in parts for verdict in one.verdicts),
            **more,
        )

    def dataset_of(self, name: str) -> DatasetReport | None:
        """The dataset that a shard, an entry of a zip or a label map belongs to, by its name."""
        return self._datasets_by_name.get(self.source_of(name))

    def source_of(self, name: str) -> str:
        """The file that was checked which a shard's name is of; its own, unless it is in a zip."""
        found = name
        while found not in self._source_names and ":" in found:  # also in the name of an entry
            found = found.rpartition(":")[0]
        return found if found in self._source_names else name

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
        counts, known, sizes = self.counts, self.baseline, most_first(self.image_sizes)
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
            "profile": self.profile._asdict(),
            "datasets": [one.to_json() for one in self.datasets],
            "sources": [one._asdict() for one in self.sources],
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
            "statistics": {
                "classes": dict(most_first(self.classes)),
                "image_sizes": [
                    {"height": height, "width": width, "images": count}
                    for (height, width), count in sizes[:_LISTED_SIZES]
                ],
                "different_image_sizes": len(sizes),
            },
            "baseline": {"file": known.name, "known": known.hidden} if known else None,
            "tool": {"name": "tfod", "version": self.version},
            "duration": round(self.duration, 3),
        }


def _figures(one: Counts | ShardResult) -> dict[str, JsonValue]:
    return {name: getattr(one, name) for name in ("records", "images", "decoded", "boxes")}
