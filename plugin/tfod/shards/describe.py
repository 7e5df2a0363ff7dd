"""What is in shards: keys with kinds and lengths, classes by subset, sizes of boxes and images."""

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
from tfod.checker.reporters.escaping import in_columns, shortened_name, visible
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.features.schema import FeatureDescription, FeatureSpec, Value, to_source
from tfod.errors import ShardError, TfodError
from tfod.example.example_batch import Column, ExampleBatch
from tfod.example.wire import Kind
from tfod.sources.layouts import OD_API, no_objects_sentence
from tfod.sources.reading import ReadableShards, find_readable
from tfod.tfrecord.damage import Damage, DamageKind
from tfod.tfrecord.reader import walk
from tfod.tfrecord.shard_sets.search import Sources
from tfod.tfrecord.storage.open import open_shard, shard_size

Use: TypeAlias = "tuple[str | None, int | None]"
"""Class text and id of a box, either of which may be missing."""
_LIST_PREFIXES = ("image/object/", "image/class/")
_NOTHING: dict[Kind, Value] = {Kind.BYTES: b"", Kind.INT64: 0, Kind.FLOAT: 0.0}
_QUANTILES = {"least": 0.0, "10 %": 0.1, "median": 0.5, "90 %": 0.9, "most": 1.0}
_MOST_CLASSES, _MOST_SUBSETS = 100, 6


@dataclass
class KeySummary:
    """One key over all records that were read."""

    kinds: Counter[Kind | None] = field(default_factory=Counter)
    records: int = 0
    shortest: int = 1 << 62
    longest: int = 0

    def add(self, column: Column) -> None:
        """Count the records of a batch that have such a list."""
        counts = np.diff(column.splits)
        self.kinds[column.kind] += len(counts)
        self.records += len(counts)
        self.shortest = min(self.shortest, int(counts.min()))
        self.longest = max(self.longest, int(counts.max()))


@dataclass
class Description:
    """What is in one shard or several; of very many classes or numbers, of some.

    Attributes:
        records: those that could be read.
        damaged: records with any defect, whether they could be read or not.
        class_boxes: by subset the boxes of each class.
        class_images: images with each class.
        layouts: the layouts by which the records were read, by name.
        label_maps: the names of the label maps that were used.
        notes: what was left out, as sentences.
        numbers: how often each number was found, in pixels or per cent, by what it is.
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
        """The tightest description under which all these records parse."""
        return {
            key: _spec(key, summary, self.records)
            for key, summary in sorted(self.keys.items())
            if any(summary.kinds)
        }

    def to_text(self, *sources: str | os.PathLike[str]) -> str:
        """For people, counts first; ``sources`` are what was described."""
        return "\n".join(_lines(self, [os.fspath(one) for one in sources])) + "\n"


def describe(source: Sources, *, field_mapping: FieldMapping | None = None) -> Description:
    """Read all records of the shards that are meant, once, and sum them up.

    Args:
        source: as :func:`~tfod.sources.reading.find_readable` takes it.
        field_mapping: the keys of the records; None for those of the layout that fits best.

    Raises:
        ShardsNotFoundError, ShardError: there are no shards, or nothing sound is in them.
    """
    found = Description()
    errors: list[ShardError] = []

    shards = find_readable(source, field_mapping=field_mapping)
    found.notes += shards.notes
    for one in shards.sets:
        found.class_boxes[one.subset] = Counter()
        for path in one.paths:
            names, mapping = _names_of_classes(shards, path, found), OD_API.field_mapping
            with suppress(TfodError):  # records of any kind are described
                layout = shards.layout(path)
                mapping = layout.field_mapping
                found.layouts[layout.name or "the named keys"] = mapping
            found.shards += 1
            found.file_bytes += shard_size(path)
            with open_shard(path) as (stream, size):
                for records in walk(stream, path, size):
                    if isinstance(records, Damage):
                        found.damaged += records.kind is not DamageKind.EMPTY
                        errors[1:] = [records.to_error()]  # the first one stays, and the last
                        continue
                    examples = ExampleBatch.of(records)
                    errors[1:] = filter(None, map(examples.refusal, [*examples.refused][:1]))
                    _add(found, one.subset, Detections(examples, mapping), names)
    if errors and not found.records:
        raise errors[0]
    return found


def _names_of_classes(shards: ReadableShards, path: str, found: Description) -> Mapping[int, str]:
    """The classes of a shard's label map, if it can be read."""
    file = shards.label_maps[path]
    if file is None:
        return {}
    if file.label_map is None:
        found.notes += [file.error] if file.error not in found.notes else []
        return {}
    found.label_maps[file.name] = None
    return {item.id: item.class_name for item in file.label_map.items}


def _add(found: Description, subset: str, batch: Detections, names: Mapping[int, str]) -> None:
    """Count a batch; ``names`` are those of classes that have only an id."""
    examples = batch.examples
    found.largest_record = max(found.largest_record, int(examples.records.lengths.max(initial=0)))
    for column in examples.lists.values():
        found.keys.setdefault(column.key, KeySummary()).add(column)
    found.damaged += len(batch.refused_rows)
    is_read = np.ones(len(batch), bool)
    is_read[list(examples.refused)] = False
    counts = batch.box_counts[is_read]
    found.records += len(counts)
    found.boxes += int(counts.sum())
    found.without_boxes += int((counts == 0).sum())
    _add_classes(found, subset, batch, names)
    _add_sizes(found, batch)
    found.numbers["boxes in an image"].update(counts.tolist())


