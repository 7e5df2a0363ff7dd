"""Results of a check: one for each shard, and their totals for a dataset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from tfod.checker.analysis.batch import ImageRow, Use, class_name
from tfod.checker.analysis.column_order import BoxColumns
from tfod.checker.analysis.decoding import Decoding, can_decode
from tfod.checker.analysis.duplicates import Duplicates, IndexedBatch, Repeat
from tfod.checker.finding import Finding, Findings, Levels, shorten
from tfod.checker.profiles.profile import Profile
from tfod.detection.labels.label_map import LabelMap

if TYPE_CHECKING:
    from tfod.checker.analysis.object_statistics import ObjectFigures
    from tfod.checker.references.cvat_task import Task
    from tfod.checker.references.frames import Attachment
    from tfod.checker.references.pipeline_config import TrainingConfig
    from tfod.sources.resolved import Dataset

T = TypeVar("T")
FOREIGN_MAP = "Replace it by the label map of these shards, or pass that with --label-map."
"""The fix of LAB006 if the label map has none of the classes."""
_DECODE_ALL = "--decode all"
MAX_COUNTED_KEYS = 1 << 16
"""The maximum number of different classes, or image sizes, that are counted."""


def add_bounded(counts: Counter[T], more: Mapping[T, int]) -> None:
    """Add ``more`` to ``counts``, but no new keys once it has ``MAX_COUNTED_KEYS`` keys."""
    for key, count in more.items():
        if key in counts or len(counts) < MAX_COUNTED_KEYS:
            counts[key] += count


@dataclass
class ShardResult:
    """The result of examining one shard.

    Attributes:
        label_map: name of the label map that the shard was checked with.
        candidates: names of the label maps, if several fit equally well.
        damage: why the zip entry could not be unpacked completely; empty if it could.
        is_whole: whether all records could be unpacked.
        records, images, boxes: number of records, of records with image bytes, and of boxes read.
        decoded: number of images that were decoded.
        not_images: number of records with image bytes that are not an image.
        is_sampled_evenly: whether a sample of the images is spread over the shard, instead of the
            first ones, which are decoded if the length of the uncompressed shard is unknown.
        read: number of bytes that were read.
        columns: statistics that show whether the box columns are permuted.
        sample: some of the boxes, from :func:`~tfod.checker.analysis.box_forms.sample_boxes`.
        is_empty_file: whether the shard is a file of 0 bytes in a numbered set.
        compression: "GZIP" or "ZLIB"; empty if the shard is not compressed.
        unreadable: the I/O error that ended reading; empty if there was none.
        objects: statistics of the objects, if there is a trainer's configuration.
        rows: the records, if there is a CVAT task.
        attributes: number of values per class and attribute name, if there is a CVAT task.
        has_defects: whether there are findings more severe than info.
        flat: number of boxes without area.
        uses: number of objects for each pair of class text and id.
        image_sizes: number of images by height and width in pixels.
        index: hashes of the records, to find duplicates across shards.
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
    not_images: int = 0
    is_sampled_evenly: bool = False
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
    """The classes used by the shards that share a label map; ``shard`` is the first of them."""

    map_name: str
    label_map: LabelMap | None
    uses: Mapping[Use, int]
    shard: str


class UnmatchedRecords(NamedTuple):
    """Records that match no profile, or none that the receiver reads.

    Attributes:
        layout: name of the profile that matches, if its boxes are not read by the receiver.
        shard: name of the first shard with such records.
        receiver: title of the receiver; empty for any receiver.
    """

    keys: Sequence[str]
    layout: str
    shard: str
    receiver: str = ""


