"""What a check knows so far: small, and mergeable in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tfod.check.box_columns import BoxColumns
from tfod.check.collector import Findings
from tfod.check.examined import Examined, Figures
from tfod.check.row_blocks import RowBlock
from tfod.check.rules.labels import LabelMapFile
from tfod.detection.pixel_boxes import BoxTally

if TYPE_CHECKING:
    from tfod.check.work import ShardWork


@dataclass(frozen=True)
class ShardSummary:
    """What is known of a shard, or of a part of it, when its records are forgotten.

    Attributes:
        work, number: which piece of work, and which of its shards.
        name: as the report names it.
        subset: the subset it belongs to.
        label_map: name of the label map it was judged by.
        rivals: label maps that fit equally well, when there are several.
        in_archive: whether it came out of an archive.
        is_whole: whether the archive's entry could be read to its end.
        records, images, boxes: what was read.
        decoded: images that were decoded.
        keys: the features that its records have.
        has_defects: whether anything was said of it but infos.
        box_tally: whether its boxes look like pixels.
        columns: what its boxes say of their columns.
        is_empty_file: whether it is a file of 0 bytes in a numbered set.
    """

    work: int
    number: int
    name: str
    subset: str
    label_map: str | None = None
    rivals: Sequence[str] = ()
    in_archive: bool = False
    is_whole: bool = True
    records: int = 0
    images: int = 0
    decoded: int = 0
    boxes: int = 0
    keys: frozenset[str] = frozenset()
    has_defects: bool = False
    box_tally: BoxTally = field(default_factory=BoxTally)
    columns: BoxColumns = field(default_factory=BoxColumns)
    is_empty_file: bool = False

    def with_examined(self, examined: Examined) -> ShardSummary:
        """The same with what its records have shown."""
        return replace(
            self,
            records=examined.records,
            images=examined.images,
            decoded=examined.decoded,
            boxes=examined.boxes,
            keys=frozenset(examined.keys),
            has_defects=examined.findings.has_defects,
            box_tally=examined.box_tally,
            columns=examined.columns,
            is_empty_file=examined.is_empty_file,
        )

    def joined(self, following: ShardSummary) -> ShardSummary:
        """The same with the part of the shard that comes next."""
        return replace(
            self,
            records=self.records + following.records,
            images=self.images + following.images,
            decoded=self.decoded + following.decoded,
            boxes=self.boxes + following.boxes,
            keys=self.keys | following.keys,
            has_defects=self.has_defects or following.has_defects,
            box_tally=self.box_tally + following.box_tally,
            columns=self.columns + following.columns,
        )


@dataclass
class WorkResult:
    """What a piece of work has come to.

    Attributes:
        work: its number.
        findings: in their order.
        figures: of all records.
        shards: in order; of a part of a shard, that shard.
        label_maps: label maps of an archive, by name.
        blocks: the rows of all records.
        digests: SHA-256 of files, by name.
        instead: where the part of a shard is not what its index says it is, that which is to be
            examined in place of it and of all parts behind it.
    """

    work: int
    findings: Findings
    figures: Figures = field(default_factory=Figures)
    shards: list[ShardSummary] = field(default_factory=list)
    label_maps: dict[str, LabelMapFile] = field(default_factory=dict)
    blocks: list[RowBlock] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)
    instead: ShardWork | None = None

    def add(self, summary: ShardSummary, examined: Examined) -> None:
        """Add a shard."""
        self.shards.append(summary.with_examined(examined))
        self.findings.merge(examined.findings)
        self.figures.add(examined, summary.label_map)


class Tally:
    """The results of many pieces of work, without their rows.

    Args:
        most: how many findings of each code may be listed.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._findings: dict[int, Findings] = {}
        self._listed: Counter[str] = Counter()
        self._shards: dict[int, list[ShardSummary]] = {}
        self._keys: dict[frozenset[str], frozenset[str]] = {}
        self.figures = Figures()
        self.label_maps: dict[str, LabelMapFile] = {}
        self.digests: dict[str, str] = {}

    def add(self, result: WorkResult) -> None:
        """Add the result of one piece of work."""
        self._add_findings(result.work, result.findings)
        self._add_shards(result.work, result.shards)
        self.figures.merge(result.figures)
        self.label_maps.update(result.label_maps)
        self.digests.update(result.digests)

    def merge(self, other: Tally) -> None:
        """Add the results of other pieces of work."""
        for work, findings in other._findings.items():
            self._add_findings(work, findings)
        for work, shards in other._shards.items():
            self._add_shards(work, shards)
        self.figures.merge(other.figures)
        self.label_maps.update(other.label_maps)
        self.digests.update(other.digests)

    def _add_shards(self, work: int, shards: Sequence[ShardSummary]) -> None:
        if shards:
            # The keys of many shards are equal: held once.
            self._shards[work] = [
                replace(one, keys=self._keys.setdefault(one.keys, one.keys)) for one in shards
            ]

    def _add_findings(self, work: int, findings: Findings) -> None:
        if not findings.counts and not findings.once:
            return
        self._findings[work] = findings
        for code, listed in findings.listed.items():
            self._listed[code] += len(listed)
            if self._listed[code] > 2 * self._most:
                self._listed[code] = self._drop(code)

    def _drop(self, code: str) -> int:
        """Forget the findings of a code that would not be listed; return how many are left."""
        left = self._most
        for work in sorted(self._findings):
            findings = self._findings[work]
            if code in findings.listed:
                # A new one: the result may be another's, too.
                kept = findings.listed[code][:left]
                self._findings[work] = replace(findings, listed={**findings.listed, code: kept})
                left -= len(kept)
        return self._most - left

    def findings(self) -> Findings:
        """All findings, in the order of the work."""
        found = Findings(self._most)
        for work in sorted(self._findings):
            found.merge(self._findings[work])
        return found

    def parts(self) -> list[ShardSummary]:
        """All shards and parts of shards, in the order of the work."""
        return [one for work in sorted(self._shards) for one in self._shards[work]]

    def shards(self) -> list[ShardSummary]:
        """All shards, in the order of the work; the parts of a shard come one after the other."""
        return joined_parts(self.parts())


def joined_parts(parts: Iterable[ShardSummary]) -> list[ShardSummary]:
    """The shards that these parts make up, in the order of their first parts."""
    found: dict[str, ShardSummary] = {}
    for one in parts:
        known = found.get(one.name)
        found[one.name] = one if known is None else known.joined(one)
    return list(found.values())