def _add_classes(
    found: Description, subset: str, batch: Detections, names: Mapping[int, str]
) -> None:
    texts = batch.column(keys.CLASS_TEXT, Kind.BYTES).counts
    counts = np.where(texts > 0, texts, batch.column(keys.CLASS_LABEL, Kind.INT64).counts)
    codes, pairs = batch.class_uses(counts)
    uses = [(text or names.get(label or 0, text), label) for text, label in pairs]
    boxes = np.bincount(codes, minlength=len(uses)).tolist()
    # Pairs of image and class, each once.
    different = np.unique(np.repeat(np.arange(len(batch)), counts) * len(uses) + codes)
    images = np.bincount(different % max(1, len(uses)), minlength=len(uses)).tolist()
    for counter, numbers in ((found.class_boxes[subset], boxes), (found.class_images, images)):
        add_bounded(counter, dict(zip(uses, numbers, strict=True)))


def _add_sizes(found: Description, batch: Detections) -> None:
    """Count the sizes of images, and of boxes, as far as they are in their image."""
    sizes = batch.sizes[:, ::-1]
    corners = np.clip(batch.boxes.astype(np.float64), 0, 1)
    sides = corners[:, 2:] - corners[:, :2]
    good = (sides > 0).all(axis=1)
    sides = sides[good]
    pixels = sides * np.repeat(sizes, np.diff(batch.box_splits), axis=0)[good]
    known = pixels.all(axis=1)
    sizes, pixels = sizes[sizes.all(axis=1)], pixels[known]
    for name, values in (
        ("box width, pixels", pixels[:, 0].round()),
        ("box height, pixels", pixels[:, 1].round()),
        ("box, % of the image", (100 * sides.prod(axis=1)).round(2)),
        ("image width, pixels", sizes[:, 0]),
        ("image height, pixels", sizes[:, 1]),
    ):
        add_bounded(found.numbers[name], Counter(values.tolist()))


def _spec(key: str, summary: KeySummary, records: int) -> FeatureSpec:
    kind = next(kind for kind, _ in summary.kinds.most_common() if kind is not None)
    # Lists of objects and classes may have any length, even where each happens to have one.
    if summary.shortest == summary.longest == 1 and not key.startswith(_LIST_PREFIXES):
        return FeatureSpec(kind, (), *(() if summary.records == records else [_NOTHING[kind]]))
    return FeatureSpec(kind)


def _lines(found: Description, sources: Sequence[str]) -> Iterator[str]:
    bare = (
        f" ({found.without_boxes:,} without boxes)" if found.boxes and found.without_boxes else ""
    )
    yield (
        f"{plural(found.shards, 'shard')}, {plural(found.records, 'record')}{bare}, "
        f"{plural(found.boxes, 'box')}; {size(found.file_bytes)}, largest record "
        f"{size(found.largest_record)}"
    )
    if found.damaged:
        command = shlex.join(["tfod", "check", *sources])
        yield f"{plural(found.damaged, 'damaged record')}: {command} says where, and what is wrong"
    used = ", ".join(found.label_maps) or "none"
    yield f"layout: {', '.join(found.layouts) or 'unknown'}; label map: {used}"
    if found.records and not found.boxes:
        mappings = found.layouts.values() or [OD_API.field_mapping]
        yield visible(no_objects_sentence(found.keys, mappings))
    yield from found.notes
    yield ""
    shown = {key: visible(key) for key in found.keys}
    width = max(map(len, shown.values()), default=0)
    yield f"{'key':<{width}}  {'kind':<10}  records  values"
    for key, summary in sorted(found.keys.items()):
        kinds = "/".join(kind.value if kind else "nothing" for kind in summary.kinds)
        values = "..".join(map(str, dict.fromkeys((summary.shortest, summary.longest))))
        yield f"{shown[key]:<{width}}  {kinds:<10}  {summary.records:>7}  {values}"
    yield from _classes(found)
    if found.boxes or found.numbers["image width, pixels"]:
        rows = [(name, *_quantiles(one)) for name, one in found.numbers.items() if one]
        yield from ("", *in_columns([("", *_QUANTILES), *rows]))
    yield from ("", "import tensorflow as tf", "", to_source(found.feature_description()).rstrip())


def _classes(found: Description) -> Iterator[str]:
    total = sum(found.class_boxes.values(), Counter[Use]())
    by_size = sorted(found.class_boxes, key=lambda name: (-found.class_boxes[name].total(), name))
    subsets = sorted(by_size[:_MOST_SUBSETS]) if len(by_size) > 1 else []
    rows = [("class", "id", "boxes", "images", *map(shortened_name, subsets))]
    order = sorted(total, key=lambda use: (-total[use], use[0] or "", use[1] or 0))
    for use in order[:_MOST_CLASSES]:
        text, label = use
        counts = total[use], found.class_images[use], *(found.class_boxes[s][use] for s in subsets)
        name = shortened_name(text) if text else "(none)"
        rows.append((name, "" if label is None else str(label), *(f"{n:,}" for n in counts)))
    if order:
        yield from ("", *in_columns(rows))
    if len(order) > _MOST_CLASSES:
        yield f"and {len(order) - _MOST_CLASSES:,} more classes"
    if bare := sorted({label for text, label in total if not text and label is not None}):
        yield f"no text and no label map explains the ids {', '.join(map(str, bare))}"
    if order and len(by_size) > len(subsets) > 0:
        yield f"by subset: the {len(subsets)} largest of {len(by_size):,}"


def _quantiles(counts: Counter[float]) -> Iterator[str]:
    values = np.array(sorted(counts))
    below = np.cumsum([counts[value] for value in values.tolist()])
    for share in _QUANTILES.values():
        yield f"{values[np.searchsorted(below, share * below[-1])]:,g}"
