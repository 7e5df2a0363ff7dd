"""What a check knows so far: small, and added up in any order and any grouping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from tfod.check.duplicates.compare import Duplicates
from tfod.check.duplicates.row_blocks import RowBlock, RowFacts, RowPlace
from tfod.check.findings.collector import Findings
from tfod.check.records.column_order import BoxColumns
from tfod.check.records.objects import ObjectFigures
from tfod.check.records.statistics import bound
from tfod.check.rules.labels import LabelMapFile
from tfod.detection.boxes import BoxCounts

Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of an object."""


@dataclass
class ShardSummary:
    """What is known of a shard, or of a part of it, however many records it has.

    Attributes:
        work, number: which input of the check, and which of its shards.
        name: as the report names it.
        subset: the subset it belongs to.
        label_map: name of the label map it was checked with.
        candidates: label maps that fit equally well, when there are several.
        in_archive: whether it came out of an archive.
        is_whole: whether the archive's entry could be read to its end.
        records, images, boxes: what was read.
        decoded: images that were decoded.
        keys: the features that its records have.
        has_defects: whether anything was found in it but infos.
        box_figures: whether its boxes look like pixels.
        columns: what its boxes say of their columns.
        is_empty_file: whether it is a file of 0 bytes in a numbered set.
        objects: figures of its objects, where they are wanted.
    """

    work: int
    number: int
    name: str
    subset: str
    label_map: str | None = None
    candidates: Sequence[str] = ()
    in_archive: bool = False
    is_whole: bool = True
    records: int = 0
    images: int = 0
    decoded: int = 0
    boxes: int = 0
    keys: frozenset[str] = frozenset()
    has_defects: bool = False
    box_figures: BoxCounts = field(default_factory=BoxCounts)
    columns: BoxColumns = field(default_factory=BoxColumns)
    is_empty_file: bool = False
    objects: ObjectFigures | None = None

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
            box_figures=self.box_figures + following.box_figures,
            columns=self.columns + following.columns,
            objects=self.objects and following.objects and self.objects + following.objects,
        )


@dataclass
class Result:
    """What some or all inputs of a check have come to; ``a += b`` adds what other inputs have.

    Attributes:
        most: how many findings of each code may be listed.
        most_duplicates: how many duplicates of each kind; None for as many.
        findings: by number of the input, in their order.
        shards: by number of the input, in order; of a part of a shard, that shard.
        image_sizes: images of each ``(height, width)``, pixels.
        uses: how often each pair of class text and id is used, by the name of the label map.
        label_maps: label maps of archives, by name.
        digests: SHA-256 of files, by name.
        blocks: the rows of all records, as far as they are kept.
        duplicates: names and images that come more than once.
        facts: of the records that the duplicates list.
    """

    most: int
    findings: dict[int, Findings] = field(default_factory=dict)
    shards: dict[int, list[ShardSummary]] = field(default_factory=dict)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    uses: dict[str | None, Counter[Use]] = field(default_factory=dict)
    label_maps: dict[str, LabelMapFile] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    blocks: list[RowBlock] = field(default_factory=list)
    duplicates: Duplicates = field(default_factory=Duplicates)
    facts: dict[RowPlace, RowFacts] = field(default_factory=dict)
    most_duplicates: int | None = None
    _listed: Counter[str] = field(default_factory=Counter, repr=False)
    _listing: dict[str, set[int]] = field(default_factory=dict, repr=False)
    _keys: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False)
    _classes: dict[Use, Use] = field(default_factory=dict, repr=False)

    def __iadd__(self, other: Result) -> Result:
        """Add what other inputs have come to; the other one stays as it is."""
        for number, findings in other.findings.items():
            if number in self.findings:  # another shard of an archive
                self.findings[number].merge(findings)
            else:
                self._add_findings(number, findings)
        for number, shards in other.shards.items():
            # The keys of many shards are equal: held once. So are their classes.
            self.shards.setdefault(number, []).extend(
                replace(
                    one,
                    keys=self._keys.setdefault(one.keys, one.keys),
                    objects=one.objects and one.objects.with_shared(self._classes),
                )
                for one in shards
            )
        self.image_sizes.update(other.image_sizes)
        self.image_sizes = bound(self.image_sizes, slack=2)
        for name, uses in other.uses.items():
            mine = self.uses.setdefault(name, Counter())
            mine.update(uses)
            self.uses[name] = bound(mine, slack=2)
        self.label_maps.update(other.label_maps)
        self.digests.update(other.digests)
        self.blocks += other.blocks
        self.duplicates.merge(other.duplicates, self.most_duplicates or self.most)
        self.facts.update(other.facts)
        return self

    def _add_findings(self, number: int, findings: Findings) -> None:
        if not findings.counts and not findings.once:
            return
        self.findings[number] = findings
        for code, listed in findings.listed.items():
            self._listed[code] += len(listed)
            self._listing.setdefault(code, set()).add(number)
            if self._listed[code] > 2 * self.most:
                self._listed[code] = self._drop(code)

    def _drop(self, code: str) -> int:
        """Forget the findings of a code that would not be listed; return how many are left."""
        left = self.most
        for number in sorted(self._listing[code]):
            findings = self.findings[number]
            # A new one: the result may be another's, too.
            kept = findings.listed[code][:left]
            self.findings[number] = replace(findings, listed={**findings.listed, code: kept})
            left -= len(kept)
            if not kept:  # however many inputs there are, only those that list some are looked at
                self._listing[code].remove(number)
        return self.most - left

    def close(self) -> None:
        """Keep no more classes and image sizes than may be; call when all is added."""
        self.uses = {name: bound(uses) for name, uses in self.uses.items()}
        self.image_sizes = bound(self.image_sizes)

    def all_findings(self) -> Findings:
        """All findings, in the order of the inputs."""
        found = Findings(self.most)
        for number in sorted(self.findings):
            found.merge(self.findings[number])
        return found

    def shard_parts(self) -> list[ShardSummary]:
        """All shards and parts of shards, in the order of the inputs."""
        return [one for number in sorted(self.shards) for one in self.shards[number]]

    def all_shards(self) -> list[ShardSummary]:
        """All shards, in the order of the inputs; the parts of a shard are joined."""
        found: dict[str, ShardSummary] = {}
        for one in self.shard_parts():
            known = found.get(one.name)
            found[one.name] = one if known is None else known.joined(one)
        return list(found.values())
