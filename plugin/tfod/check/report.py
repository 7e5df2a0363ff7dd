"""The report: the verdict, what was looked at, what was found, and the figures of the data.

Its JSON form is versioned and described by ``docs/report.schema.json``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tfod.check.finding import Finding, Findings, JsonValue, Severity, choose
from tfod.check.receivers import ReceiverVerdict, worst_of
from tfod.check.records.result import ShardResult, add_bounded
from tfod.version import __version__

if TYPE_CHECKING:
    from tfod.check.baseline import Baseline

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
        """Whether nothing was found in it at or above the level that fails."""
        return self.findings.are_below(self.fail_on)

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
        rest: what was found that is about none of them.
        receiver: name of the one for whom it is valid or not.
        fail_on: the least severity that makes the verdict.
        most: how many findings are listed.
        duration: seconds.
        configuration: the file that options were read from, if any.
        baseline: with what is known, which is not among the findings.
        version: of tfod.
    """

    datasets: Sequence[DatasetReport]
    rest: DatasetReport | None = None
    receiver: str
    fail_on: Severity
    most: int
    duration: float
    configuration: str | None = None
    baseline: Baseline | None = None
    version: str = __version__

    @property
    def _parts(self) -> Sequence[DatasetReport]:
        return [*self.datasets, *([self.rest] if self.rest else [])]

    @cached_property
    def _all_findings(self) -> Findings:
        found = Findings(self.most)
        for one in self._parts:
            found.merge(one.findings)
        return found

    @property
    def valid(self) -> bool:
        """Whether nothing was found at or above the level that fails."""
        return self._all_findings.are_below(self.fail_on)

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """In the order of sources, shards, records and codes; at most as many as asked for."""
        return choose(self._all_findings, [one.name for one in self.shards])

    @property
    def severities(self) -> Mapping[str, Severity]:
        """Of each rule that fired, as it was applied."""
        return self._all_findings.worst

    @cached_property
    def counts(self) -> Counts:
        """True totals."""
        # A rule may be more severe in one data set than in another.
        levels = [one.counts.by_severity for one in self._parts]
        by_severity = {level: sum(one[level] for one in levels) for level in Severity}
        counts = Counts.of(self.shards, self._all_findings)
        return counts._replace(by_severity=by_severity)

    @property
    def total(self) -> int:
        """How many findings there are, listed or not."""
        return self._all_findings.total

    @property
    def profile(self) -> ChosenProfile:
        """Of all data sets, with all their names where they differ."""
        profiles = list(dict.fromkeys(one.profile for one in self.datasets))
        if len(profiles) == 1:
            return profiles[0]
        names = dict.fromkeys(one.name for one in profiles)
        return ChosenProfile(", ".join(names), "for each dataset what fits it best")

    @property
    def sources(self) -> Sequence[SourceFile]:
        """The files that were checked."""
        return [source for dataset in self.datasets for source in dataset.files]

    @property
    def shards(self) -> Sequence[ShardResult]:
        """What was read of each."""
        return [shard for dataset in self.datasets for shard in dataset.shards]

    @cached_property
    def classes(self) -> Counter[str]:
        """Boxes of each class."""
        return _added(one.classes for one in self.datasets)

    @cached_property
    def image_sizes(self) -> Counter[tuple[int, int]]:
        """Images of each ``(height, width)``, pixels."""
        return _added(one.image_sizes for one in self.datasets)

    @property
    def undecoded(self) -> str:
        """Why not all images were decoded; empty where they were."""
        lacking = [one for one in self.datasets if one.counts.decoded < one.counts.images]
        return "; ".join(dict.fromkeys(one.undecoded for one in lacking))

    @cached_property
    def verdicts(self) -> Sequence[ReceiverVerdict]:
        """Of each receiver, where the check is for any; on all findings, also known ones."""
        return worst_of(verdict for one in self._parts for verdict in one.verdicts)

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


def _added(parts: Iterable[Counter[T]]) -> Counter[T]:
    found: Counter[T] = Counter()
    for one in parts:
        add_bounded(found, one)
    return found


def _figures(one: Counts | ShardResult) -> dict[str, JsonValue]:
    return {name: getattr(one, name) for name in ("records", "images", "decoded", "boxes")}