@dataclass
class DatasetResult:
    """The totals of the shards of a dataset, which the dataset rules check.

    Attributes:
        image_sizes: number of images by height and width in pixels.
        uses: number of objects for each pair of class text and id, by label map name.
        unmatched: records that match no profile; None if all do.
        task, training_config: references that the shards are compared with.
        max_detailed: number of findings of the current rule that are described in full.
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
    _interned_keys: dict[frozenset[str], frozenset[str]] = field(default_factory=dict, repr=False)

    def add(self, shard: ShardResult) -> None:
        """Add the next shard, and move its findings, uses and sizes to the totals."""
        if "LAB006" in shard.findings.listed:
            self._name_foreign_label_map(shard)
        self.findings.merge(shard.findings)
        add_bounded(self.image_sizes, shard.image_sizes)
        add_bounded(self.uses.setdefault(shard.label_map, Counter()), shard.uses)
        shard.findings, shard.uses, shard.image_sizes = Findings(0), Counter(), Counter()
        # Most shards have the same keys, of which one copy is kept.
        shard.keys = self._interned_keys.setdefault(shard.keys, shard.keys)
        self.shards.append(shard)

    def _name_foreign_label_map(self, shard: ShardResult) -> None:
        """Say so in the findings of a shard if its label map has none of its classes."""
        name, texts = shard.label_map, {text for text, _ in shard.uses if text}
        label_map = self.get_label_map(name)
        if not (texts and name and label_map) or any(map(label_map.find, texts)):
            return
        names = label_map.fuzzy_names
        if any(names.find_same(text) or names.find_nearest(text) for text in texts):
            return  # the texts are misspelled
        suffix = f"; this label map may belong to another dataset: {name}"
        shard.findings.listed["LAB006"] = [
            item._replace(message=shorten(item.message, suffix), fix=FOREIGN_MAP, covers=[name])
            for item in shard.findings.listed["LAB006"]
        ]

    def count(self, code: str, shard: str) -> int:
        """Return the number of findings of a rule in a shard."""
        return self.findings.counts[code][shard] if code in self.findings.counts else 0

    def get_label_map(self, name: str | None) -> LabelMap | None:
        """Return the label map with this name, or None if it could not be read."""
        file = self.dataset.label_maps.get(name or "")
        return file.label_map if file else None

    @cached_property
    def by_subset(self) -> Mapping[str, Sequence[ShardResult]]:
        """The shards of each subset."""
        by_subset: dict[str, list[ShardResult]] = {}
        for shard in self.shards:
            by_subset.setdefault(shard.subset, []).append(shard)
        return by_subset

    @cached_property
    def class_usage(self) -> Sequence[ClassUsage]:
        """The class usage for each label map, and for the shards without a label map."""
        first_shards: dict[str | None, str] = {}
        for shard in self.shards:
            first_shards.setdefault(shard.label_map, shard.name)
        return [
            ClassUsage(name or "", self.get_label_map(name), self.uses[name], shard)
            for name, shard in first_shards.items()
        ]

    @cached_property
    def classes(self) -> Counter[str]:
        """The number of boxes of each class, by text, name in the label map, or ``#id``."""
        counts: Counter[str] = Counter()
        for usage in self.class_usage:
            counts.update(_count_by_name(usage.uses, usage.label_map))
        return counts

    @cached_property
    def tags(self) -> Counter[str]:
        """The number of images for each image-level class; empty without a CVAT task."""
        counts: Counter[str] = Counter()
        for shard in self.shards:
            uses = Counter(use for row in shard.rows for use in row.tags)
            counts.update(_count_by_name(uses, self.get_label_map(shard.label_map)))
        return counts

    @cached_property
    def duplicates(self) -> Duplicates:
        """The names and images that occur in more than one record."""
        return Duplicates(self.shards)

    @cached_property
    def attachments(self) -> Sequence[Attachment]:
        """Each record with its frame of the CVAT task; empty if no frames are known."""
        if self.task is None or self.task.frames is None:
            return ()
        from tfod.checker.references.frames import attach  # few checks need it

        return attach(self.task, [row for shard in self.shards for row in shard.rows])

    def repeat_findings(
        self, pairs: np.ndarray, make: Callable[[Repeat], Finding], case: str = ""
    ) -> Iterator[Finding]:
        """Yield a finding of this case for each pair; those above the limit have only a shard."""
        if not len(pairs):
            return
        yield from map(make, self.duplicates.repeats(pairs[: self.max_detailed]))
        for shard in self.duplicates.shards_of(pairs[self.max_detailed :, 0]):
            yield Finding(message="", shard=shard.name, case=case)


def _count_by_name(uses: Mapping[Use, int], label_map: LabelMap | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for use, count in uses.items():
        counts[class_name(use, label_map)] += count
    return counts


class Undecoded(NamedTuple):
    """Why not all images were decoded, as the end of a sentence, and how to decode all."""

    reason: str = ""
    fix: str = ""


def explain_undecoded(
    decoding: Decoding, levels: Levels, shards: Sequence[ShardResult]
) -> Undecoded:
    """Return the reason why a check with these levels did not decode all images."""
    if decoding.limit == 0:
        return Undecoded("as requested", _DECODE_ALL)
    if not can_decode():
        return Undecoded("because Pillow is not installed", "pip install Pillow")
    if levels["IMG003"] is None:
        return Undecoded("because IMG003 is off")
    shards = [shard for shard in shards if shard.decoded + shard.not_images < shard.images]
    if not shards:
        return Undecoded("because the others are not images")
    if decoding.limit is None:
        return Undecoded("because the others have many more pixels than bytes", _DECODE_ALL)
    are_spread = {shard.is_sampled_evenly for shard in shards}
    if are_spread == {False}:
        return Undecoded("the first ones of each shard", _DECODE_ALL)
    exception = ", but the first ones of compressed shards" if False in are_spread else ""
    return Undecoded(f"spread over all shards{exception}", _DECODE_ALL)
