"""What is in a shard: records, keys with kinds and lengths, classes, sizes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tfod.detection import keys
from tfod.detection.columns import OD_API, DetectionColumns, single_values
from tfod.detection.features.field_mapping import field_mapping_by_boxes
from tfod.detection.features.schema import FeatureDescription, FeatureSpec, Value, to_source
from tfod.example.columns import Column, ExampleBatch, bytes_of
from tfod.example.wire import Kind
from tfod.kernel import code_spans
from tfod.tfrecord.reader import read_record_batches
from tfod.tfrecord.shard_sets.search import find_all_shards
from tfod.tfrecord.storage.open import shard_size
from tfod.tfrecord.storage.zip_directory import printable

_LIST_PREFIXES = ("image/object/", "image/class/")


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
    """What is in one shard or several."""

    shards: int = 0
    file_bytes: int = 0
    records: int = 0
    largest_record: int = 0
    boxes: int = 0
    without_boxes: int = 0
    keys: dict[str, KeySummary] = field(default_factory=dict)
    class_text: Counter[str] = field(default_factory=Counter)
    class_label: Counter[int] = field(default_factory=Counter)
    image_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    formats: Counter[str] = field(default_factory=Counter)

    def feature_description(self) -> FeatureDescription:
        """The tightest description under which all these records parse."""
        return {
            key: _spec(key, summary, self.records)
            for key, summary in sorted(self.keys.items())
            if any(summary.kinds)
        }

    def to_text(self) -> str:
        """For people: at most 80 columns, counts first."""
        return "\n".join(_lines(self)) + "\n"


def describe(source: str | os.PathLike[str]) -> Description:
    """Read all records of the shards that a file, a folder or a glob means, and sum them up.

    Raises:
        ShardsNotFoundError, ShardError: as :func:`tfod.detection.stream.read_examples`.
    """
    found = Description()
    for path in (path for one in find_all_shards(source) for path in one.paths):
        found.shards += 1
        found.file_bytes += shard_size(path)
        for records in read_record_batches(path):
            _add(found, ExampleBatch.of(records))
    return found


def _add(found: Description, examples: ExampleBatch) -> None:
    """Count a batch.

    Raises:
        RecordError: one of its records is not an Example.
    """
    refusal = examples.refusal(min(examples.refused, default=-1))
    if refusal is not None:
        raise refusal
    lengths = examples.records.lengths
    found.records += len(examples)
    found.largest_record = max(found.largest_record, int(lengths.max(initial=0)))
    for column in examples.lists.values():
        found.keys.setdefault(column.key, KeySummary()).add(column)
    columns = DetectionColumns(examples, field_mapping_by_boxes(examples.columns) or OD_API)
    found.boxes += int(columns.box_counts.sum())
    found.without_boxes += int(np.count_nonzero(columns.box_counts == 0))
    found.class_label.update(columns.column(keys.CLASS_LABEL, Kind.INT64).values.tolist())
    _count_texts(found.class_text, columns.column(keys.CLASS_TEXT, Kind.BYTES))
    _count_texts(found.formats, columns.column(keys.FORMAT, Kind.BYTES))
    sides = (single_values(columns.column(key, Kind.INT64)) for key in (keys.HEIGHT, keys.WIDTH))
    heights, widths = (dict(zip(*map(np.ndarray.tolist, side), strict=True)) for side in sides)
    both = (row for row in heights if row in widths)
    found.image_sizes.update((heights[row], widths[row]) for row in both)


def _count_texts(counts: Counter[str], column: Column) -> None:
    codes, firsts = code_spans(column.buffer, column.values)
    texts = bytes_of(column.buffer, column.values[firsts])
    for text, count in zip(texts, np.bincount(codes).tolist(), strict=True):
        counts[text.decode("utf-8", "replace")] += count


_NOTHING: dict[Kind, Value] = {Kind.BYTES: b"", Kind.INT64: 0, Kind.FLOAT: 0.0}


def _spec(key: str, summary: KeySummary, records: int) -> FeatureSpec:
    kind = next(kind for kind, _ in summary.kinds.most_common() if kind is not None)
    # Lists of objects and classes may have any length, even where each happens to have one.
    if summary.shortest == summary.longest == 1 and not key.startswith(_LIST_PREFIXES):
        if summary.records == records:
            return FeatureSpec(kind, ())
        return FeatureSpec(kind, (), _NOTHING[kind])
    return FeatureSpec(kind)


def _lines(found: Description) -> Iterator[str]:
    bare = f" ({found.without_boxes} without boxes)" if found.boxes and found.without_boxes else ""
    yield (
        f"{found.shards} {_noun(found.shards, 'shard')}, {found.records} "
        f"{_noun(found.records, 'record')}{bare}, {found.boxes} "
        f"{_noun(found.boxes, 'box', 'boxes')}; "
        f"{_bytes(found.file_bytes)}, largest record {_bytes(found.largest_record)}"
    )
    yield ""
    shown = {key: printable(key) for key in found.keys}
    width = max(map(len, shown.values()), default=0)
    yield f"{'key':<{width}}  {'kind':<10}  records  values"
    for key, summary in sorted(found.keys.items()):
        kinds = "/".join(kind.value if kind else "nothing" for kind in summary.kinds)
        values = f"{summary.shortest}"
        if summary.longest != summary.shortest:
            values += f"..{summary.longest}"
        yield f"{shown[key]:<{width}}  {kinds:<10}  {summary.records:>7}  {values}"
    sizes = Counter({f"{h} x {w}": n for (h, w), n in found.image_sizes.items()})
    texts = Counter({repr(text): n for text, n in found.class_text.items()})
    formats = Counter({repr(text): n for text, n in found.formats.items()})
    labels = Counter({str(label): n for label, n in found.class_label.items()})
    for title, counter in (
        ("class text", texts),
        ("class label", labels),
        ("height x width", sizes),
        ("format", formats),
    ):
        if counter:
            yield ""
            yield from _wrapped(title, counter)
    yield ""
    yield "import tensorflow as tf"
    yield ""
    yield to_source(found.feature_description()).rstrip("\n")


def _wrapped(title: str, counts: Counter[str], most: int = 20) -> Iterator[str]:
    """``title: a (3), b (2)`` over as many lines of 80 columns as it takes."""
    parts = [f"{name} ({count})" for name, count in counts.most_common(most)]
    if len(counts) > most:
        parts.append(f"and {len(counts) - most} more")
    line = f"{title}:"
    for position, part in enumerate(parts):
        part += "," if position < len(parts) - 1 else ""
        if len(line) + 1 + len(part) > 80:
            yield line
            line = "   "
        line += " " + part
    yield line


def _noun(count: int, one: str, many: str = "") -> str:
    return one if count == 1 else many or one + "s"


def _bytes(size: int) -> str:
    value = float(size)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
