"""What a shard has come to, and what the shards of a data set add up to, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from tfod.checker.analysis.batch import ImageRow, Use, class_name
from tfod.checker.analysis.column_order import BoxColumns
from tfod.checker.analysis.duplicates import Duplicates, IndexedBatch, Repeat
from tfod.checker.finding import Finding, Findings
from tfod.checker.profiles.profile import Profile
from tfod.detection.labels.label_map import LabelMap

if TYPE_CHECKING:
    from tfod.checker.analysis.object_statistics import ObjectFigures
    from tfod.checker.references.cvat_task import Task
    from tfod.checker.references.frames import Attachment
    from tfod.checker.references.pipeline_config import TrainingConfig
    from tfod.sources.resolved import Dataset

T = TypeVar("T")
MAX_COUNTED_KEYS = 1 << 16
"""Of more different classes or image sizes than this the first ones are counted."""


def add_bounded(counts: Counter[T], more: Mapping[T, int]) -> None:
    """Add counts of what comes next in the data; of too many kinds those that come first stay."""
    for kind, count in more.items():
        if kind in counts or len(counts) < MAX_COUNTED_KEYS:
            counts[kind] += count


@dataclass
class ShardResult:
    """What the records of a shard have come to, however many there are.

    Attributes:
        name: as the report names it.
        subset: the subset it belongs to.
        label_map: name of the label map it was checked with.
        candidates: label maps that fit equally well, when there are several.
        damage: why it could not be unpacked to its end, as an entry of a zip; empty where it could.
        is_whole: whether all its records could be unpacked.
        records, images, boxes: what was read; an image is a record whose image has bytes.
        decoded: images that were decoded.
        read: bytes of the shard.
        keys: the features that its records have.
        columns: what its boxes say of their columns.
        sample: some of its boxes, by :func:`~tfod.checker.analysis.box_forms.sample_of`.
        is_empty_file: whether it is a file of 0 bytes in a numbered set.
        compression: GZIP or ZLIB; empty for none.
        unreadable: why the system, or the store, did not let it be read on; empty where it did.
        objects: figures of its objects, where a trainer's configuration is given.
        rows: its records, where a CVAT task is given.
        attributes: how many values each attribute of a class has, where a CVAT task is given.
        findings: of the batch rules.
        has_defects: whether there are any but infos.
        flat: boxes without width or height.
        uses: how often each pair of class text and id is used.
        image_sizes: images of each ``(height, width)``, pixels.
        index: its records, to be compared with those of all shards.
    """

    name: str
    subset: str
    label_map: str | None = None
    candidates: Sequence[str] = ()
    damage: str = ""
    is_whole: bool = False
    records: int = 0
    images: int = 0
    decoded: int = 0
    boxes: int = 0
    read: int = 0
    keys: frozenset[str] = frozenset()
    columns: BoxColumns = field(default_factory=BoxColumns)
    sample: np.ndarray = field(default_factory=lambda: np.empty((0, 6), "f4"), compare=False)
    is_empty_file: bool = False
    compression: str = ""
    unreadable: str = ""
    objects: ObjectFigures | None = None
    rows: list[ImageRow] = field(default_factory=list)
    attributes: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: Findings = field(default_factory=lambda: Findings(0))
    has_defects: bool = False
    flat: int = 0
    uses: Counter[Use] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    index: list[IndexedBatch] = field(default_factory=list)


class ClassUsage(NamedTuple):
    """How the shards of one label map use its classes; ``shard`` is the first of them."""

    map_name: str
    label_map: LabelMap | None
    uses: Mapping[Use, int]
    shard: str


class UnmatchedRecords(NamedTuple):
    """Records that fit no profile, or none that the receiver reads.

    Attributes:
        keys: of their features.
        layout: the profile that fits, where it has boxes that the receiver does not read.
        shard: the first.
        receiver: its title; "" for any.
    """

    keys: Sequence[str]
    layout: str
    shard: str
    receiver: str = ""


@dataclass
class DatasetResult:
    """What the shards of a data set add up to; rules about all of it look at this.

    Attributes:
        dataset: which.
        profile: what is expected of the records.
        findings: all that was found.
        shards: in order.
        image_sizes: images of each ``(height, width)``, pixels.
        uses: how often each pair of class text and id is used, by the name of the label map.
        unmatched: records that fit no profile.
        task, training_config: what the shards are held against.
        max_detailed: how many findings of the rule that looks at it are to be put into words.
    """

    dataset: Dataset
    profile: Profile
    findings: Findings
    shards: list[ShardResult] = field(default_factory=list)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    uses: dict[str | None, Counter[Use]] = field(default_factory=dict)
    unmatched: UnmatchedRecords | None = None
    task: Task | None = None
    training_config: TrainingConfig | None = None
    max_detailed: int = 1000
    _known: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False)

    def add(self, shard: ShardResult) -> None:
        """Add the shard that comes next, and take its findings, uses and sizes from it."""
        self.findings.merge(shard.findings)
        add_bounded(self.image_sizes, shard.image_sizes)
        add_bounded(self.uses.setdefault(shard.label_map, Counter()), shard.uses)
        shard.findings, shard.uses, shard.image_sizes = Findings(0), Counter(), Counter()
        # The keys of many shards are equal: held once.
        shard.keys = self._known.setdefault(shard.keys, shard.keys)
        self.shards.append(shard)

    def count(self, code: str, shard: str) -> int:
        """How many findings of a rule a shard has."""
        return self.findings.counts[code][shard] if code in self.findings.counts else 0

    def label_map_of(self, name: str | None) -> LabelMap | None:
        """A label map, if it could be read."""
        file = self.dataset.label_maps.get(name or "")
        return file.label_map if file else None

    @cached_property
    def by_subset(self) -> Mapping[str, Sequence[ShardResult]]:
        """The shards of each subset."""
        found: dict[str, list[ShardResult]] = {}
        for shard in self.shards:
            found.setdefault(shard.subset, []).append(shard)
        return found

    @cached_property
    def class_usage(self) -> Sequence[ClassUsage]:
        """Of each label map, and of none, how its classes are used."""
        first: dict[str | None, str] = {}
        for shard in self.shards:
            first.setdefault(shard.label_map, shard.name)
        return [
            ClassUsage(name or "", self.label_map_of(name), self.uses[name], shard)
            for name, shard in first.items()
        ]

    @cached_property
    def classes(self) -> Counter[str]:
        """Boxes of each class: by its text, or by the label map's name for the id, or ``#id``."""
        names: Counter[str] = Counter()
        for used in self.class_usage:
            names.update(_named(used.uses, used.label_map))
        return names

    @cached_property
    def tags(self) -> Counter[str]:
        """Images of each class that is the whole image's; counted where a CVAT task is given."""
        names: Counter[str] = Counter()
        for shard in self.shards:
            uses = Counter(use for row in shard.rows for use in row.tags)
            names.update(_named(uses, self.label_map_of(shard.label_map)))
        return names

    @cached_property
    def duplicates(self) -> Duplicates:
        """What several records share."""
        return Duplicates(self.shards)

    @cached_property
    def attachments(self) -> Sequence[Attachment]:
        """The frame of the task that each record goes to; none where no frames are known."""
        if self.task is None or self.task.frames is None:
            return ()
        from tfod.checker.references.frames import attach  # few checks need it

        return attach(self.task, [row for shard in self.shards for row in shard.rows])

    def repeat_findings(
        self, pairs: np.ndarray, make: Callable[[Repeat], Finding], case: str = ""
    ) -> Iterator[Finding]:
        """A finding for each record that shares something with an earlier one, of one case.

        ``make`` is asked for those that may be listed; of the others only the shard is said.
        """
        if not len(pairs):
            return
        yield from map(make, self.duplicates.repeats(pairs[: self.max_detailed]))
        for shard in self.duplicates.shards_of(pairs[self.max_detailed :, 0]):
            yield Finding(message="", shard=shard.name, case=case)


def _named(uses: Mapping[Use, int], label_map: LabelMap | None) -> Counter[str]:
    names: Counter[str] = Counter()
    for use, count in uses.items():
        names[class_name(use, label_map)] += count
    return names
