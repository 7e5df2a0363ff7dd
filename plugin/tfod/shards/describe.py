"""Summaries of shards: keys with kinds and lengths, classes by subset, box and image sizes."""

from __future__ import annotations

import os
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tfod.checker.analysis.result import add_bounded
from tfod.checker.finding import plural, size
from tfod.checker.reporters.escaping import format_columns, shorten_name, visible
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec, Value, to_source
from tfod.errors import ShardError, TfodError, truncate
from tfod.example.example_batch import Column, ExampleBatch
from tfod.example.wire import Kind
from tfod.sources.layouts import OD_API, describe_missing_objects
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import walk
from tfod.tfrecord.shard_sets.search import Sources
from tfod.tfrecord.storage.open import get_shard_size, open_shard

Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of a box, either of which may be missing."""
_LIST_PREFIXES = ("image/object/", "image/class/")
_DEFAULTS: dict[Kind, Value] = {Kind.BYTES: b"", Kind.INT64: 0, Kind.FLOAT: 0.0}
_QUANTILES = {"min": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "max": 1.0}
_MAX_CLASSES, _MAX_SUBSETS = 100, 6


@dataclass
class KeySummary:
    """The kinds and list lengths of one key, over all records that were read."""

    kinds: Counter[Kind | None] = field(default_factory=Counter)
    records: int = 0
    shortest: int = 1 << 62
    longest: int = 0

    def add(self, column: Column) -> None:
        """Add the records of a batch that have this key."""
        counts = np.diff(column.splits)
        self.kinds[column.kind] += len(counts)
        self.records += len(counts)
        self.shortest = min(self.shortest, int(counts.min()))
        self.longest = max(self.longest, int(counts.max()))


@dataclass
class Description:
    """A summary of one or more shards. The numbers of different classes and sizes are bounded.

    Attributes:
        damaged: number of records with a defect; some of them could be read.
        class_boxes, class_images: boxes of each class by subset, and images with each class.
        layouts: field mappings by which the records were read, by name.
        notes: sentences about anything that was left out.
        numbers: counts of the values of each quantity, in pixels or percent, by its name.
    """

    shards: int = 0
    file_bytes: int = 0
    records: int = 0
    largest_record: int = 0
    damaged: int = 0
    boxes: int = 0
    without_boxes: int = 0
    keys: dict[str, KeySummary] = field(default_factory=dict)
    class_boxes: dict[str, Counter[Use]] = field(default_factory=dict)
    class_images: Counter[Use] = field(default_factory=Counter)
    layouts: dict[str, FieldMapping] = field(default_factory=dict)
    label_maps: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    numbers: defaultdict[str, Counter[float]] = field(default_factory=lambda: defaultdict(Counter))

    def feature_description(self) -> FeatureDescription:
        """Return the strictest feature description that parses all these records."""
        return {
            key: _make_spec(key, summary, self.records)
            for key, summary in sorted(self.keys.items())
            if any(summary.kinds)
        }

    def to_text(self, *sources: str | os.PathLike[str]) -> str:
        """Return the summary as text; ``sources`` are the described sources."""
        return "\n".join(_lines(self, [os.fspath(source) for source in sources])) + "\n"


def describe(source: Sources, *, field_mapping: FieldMapping | None = None) -> Description:
    """Read all records of the shards once, and summarize them.

    ``source`` is one or more sources, see :func:`~tfod.sources.reading.find_readable`. Without a
    field mapping, the layout that fits best determines the keys of the records. Raises
    ShardsNotFoundError or ShardError if there are no shards, or no record can be read.
    """
    result = Description()
    errors: list[ShardError] = []
    shards = find_readable(source, field_mapping=field_mapping)
    result.notes += shards.notes
    for shard_set in shards.sets:
        result.class_boxes[shard_set.subset] = Counter()
        for path in shard_set.paths:
            names, mapping = _class_names(shards, path, result), OD_API.field_mapping
            with suppress(TfodError):  # records of an unknown layout are described, too
                layout = shards.layout(path)
                mapping = layout.field_mapping
                result.layouts[layout.name or "custom keys"] = mapping
            result.shards += 1
            result.file_bytes += get_shard_size(path)
            with open_shard(path) as (stream, length):
                for records in walk(stream, path, length):
                    if isinstance(records, Damage):
                        result.damaged += records.kind is not DamageKind.EMPTY
                        errors[1:] = [records.to_error()]  # keeps the first and the last
                        continue
                    examples = ExampleBatch.of(records)
                    errors[1:] = filter(None, map(examples.parse_error, [*examples.unreadable][:1]))
                    _add(result, shard_set.subset, Detections(examples, mapping), names)
    if errors and not result.records:
        raise errors[0]
    return result


def _class_names(shards: ReadableShards, path: str, result: Description) -> Mapping[int, str]:
    file = shards.label_maps[path]
    if file is None:
        return {}
    if file.label_map is None:
        if file.error not in result.notes:
            result.notes.append(file.error)
        return {}
    result.label_maps[file.name] = None
    return {item.id: item.class_name for item in file.label_map.items}


def _add(result: Description, subset: str, batch: Detections, names: Mapping[int, str]) -> None:
    """Add a batch; ``names`` are the class names of boxes that have only an id."""
    examples = batch.examples
    lengths = examples.records.lengths
    result.largest_record = max(result.largest_record, int(lengths.max(initial=0)))
    for column in examples.lists.values():
        result.keys.setdefault(column.key, KeySummary()).add(column)
    result.damaged += len(batch.unreadable_rows)
    is_read = np.ones(len(batch), bool)
    is_read[list(examples.unreadable)] = False
    counts = batch.box_counts[is_read]
    result.records += len(counts)
    result.boxes += int(counts.sum())
    result.without_boxes += int((counts == 0).sum())
    _add_classes(result, subset, batch, names)
    _add_sizes(result, batch)
    result.numbers["boxes in an image"].update(counts.tolist())


def _add_classes(
    result: Description, subset: str, batch: Detections, names: Mapping[int, str]
) -> None:
    texts = batch.column(keys.CLASS_TEXT, Kind.BYTES).counts
    counts = np.where(texts > 0, texts, batch.column(keys.CLASS_LABEL, Kind.INT64).counts)
    codes, pairs = batch.class_uses(counts)
    uses = [(text or names.get(label or 0, text), label) for text, label in pairs]
    boxes = np.bincount(codes, minlength=len(uses)).tolist()
    # Count a class once per image: number the pairs of image and class, and make them unique.
    rows = np.arange(len(batch), dtype=np.int64)  # the pairs may exceed intp
    image_uses = np.unique(np.repeat(rows, counts) * len(uses) + codes) % max(1, len(uses))
    images = np.bincount(image_uses.astype(np.intp, copy=False), minlength=len(uses)).tolist()
    add_bounded(result.class_boxes[subset], dict(zip(uses, boxes, strict=True)))
    add_bounded(result.class_images, dict(zip(uses, images, strict=True)))


def _add_sizes(result: Description, batch: Detections) -> None:
    """Add the sizes of the images, and of the boxes after clipping them to their image."""
    sizes = batch.sizes[:, ::-1]
    corners = np.clip(batch.boxes.astype(np.float64), 0, 1)
    sides = corners[:, 2:] - corners[:, :2]
    has_area = (sides > 0).all(axis=1)
    sides = sides[has_area]
    pixels = sides * np.repeat(sizes, np.diff(batch.box_splits), axis=0)[has_area]
    has_size = pixels.all(axis=1)
    sizes, pixels = sizes[sizes.all(axis=1)], pixels[has_size]
    for name, values in (
        ("box width, pixels", pixels[:, 0].round()),
        ("box height, pixels", pixels[:, 1].round()),
        ("box, % of the image", (100 * sides.prod(axis=1)).round(2)),
        ("image width, pixels", sizes[:, 0]),
        ("image height, pixels", sizes[:, 1]),
    ):
        add_bounded(result.numbers[name], Counter(values.tolist()))


def _make_spec(key: str, summary: KeySummary, records: int) -> FeatureSpec:
    kind = next(kind for kind, _ in summary.kinds.most_common() if kind is not None)
    # Lists of objects and classes may have any length, even if all of these have one value.
    if key.startswith(_LIST_PREFIXES) or not summary.shortest == summary.longest == 1:
        return FeatureSpec(kind)
    is_required = summary.records == records
    return FeatureSpec(kind, ()) if is_required else FeatureSpec(kind, (), _DEFAULTS[kind])


def _lines(result: Description, sources: Sequence[str]) -> Iterator[str]:
    has_both = result.boxes and result.without_boxes
    empty = f" ({result.without_boxes:,} without boxes)" if has_both else ""
    yield (
        f"{plural(result.shards, 'shard')}, {plural(result.records, 'record')}{empty}, "
        f"{plural(result.boxes, 'box')}; {size(result.file_bytes)}, largest record "
        f"{size(result.largest_record)}"
    )
    if result.damaged:
        command = shlex.join(["tfod", "check", *sources])
        yield f"{plural(result.damaged, 'damaged record')}: for details run {command}"
    label_maps = ", ".join(result.label_maps) or "none"
    yield f"layout: {', '.join(result.layouts) or 'unknown'}; label map: {label_maps}"
    if result.records and not result.boxes:
        mappings = result.layouts.values() or [OD_API.field_mapping]
        yield visible(describe_missing_objects(result.keys, mappings))
    yield from result.notes
    yield ""
    names = {key: visible(truncate(key)) for key in result.keys}
    width = max(map(len, names.values()), default=0)
    yield f"{'key':<{width}}  {'kind':<10}  records  values"
    for key, summary in sorted(result.keys.items()):
        kinds = "/".join(kind.value if kind else "nothing" for kind in summary.kinds)
        values = "..".join(map(str, dict.fromkeys((summary.shortest, summary.longest))))
        yield f"{names[key]:<{width}}  {kinds:<10}  {summary.records:>7}  {values}"
    yield from _class_lines(result)
    if result.boxes or result.numbers["image width, pixels"]:
        rows = [
            (name, *(f"{value:,g}" for value in quantiles(counts).values()))
            for name, counts in result.numbers.items()
            if counts
        ]
        yield from ("", *format_columns([("", *_QUANTILES), *rows]))
    yield from ("", "import tensorflow as tf", "")
    yield to_source(result.feature_description()).rstrip()


def _class_lines(result: Description) -> Iterator[str]:
    boxes_by_subset = result.class_boxes
    total = sum(boxes_by_subset.values(), Counter[Use]())
    by_size = sorted(boxes_by_subset, key=lambda name: (-boxes_by_subset[name].total(), name))
    subsets = sorted(by_size[:_MAX_SUBSETS]) if len(by_size) > 1 else []
    rows = [("class", "id", "boxes", "images", *map(shorten_name, subsets))]
    order = sort_uses(total)
    for use in order[:_MAX_CLASSES]:
        text, label = use
        subset_counts = (boxes_by_subset[subset][use] for subset in subsets)
        counts = total[use], result.class_images[use], *subset_counts
        name = shorten_name(text) if text else "(none)"
        rows.append((name, "" if label is None else str(label), *(f"{n:,}" for n in counts)))
    if order:
        yield from ("", *format_columns(rows))
    if len(order) > _MAX_CLASSES:
        yield f"and {len(order) - _MAX_CLASSES:,} more classes"
    if unnamed := sorted({label for text, label in total if not text and label is not None}):
        yield f"ids without a class name: {', '.join(map(str, unnamed))} (no text, no label map)"
    if order and len(by_size) > len(subsets) > 0:
        yield f"by subset: the {len(subsets)} largest of {len(by_size):,}"


def sort_uses(counts: Counter[Use]) -> list[Use]:
    """Return the pairs of class text and id, the most frequent first."""
    return sorted(counts, key=lambda use: (-counts[use], use[0] or "", use[1] or 0))


def quantiles(counts: Counter[float]) -> dict[str, float]:
    """Return the minimum, median, maximum and two more quantiles of counted numbers."""
    values = np.array(sorted(counts))
    cumulative = np.cumsum([counts[value] for value in values.tolist()])
    return {
        name: float(values[np.searchsorted(cumulative, share * cumulative[-1])])
        for name, share in _QUANTILES.items()
    }
