"""Selection of the images in the HTML report, which are read from their shards again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np

from tfod.checker.finding import Finding
from tfod.checker.profiles.profile import READY, Profile
from tfod.checker.report import Report
from tfod.detection import keys
from tfod.detection.detections import Detections
from tfod.detection.features.field_mapping import FieldMapping
from tfod.detection.images.image import image_size
from tfod.errors import TfodError
from tfod.example.example_batch import ExampleBatch
from tfod.example.wire import Kind
from tfod.sources.resolved import Shard
from tfod.tfrecord.damage import Damage
from tfod.tfrecord.random_access import RecordReader
from tfod.tfrecord.reader import Record, RecordBatch, walk

_MAX_RECORD_BYTES = 64 << 20
_CLASS_FAMILIES = ("LAB", "TSK")  # the value of a finding can be a class name
_MAX_WITHOUT_FINDINGS = 4  # images that a valid report shows although they have no findings
_MAX_SEARCHED = 40  # records of a shard that are searched for such images


@dataclass(frozen=True, eq=False)
class Sample:
    """An image of a record with its objects.

    Attributes:
        item: file name of the image, or another name of the record.
        image: encoded bytes; None if the record does not have any.
        height, width: size in pixels from the image, or else from the record; 0 if unknown.
        boxes: shape (n, 4), normalized ``xmin, ymin, xmax, ymax``; may be outside [0, 1], inverted
            or not finite.
        classes: classes of the boxes, as in the report; may be fewer than the boxes.
        offending: numbers of the boxes with findings; empty if they are unknown.
    """

    shard: str
    record: int
    item: str | None
    image: bytes | None
    height: int
    width: int
    boxes: np.ndarray
    classes: tuple[str, ...]
    offending: frozenset[int] = frozenset()


def choose_samples(
    report: Report, shards: Sequence[Shard], profile: Profile | None, limit: int = 12
) -> list[Sample]:
    """Choose at most ``limit`` images with findings, of as many rules as possible.

    A valid report also has some images without findings, so that users can see whether the boxes
    are correct. Records that cannot be read again are left out. ``profile`` is the requested
    profile; None if each dataset was checked with a built-in one.
    """
    samples: list[Sample] = []
    chosen = _choose_records(report.findings, limit)
    for shard in shards:
        by_offset = {
            findings[0].offset or 0: findings
            for (name, _), findings in chosen.items()
            if name == shard.name
        }
        field_mapping = _find_field_mapping(report, shard.name, profile)
        for record in _read_records(shard, sorted(by_offset)) if by_offset else ():
            sample = _read_record(record, shard, field_mapping)
            # Without an image and boxes, there is nothing to draw.
            if sample.image or len(sample.boxes):
                findings = by_offset[record.offset]
                number, item = findings[0].record or 0, findings[0].item
                samples.append(mark_findings(replace(sample, record=number, item=item), findings))
    total = min(_MAX_WITHOUT_FINDINGS, limit) if report.valid else 0
    for shard in shards if len(samples) < total else ():
        field_mapping = _find_field_mapping(report, shard.name, profile)
        for record in islice(_read_records(shard), _MAX_SEARCHED):
            sample = _read_record(record, shard, field_mapping)
            is_new = (sample.shard, sample.record) not in chosen
            if is_new and sample.image and len(sample.boxes):
                samples.append(sample)
            if len(samples) >= total:
                return samples
    return samples


def _find_field_mapping(report: Report, shard: str, profile: Profile | None) -> FieldMapping:
    profile = profile or READY.get((report.find_dataset(shard) or report).profile.name)
    return profile.field_mapping if profile else FieldMapping()


def _read_record(record: Record, shard: Shard, field_mapping: FieldMapping) -> Sample:
    examples = ExampleBatch.of(RecordBatch.from_record(record, shard.name))
    return read_sample(Detections(examples, field_mapping), 0)


def _choose_records(
    findings: Sequence[Finding], limit: int
) -> dict[tuple[str, int], list[Finding]]:
    """Choose the first record of each rule, with severe rules first, then any records."""
    by_record: dict[tuple[str, int], list[Finding]] = {}
    first: dict[str, tuple[str, int]] = {}
    for finding in sorted(findings, key=lambda finding: -finding.severity.rank):
        if finding.record is not None:
            record = finding.shard, finding.record
            by_record.setdefault(record, []).append(finding)
            first.setdefault(finding.code, record)
    records = dict.fromkeys((*first.values(), *by_record))
    return {record: by_record[record] for record in list(records)[:limit]}


def mark_findings(sample: Sample, findings: Sequence[Finding]) -> Sample:
    """Return a sample in which the boxes with findings are offending."""
    values = (finding.value for finding in findings)
    objects = {value.get("object") for value in values if isinstance(value, dict)}
    wrong = [finding.value for finding in findings if finding.code[:3] in _CLASS_FAMILIES]
    objects |= {number for number, name in enumerate(sample.classes) if name in wrong}
    offending = frozenset(number for number in objects if isinstance(number, int))
    return replace(sample, offending=offending)


def _read_records(shard: Shard, offsets: Sequence[int] = ()) -> Iterator[Record]:
    """Yield the undamaged records at these offsets, in order, or all records."""
    with suppress(OSError, TfodError):
        if offsets:
            with closing(RecordReader(partial(shard.open, read_ahead=False))) as reader:
                yield from filter(None, map(reader.read, offsets))
            return
        with shard.open(read_ahead=False) as stream:
            for batch in walk(stream, shard.name, None, _MAX_RECORD_BYTES):
                if not isinstance(batch, Damage):
                    yield from batch.records()


def read_sample(detections: Detections, row: int) -> Sample:
    """Read the image of a record and its boxes, if possible."""
    start, end = detections.encoded[row].tolist()
    image = bytes(detections.examples.buffer[start:end]) or None
    header = image_size(image) if image else None
    height, width = header or (detections.heights[row] or 0, detections.widths[row] or 0)
    first, last = detections.box_splits[row : row + 2].tolist()
    texts, ids = read_object_classes(detections, row)
    records = detections.examples.records
    return Sample(
        shard=records.shard,
        record=records.first + row,
        item=detections.filenames[row] or None,
        image=image,
        height=height,
        width=width,
        boxes=detections.boxes[first:last],
        classes=tuple(texts or (f"#{label}" for label in ids)),
    )


def read_object_classes(detections: Detections, row: int) -> tuple[list[str], list[int]]:
    """Return the class texts and ids of a record's objects; empty if it does not have them."""
    texts = detections.texts_in(detections.column(keys.CLASS_TEXT, Kind.BYTES), row)
    labels = detections.column(keys.CLASS_LABEL, Kind.INT64)
    first, last = labels.row_splits[row : row + 2].tolist()
    return texts, labels.values[first:last].tolist()
